"""Spark's Kafka connector: jars named by the caller, or resolved once and kept in the user's cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from producer_core._internal.home_folder import own_folder
from producer_core.brokers import maven
from producer_core.errors import ConfigError, MissingTool

_REQUIRED = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
FIXED = {
    "kafka-clients": ("org.apache.kafka", "3.9.2"),
    "lz4-java": ("at.yawk.lz4", "1.11.1"),
}
"""Jars with known advisories in the versions that the connector depends on, and the versions that fix them: kafka-clients
before 3.9.1 (CVE-2025-27817), before 3.9.2 (CVE-2026-35554); lz4-java before 1.8.1 (CVE-2025-12183), before 1.10.1
(CVE-2025-66566), before 1.11.1 (CVE-2026-59949). The group org.lz4 is no longer maintained; at.yawk.lz4 replaces it."""
_ZSTD = "com.github.luben:zstd-jni:1.5.6-4"
"""The version that kafka-clients 3.9.2 depends on; the connector excludes it from its own dependencies."""
_EXCLUDED = (
    "org.lz4:lz4-java",
    "org.scala-lang:scala-library",  # PySpark ships it and spark-tags
    "org.apache.spark:spark-tags_2.13",
)
TIMEOUT = 60.0
"""Seconds that a repository may send nothing."""


def coordinate() -> str:
    """Return the Maven coordinate of the connector for the installed PySpark."""
    import pyspark

    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def folder() -> Path:
    """Return the folder of the connector's jars and Spark's log: one per PySpark version, in the user's cache."""
    import pyspark

    return own_folder(maven.cache_folder() / f"spark-{pyspark.__version__}", "XDG_CACHE_HOME")


def named_jars(given: Sequence[Path]) -> list[Path]:
    """Return the jars of the files and folders in `given`; MissingTool when they are not the connector of this PySpark."""
    import pyspark

    jars: list[Path] = []
    for path in given:
        jars += sorted(path.glob("*.jar")) if path.is_dir() else [path]
    if missing := [str(jar) for jar in jars if not jar.exists()]:
        raise ConfigError(
            f"{missing[0]} in --jars does not exist.", fix="Specify jar files, or a folder of them."
        )
    if not given:
        return []
    names = " ".join(jar.name for jar in jars)
    if absent := [part for part in _REQUIRED if part not in names]:
        raise MissingTool(
            f"--jars does not include {absent[0]}.",
            fix=f"Spark's Kafka connector is {coordinate()} with its dependencies: {', '.join(_REQUIRED)}.",
        )
    if f"{_REQUIRED[0]}-{pyspark.__version__}.jar" not in names:
        raise MissingTool(
            f"The connector in --jars is not for the installed PySpark {pyspark.__version__}.",
            fix=f"It must be {coordinate()}.",
        )
    return jars


def fetched() -> bool:
    """Return whether the cache holds all jars; a cache cleaner may have removed some."""
    return maven.is_complete(_target())


def fetch_connector(timeout: float = TIMEOUT) -> list[Path]:
    """Return the connector's jars from the cache; resolve them first when they are not there.

    Raises MissingTool when the jars cannot be resolved, or when a repository sends nothing for `timeout` seconds.
    """
    target = _target()
    try:
        maven.fetch_jars(target, _coordinates(), exclusions=_EXCLUDED, extra="spark", timeout=timeout)
    except maven.RESOLVE_ERRORS as error:
        raise MissingTool(
            f"Spark's Kafka connector {coordinate()} could not be fetched: {error}.",
            fix="Check the network, or copy the jars from a machine that has them "
            "(producer-core pipeline fetch prints their folder) and specify their folder with --jars.",
        ) from error
    return sorted(target.glob("*.jar"))


def overriding(jars: Sequence[Path]) -> list[Path]:
    """Return the jars that must come before PySpark's own on the class path: PySpark ships an lz4-java."""
    return [jar for jar in jars if "lz4-java" in jar.name]


def _target() -> Path:
    """Return the folder of the jars; its name has the fixed versions, so that jars of other versions are not used."""
    return folder() / "-".join(["connector", *(version for _, version in FIXED.values())])


def _coordinates() -> list[str]:
    fixed = [f"{group}:{name}:{version}" for name, (group, version) in FIXED.items()]
    return [coordinate(), *fixed, _ZSTD]
