"""The Spark session: made once, at the edge, quiet, with Kafka's connector from local files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core.brokers.java import find_java
from producer_core.errors import MissingTool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[2,4]"
"""Two workers, four tries a task: plain `local[2]` fails a job at its first lost worker."""

_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.e.ref = c
appender.c.type = Console
appender.c.name = c
appender.c.target = SYSTEM_ERR
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.kc.name = org.apache.kafka.clients
logger.kc.level = off
logger.pg.name = org.apache.spark.api.python.PythonGatewayServer
logger.pg.level = error
"""


def open_session(
    *, name: str, master: str = DEFAULT_MASTER, jars: Sequence[Path] = (), verbose: bool = False
) -> SparkSession:
    """A session whose JVM logs to a file beside the connector's jars, or to the terminal with `verbose`.

    `jars` replaces the fetched connector (for machines without a network).
    """
    check_tools()
    found = [str(jar) for jar in jars] or [str(jar) for jar in fetch_connector()]
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    properties = folder() / "log4j2.properties"
    properties.write_text(_LOG4J)
    builder = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.jars", ",".join(found))
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    if verbose:
        return builder.getOrCreate()
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{properties}")
    with _stderr_to(folder() / "spark.log"):
        return builder.getOrCreate()


def check_tools() -> None:
    """MissingTool, with the line that installs it, when Java or PySpark is not there."""
    find_java()
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingTool("PySpark is not installed.", fix="pip install 'producer-core[spark]'") from error


def fetch_connector() -> list[Path]:
    """The jars of Spark's Kafka connector, resolved once by Spark's own resolver and kept in the user's cache."""
    import pyspark

    ivy, done = folder() / "ivy", folder() / "connector.txt"
    if not _all_there(done):
        coordinate = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        result = subprocess.run(
            [sys.executable, "-c", _RESOLVE, coordinate, str(ivy)],
            capture_output=True,
            text=True,
            timeout=600,
        )
        jars = sorted((ivy / "jars").glob("*.jar"))
        if result.returncode or not jars:
            last = (result.stderr.strip().splitlines() or ["no output"])[-1]
            raise MissingTool(
                f"Spark's Kafka connector {coordinate} could not be fetched: {last}",
                fix="Check the network, or name the jars yourself with --jars.",
            )
        done.write_text("\n".join(str(jar) for jar in jars))
    return [Path(line) for line in done.read_text().splitlines()]


def _all_there(listed: Path) -> bool:
    """Whether the list exists and every jar on it: somebody may have cleaned the cache."""
    return listed.exists() and all(Path(line).exists() for line in listed.read_text().splitlines())


_RESOLVE = """
import os, sys
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
from pyspark.sql import SparkSession
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1") \\
    .config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2]).getOrCreate().stop()
"""


def folder() -> Path:
    """Where the connector's jars and Spark's log are: by version, in the user's cache."""
    import pyspark

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = cache / "producer-core" / f"spark-{pyspark.__version__}"
    found.mkdir(parents=True, exist_ok=True)
    return found


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """The JVM inherits file descriptor 2 when it is launched, so its stderr goes to the file for good."""
    keep, log = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(keep, 2)
        os.close(keep)
        os.close(log)
