"""Choose and check the address of a Spark master, before Spark would wait a minute for it."""

from __future__ import annotations

import os
import re

from producer_core.errors import ConfigError, PipelineError, ProducerError
from producer_core.pipeline import handshake

TRIES = 4
"""Tries per task on this machine: plain `local[2]` fails a job at its first lost worker (measured)."""

_CORES = r"(?:[1-9]\d*|\*)"
_LOCAL = re.compile(rf"local(?:\[{_CORES}(?:\s*,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_STANDALONE = re.compile(r"spark://([^/\s]+)")
_MANAGED = re.compile(r"yarn|k8s://\S+")
_TIMEOUT = 5.0
_SHUT_DOWN = ("Spark's Java process exited.", "No Spark master responds.")
"""Texts of `spark_error` for a session that was shut down while it started."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_master() -> str:
    """Return all cores of this machine with four tries per task."""
    return f"local[{cores()},{TRIES}]"


def is_local(master: str) -> bool:
    """Return whether the master's workers are on this machine."""
    return master.startswith("local")


def workers(master: str) -> int | None:
    """Return how many tasks run at once; None when only the cluster knows."""
    match [int(number) for number in re.findall(r"\d+", master)] if is_local(master) else []:
        case [executors, each, _] if master.startswith("local-cluster"):
            return executors * each
        case [count, *_] if "[*" not in master:
            return count
    return (cores() if "[*" in master else 1) if is_local(master) else None


def check_master(master: str, *, timeout: float = _TIMEOUT) -> None:
    """Raise ConfigError for an invalid address, PipelineError when no master responds; Spark itself would wait a
    minute."""
    if _LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master) or _MANAGED.fullmatch(master):
        return
    found = _STANDALONE.fullmatch(master)
    if found is None:
        raise ConfigError(
            f"{master!r} is not a Spark master.",
            fix=f"Write {default_master()}, spark://host:7077, local-cluster[2,1,1024], yarn or k8s://….",
        )
    addresses = [_address(part, master) for part in found[1].split(",")]
    failures = [_failure(host, port, timeout / len(addresses)) for host, port in addresses]
    if all(failures):
        raise PipelineError(
            f"No Spark master responded at {master}: {failures[0]}.",
            fix="Check that it is running, and check its address (the master's port is usually 7077, its web page's 8080), or omit "
            "--master to use this machine.",
        )


def master_start_error(master: str, error: ProducerError | None) -> ProducerError | None:
    """Return a clearer error for a failed start: a standalone master that never accepted the job.

    Spark reports after a minute only that the session was shut down.
    """
    if _STANDALONE.fullmatch(master) is None or error is None or error.what not in _SHUT_DOWN:
        return error
    return PipelineError(
        f"The process at {master} did not accept this job within a minute.",
        fix="Check that it is a Spark master (not a worker) and that its version matches PySpark's.",
    )


def _address(text: str, master: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigError(
            f"{master!r} is not a Spark master: {text!r} is not host:port.", fix="The port is usually 7077."
        )
    return host.strip("[]"), int(port)


def _failure(host: str, port: int, timeout: float) -> str | None:
    """Return why no Spark master responds at the address; None if one does."""
    try:
        return handshake.handshake_error(host, port, timeout)
    except TimeoutError:
        return f"no response within {timeout:g} s"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
