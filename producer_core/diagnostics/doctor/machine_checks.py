"""This machine, as the doctor judges it: versions, store, disk, clock, Redis, Java."""

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

_GIB = 1 << 30


def versions() -> Iterator[DoctorFinding]:
    """What is installed, for a report to others."""
    from confluent_kafka import libversion
    from confluent_kafka import version as client_version

    duckdb = import_module("duckdb").__version__
    client = client_version() if callable(client_version) else client_version
    text = (
        f"producer-core {__version__}, Python {platform.python_version()}, confluent-kafka {client}, "
        f"librdkafka {libversion()[0]}, DuckDB {duckdb}, {platform.system()} {platform.machine()}."
    )
    yield DoctorFinding("versions", "ok", text)


def check_store(path: Path | str | None, now: float) -> Iterator[DoctorFinding]:
    """Whether the store opens, may be written to, and has room."""
    from producer_core.dlq import DeadLetterFilter, DeadLetters
    from producer_core.store import Store, default_path
    from producer_core.store.paths import check_writable

    place = Path(path) if path else default_path()
    if not place.exists():
        folder = next(parent for parent in place.parents if parent.exists())
        yield DoctorFinding("store", "ok", f"{place} is not there yet; the first producer makes it.")
        yield judge_disk(place, shutil.disk_usage(folder).free)
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
    yield DoctorFinding("store", "ok", f"{place} opens: {info.bytes / (1 << 20):.1f} MiB, {noun}.")
    if info.network_file_system:
        yield DoctorFinding(
            "store", "problem", f"It is on {info.network_file_system}, where locks are unsafe.",
            "Put it on a local disk (--store or PRODUCER_CORE_STORE)."
        )  # fmt: skip
    yield judge_disk(place, shutil.disk_usage(place.parent).free)
    yield judge_clock(max(age["seen_at"] or 0.0, float(age["window_start"] or 0)), now)


def judge_disk(place: Path, free: int) -> DoctorFinding:
    """Whether the store's disk has room."""
    text = f"{free / _GIB:.1f} GiB free where {place.name} is."
    if free < _GIB // 4:
        return DoctorFinding(
            "disk", "problem", text, "Free some space: a full disk stops producing when dead letters pile up."
        )
    return DoctorFinding(
        "disk",
        "warning" if free < 2 * _GIB else "ok",
        text,
        "Free some space soon." if free < 2 * _GIB else "",
    )


def judge_clock(latest: float, now: float) -> DoctorFinding:
    """Whether our clock stands behind what others wrote."""
    ahead = latest - now
    if ahead > 5:
        return DoctorFinding(
            "clock", "warning", f"The store has data from {ahead:.0f} s in the future: this clock, or that of a "
            "producer, is wrong.", "Synchronise the clocks (timedatectl, chrony)."
        )  # fmt: skip
    return DoctorFinding("clock", "ok", "Nothing in the store is from the future.")


def java(version: int | None) -> DoctorFinding:
    """Java is needed for Spark and for a broker of our own only."""
    if version is None:
        return DoctorFinding(
            "java", "warning", "No Java runtime: the pipeline and `broker start` need one, sending does not.",
            "Install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless)."
        )  # fmt: skip
    if version < 17:
        return DoctorFinding(
            "java", "warning", f"Java {version}; the pipeline and `broker start` need 17.", "Install Java 17."
        )
    return DoctorFinding("java", "ok", f"Java {version}.")


def java_version() -> int | None:
    program = shutil.which("java")
    if program is None:
        return None
    try:
        said = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else None


def check_redis(url: str | None) -> Iterator[DoctorFinding]:
    if url is None:
        yield DoctorFinding(
            "redis", "ok", "Not asked for; --redis-url URL checks it. Without, de-duplication is per process."
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


def ping(ask: Callable[[], Mapping[str, Any]], failure: type[Exception]) -> DoctorFinding:
    """Whether Redis answers."""
    try:
        return DoctorFinding("redis", "ok", f"Redis {ask().get('redis_version', '?')} answers.")
    except (failure, ValueError, OSError) as error:
        return DoctorFinding(
            "redis", "problem", f"Redis does not answer: {error}.", "Start it, or check the address."
        )
