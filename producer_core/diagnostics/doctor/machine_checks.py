"""The checks of this machine: versions, store, disk, clock, Redis and Java."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from producer_core import __version__
from producer_core.diagnostics.doctor.finding import DoctorFinding, of_error
from producer_core.errors import StoreError
from producer_core.native.library import unavailable_reason

_GIB = 1 << 30


def versions() -> Iterator[DoctorFinding]:
    """Report the installed versions, for bug reports."""
    from confluent_kafka import libversion
    from confluent_kafka import version as client_version

    duckdb = import_module("duckdb").__version__
    client = client_version() if callable(client_version) else client_version
    text = (
        f"producer-core {__version__}, Python {platform.python_version()}, confluent-kafka {client}, "
        f"librdkafka {libversion()[0]}, DuckDB {duckdb}, {platform.system()} {platform.machine()}."
    )
    yield DoctorFinding("versions", "ok", text)
    yield check_core()


def check_core() -> DoctorFinding:
    """Report whether `core="native"` can be used. Everything runs without it, so its absence is no problem."""
    reason = unavailable_reason()
    if reason is None:
        return DoctorFinding("native core", "ok", 'The native core is installed; core="native" uses it.')
    return DoctorFinding(
        "native core", "ok", f'The native core cannot be used; core="native" runs in Python. {reason}'
    )


def check_store(path: Path | str | None, now: float) -> Iterator[DoctorFinding]:
    """Check whether the store opens, can be written, and has disk space."""
    from producer_core.dlq import DeadLetterFilter, DeadLetters
    from producer_core.store import Store, default_path
    from producer_core.store.paths import check_writable

    place = Path(path) if path else default_path()
    if not place.exists():
        folder = next(parent for parent in place.parents if parent.exists())
        yield DoctorFinding("store", "ok", f"{place} does not exist yet; the first producer creates it.")
        yield check_disk(place, shutil.disk_usage(folder).free)
        return
    try:
        store = Store.open(place, create=False)
        check_writable(store.path)
        info, (age,) = store.info(), store.rows("data_age")
    except StoreError as error:
        yield of_error("store", error)
        return
    dead = DeadLetters(store).count(DeadLetterFilter())
    noun = f"{dead:,} dead letter{'' if dead == 1 else 's'}"
    yield DoctorFinding("store", "ok", f"{place} can be opened: {info.bytes / (1 << 20):.1f} MiB, {noun}.")
    if info.network_file_system:
        yield DoctorFinding(
            "store", "problem", f"The store is on {info.network_file_system}, where file locks are unsafe.",
            "Move it to a local disk (--store or PRODUCER_CORE_STORE)."
        )  # fmt: skip
    yield check_disk(place, shutil.disk_usage(place.parent).free)
    yield check_clock(max(age["seen_at"] or 0.0, float(age["window_start"] or 0)), now)


def check_locally(store: Path, now: float) -> Iterator[DoctorFinding]:
    """Check this machine and its store, without brokers: at the export of an incident, these may be gone."""
    yield from versions()
    yield from check_store(store, now)


def check_disk(place: Path, free: int) -> DoctorFinding:
    """Check the free space on the disk of the store."""
    text = f"{free / _GIB:.1f} GiB free on the disk of {place.name}."
    if free < _GIB // 4:
        return DoctorFinding(
            "disk",
            "problem",
            text,
            "Free up disk space: on a full disk, sending stops when dead letters cannot be stored.",
        )
    return DoctorFinding(
        "disk",
        "warning" if free < 2 * _GIB else "ok",
        text,
        "Free up disk space soon." if free < 2 * _GIB else "",
    )


def check_clock(latest: float, now: float) -> DoctorFinding:
    """Check whether the clock of this machine is behind the data in the store."""
    ahead = latest - now
    if ahead > 5:
        return DoctorFinding(
            "clock", "warning", f"The store contains data from {ahead:.0f} s in the future: the clock of this machine "
            "or of a producer is wrong.", "Synchronize the clocks (timedatectl, chrony)."
        )  # fmt: skip
    return DoctorFinding("clock", "ok", "The store contains no data from the future.")


def check_java(version: int | None) -> DoctorFinding:
    """Check the Java version, which only Spark and `broker start` need."""
    if version is None:
        return DoctorFinding(
            "java", "warning", "No Java runtime: the pipeline and `broker start` need one; sending does not.",
            "Install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless)."
        )  # fmt: skip
    if version < 17:
        return DoctorFinding(
            "java",
            "warning",
            f"Java {version}: the pipeline and `broker start` need 17 or newer.",
            "Install Java 17.",
        )
    return DoctorFinding("java", "ok", f"Java {version}.")


def java_version() -> int | None:
    program = shutil.which("java")
    if program is None:
        return None
    try:
        output = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', output)
    return int(found[1]) if found else None


def check_redis(url: str | None) -> Iterator[DoctorFinding]:
    if url is None:
        yield DoctorFinding(
            "redis",
            "ok",
            "Not checked; --redis-url URL checks it. Without Redis, deduplication is per process.",
        )
        return
    try:
        redis = import_module("redis")
    except ModuleNotFoundError:
        yield DoctorFinding(
            "redis", "problem", "The Python package redis is missing.", "pip install 'producer-core[redis]'"
        )
        return
    yield ping(
        lambda: redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3).info("server"),
        redis.RedisError,
    )


def ping(server_info: Callable[[], Mapping[str, Any]], failure: type[Exception]) -> DoctorFinding:
    """Check whether Redis responds."""
    try:
        return DoctorFinding("redis", "ok", f"Redis {server_info().get('redis_version', '?')} responds.")
    except (failure, ValueError, OSError) as error:
        return DoctorFinding(
            "redis", "problem", f"Redis is not responding: {error}.", "Start it, or check its URL."
        )
