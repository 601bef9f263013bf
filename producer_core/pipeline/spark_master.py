"""A Spark master's address: this machine's by default, checked before Spark would wait a minute for it."""

from __future__ import annotations

import os
import re

from producer_core.errors import ConfigError, PipelineError, ProducerError
from producer_core.pipeline import handshake

TRIES = 4
"""Tries a task on this machine: plain `local[2]` fails a job at its first lost worker (measured)."""

_CORES = r"(?:[1-9]\d*|\*)"
_LOCAL = re.compile(rf"local(?:\[{_CORES}(?:\s*,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_STANDALONE = re.compile(r"spark://([^/\s]+)")
_ELSEWHERE = re.compile(r"yarn|k8s://\S+")
_PATIENCE = 5.0
_SHUT_DOWN = ("Spark's Java process is gone.", "No Spark master answers.")
"""What `spark_error` makes of it."""


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_master() -> str:
    """All cores of this machine, four tries a task."""
    return f"local[{cores()},{TRIES}]"


def is_local(master: str) -> bool:
    """Whether its workers are on this machine."""
    return master.startswith("local")


def workers(master: str) -> int | None:
    """How many tasks run at once; None where only the cluster knows."""
    match [int(number) for number in re.findall(r"\d+", master)] if is_local(master) else []:
        case [executors, each, _] if master.startswith("local-cluster"):
            return executors * each
        case [count, *_] if "[*" not in master:
            return count
    return (cores() if "[*" in master else 1) if is_local(master) else None


def check_master(master: str, *, timeout: float = _PATIENCE) -> None:
    """ConfigError for what is no master, PipelineError where none answers; Spark itself would wait a minute."""
    if _LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master) or _ELSEWHERE.fullmatch(master):
        return
    found = _STANDALONE.fullmatch(master)
    if found is None:
        raise ConfigError(
            f"{master!r} is no Spark master.",
            fix=f"Write {default_master()}, spark://host:7077, local-cluster[2,1,1024], yarn or k8s://….",
        )
    addresses = [_address(part, master) for part in found[1].split(",")]
    failures = [_refusal(host, port, timeout / len(addresses)) for host, port in addresses]
    if all(failures):
        raise PipelineError(
            f"No Spark master answers at {master}: {failures[0]}.",
            fix="Check that it runs, and its address (its own port is usually 7077, its web page's 8080), or leave "
            "--master out to use this machine.",
        )


def master_start_error(master: str, error: ProducerError | None) -> ProducerError | None:
    """What became of a session's start: where a standalone master never took it, Spark says after a minute only
    that it was shut down."""
    if _STANDALONE.fullmatch(master) is None or error is None or error.what not in _SHUT_DOWN:
        return error
    return PipelineError(
        f"What listens at {master} did not take this job within a minute.",
        fix="Check that it is a Spark master (not a worker), of PySpark's version.",
    )


def _address(text: str, master: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigError(
            f"{master!r} is no Spark master: {text!r} is not host:port.", fix="The port is usually 7077."
        )
    return host.strip("[]"), int(port)


def _refusal(host: str, port: int, timeout: float) -> str | None:
    """Why no Spark answers there; None when one does."""
    try:
        return handshake.handshake_error(host, port, timeout)
    except TimeoutError:
        return f"no answer within {timeout:g} s"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
