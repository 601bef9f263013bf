"""Spark's Kafka connector: its jars, named by the caller, or resolved once and kept in the user's cache."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from producer_core._internal import private_files
from producer_core.errors import ConfigError, MissingTool

_NEEDED = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
FIXED = {
    "kafka-clients": ("org.apache.kafka", "3.9.2"),
    "lz4-java": ("at.yawk.lz4", "1.11.1"),
}
"""Jars with known advisories in the versions that the connector asks for, and the versions that fix them: kafka-clients
before 3.9.1 (CVE-2025-27817), before 3.9.2 (CVE-2026-35554); lz4-java before 1.8.1 (CVE-2025-12183), before 1.10.1
(CVE-2025-66566), before 1.11.1 (CVE-2026-59949). The group org.lz4 is no longer maintained; at.yawk.lz4 replaces it."""
_REPLACED = "org.lz4:lz4-java"
SILENCE = 60.0
"""Seconds that the resolver may go without a file or a line once it began to ask repositories."""
_START = 60.0
"""Seconds that its JVM may take to begin, on a busy machine."""
_FIX = (
    "Check the network, or copy the jars from a machine that has them "
    "(producer-core pipeline fetch lists them) and name their folder with --jars."
)

_RESOLVE = """
import sys
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
asked = {"spark.jars.packages": sys.argv[1], "spark.jars.ivy": sys.argv[2], "spark.jars.excludes": sys.argv[3]}
launch_gateway(SparkConf(loadDefaults=False).setMaster("local[1]").setAll(asked.items())).shutdown()
"""
"""spark-submit resolves packages before it starts anything else: no session is needed, which took a minute on a busy machine."""


def coordinate() -> str:
    """What Maven calls the connector of the installed PySpark."""
    import pyspark

    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def folder() -> Path:
    """Where the connector's jars and Spark's log are: by version, in the user's cache."""
    import pyspark

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = cache / "producer-core" / f"spark-{pyspark.__version__}"
    private_files.own_folder(found)
    return found


def named_jars(given: Sequence[Path]) -> list[Path]:
    """The jars of `given` files and folders; MissingTool when they are not the connector of this PySpark."""
    import pyspark

    jars: list[Path] = []
    for path in given:
        jars += sorted(path.glob("*.jar")) if path.is_dir() else [path]
    if missing := [str(jar) for jar in jars if not jar.exists()]:
        raise ConfigError(f"{missing[0]} of --jars is not there.", fix="Name jar files, or a folder of them.")
    if not given:
        return []
    names = " ".join(jar.name for jar in jars)
    if absent := [part for part in _NEEDED if part not in names]:
        raise MissingTool(
            f"Among the {len(jars)} jars of --jars there is no {absent[0]}.",
            fix=f"Spark's Kafka connector is {coordinate()} with all it needs: {', '.join(_NEEDED)}.",
        )
    if f"{_NEEDED[0]}-{pyspark.__version__}.jar" not in names:
        raise MissingTool(
            f"The connector of --jars is not for the installed PySpark {pyspark.__version__}.",
            fix=f"It must be {coordinate()}.",
        )
    return jars


def fetched() -> bool:
    """Whether the jars are in the cache: somebody may have cleaned it."""
    listed = _list()
    return listed.exists() and all(Path(line).exists() for line in listed.read_text().splitlines())


def fetch_connector(timeout: float = SILENCE) -> list[Path]:
    """Return the jars: from the cache, else resolved by Spark's own resolver.

    Raises MissingTool when no repository sends anything for `timeout` seconds.
    """
    ivy, done = folder() / f"ivy-{_pins()}", _list()
    if not fetched():
        _resolve(ivy, timeout)
        jars = sorted((ivy / "jars").glob("*.jar"))
        draft = done.with_suffix(f".{os.getpid()}")
        private_files.write(draft, "\n".join(str(jar) for jar in jars))
        draft.replace(done)
    return [Path(line) for line in done.read_text().splitlines()]


def overriding(jars: Sequence[Path]) -> list[Path]:
    """Return the jars that must come before those that PySpark ships: PySpark has an lz4-java of its own."""
    return [jar for jar in jars if "lz4-java" in jar.name]


def _pins() -> str:
    """Return the fixed versions as a name, so that a cache of other versions is not used."""
    return "-".join(version for _, version in FIXED.values())


def _list() -> Path:
    return folder() / f"connector-{_pins()}.txt"


def _packages() -> str:
    fixed = [f"{group}:{name}:{version}" for name, (group, version) in FIXED.items()]
    return ",".join([coordinate(), *fixed])


def _resolve(ivy: Path, timeout: float) -> None:
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        resolver = subprocess.Popen(
            [sys.executable, "-c", _RESOLVE, _packages(), str(ivy), _REPLACED],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            silent = _watched(resolver, ivy, log, timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(resolver.pid, signal.SIGKILL)  # its JVM asks on for minutes
            resolver.wait()
        if silent or resolver.returncode:
            why = f"no repository answered within {timeout:g} s" if silent else _last_line(log)
            raise MissingTool(
                f"Spark's Kafka connector {coordinate()} could not be fetched: {why}.", fix=_FIX
            )


def _watched(resolver: subprocess.Popen[bytes], ivy: Path, log: IO[str], timeout: float) -> bool:
    """Wait for its end; True when nothing came for too long, which is what a wall around a network looks like."""
    seen, since, began = (0, 0), time.monotonic(), False
    while True:
        try:
            resolver.wait(0.3)
            return False
        except subprocess.TimeoutExpired:
            pass
        now = os.fstat(log.fileno()).st_size, _bytes(ivy)
        if now != seen:
            seen, since, began = now, time.monotonic(), began or now[0] > 0
        if time.monotonic() - since > (timeout if began else max(timeout, _START)):
            return True


def _bytes(place: Path) -> int:
    """What is in a folder whose files come and go meanwhile."""
    total = 0
    for file in place.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size
    return total


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    telling = [line for line in lines if "not found" in line or "Exception" in line]
    return (telling or lines or ["no output"])[-1].rstrip(". ")[:300]
