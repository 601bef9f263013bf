"""Open the Spark session: once per process, quiet, with Kafka's connector from local files."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import producer_core
from producer_core._internal import private_files
from producer_core.brokers.java import find_java
from producer_core.errors import MissingTool
from producer_core.pipeline.connector import fetch_connector, folder, named_jars, overriding
from producer_core.pipeline.spark_errors import spark_error
from producer_core.pipeline.spark_master import (
    check_master,
    default_master,
    is_local,
    master_start_error,
    workers,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MEMORY = "1g"
"""Heap of the driver's JVM, which takes all of it; on one machine the workers run in this JVM."""

_CLUSTER_SHUFFLE = 32
"""Partitions after a shuffle on a cluster; adaptive execution merges small ones."""

_LOG_BYTES = 1 << 20
"""Size of `spark.log` from which the next job starts a new file; the previous one is kept as `spark.log.1`."""

_LOW_MEMORY = {
    # Every hash table and every broadcast takes at least one page: 64 MB by default with one core and 2 GB.
    "spark.buffer.pageSize": "4m",
    # Spark keeps consumers and the records they fetched for five minutes, although a batch job never reuses them.
    "spark.kafka.consumer.cache.timeout": "20s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "20s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
}
"""Lower Spark's caches, because several jobs of one session must fit into its memory."""

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

_LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM optimizes code for long runs for minutes, on the cores that a job of many small steps needs. With these
options a fleet's lag in the first minute fell to a fifth (measured on two busy cores)."""

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
"""Writes each checkpoint file beside its place and renames it, as Spark's default does, but takes 0.03 s a
micro-batch instead of 0.12 s (measured on two busy cores). Our checkpoints are on local file systems, where a rename
is atomic."""


def open_session(
    *,
    name: str,
    master: str | None = None,
    jars: Sequence[Path] = (),
    verbose: bool = False,
    driver_memory: str = DEFAULT_MEMORY,
    options: Mapping[str, str] | None = None,
    light: bool = False,
    apart: bool = False,
) -> SparkSession:
    """Open a session whose JVM logs to a file beside the connector's jars, or to the terminal with `verbose`.

    `jars` replaces the fetched connector (for machines without a network); `options` are Spark's own settings and
    override ours. `light` is for a job of many small steps that does little work in the JVM. Under `spark-submit` the
    session is the submitted one, with its settings. With `apart` the JVM works in the connector's folder instead of
    the current one, because Spark 4.0 creates a folder `artifacts` in its working directory and fails where it may
    not; Spark then resolves relative paths against that folder. Driver memory, `light` and `apart` apply only to the
    first session of a process.
    """
    import_spark()
    from pyspark.sql import SparkSession

    _quiet_python(verbose)
    builder = SparkSession.builder.appName(name)
    if submitted():
        for key, value in {"spark.sql.session.timeZone": "UTC", **(options or {})}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    chosen = master or default_master()
    check_tools(chosen)
    _set_java_home()
    found = named_jars(jars) or fetch_connector()
    settings = {
        **_settings(chosen, driver_memory, found, verbose=verbose, light=light, apart=apart),
        **(options or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with nullcontext() if verbose else _stderr_to(folder() / "spark.log", name):
            return builder.master(chosen).getOrCreate()
    except Exception as error:  # py4j and PySpark raise many types
        raise master_start_error(chosen, spark_error(error)) or error from error


def submitted() -> bool:
    """Return whether `spark-submit` started this process and thereby set master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_tools(master: str | None = None, jars: Sequence[Path] = ()) -> None:
    """Check PySpark, Java, the master and the jars; raise a typed error with its fix.

    This takes seconds at most and starts nothing.
    """
    import_spark()
    if submitted():
        return
    find_java("Apache Spark")
    check_master(master or default_master())
    named_jars(jars)


def import_spark() -> None:
    """Import PySpark, or raise MissingTool. Workers use this Python unless an environment variable names another."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingTool("PySpark is not installed.", fix="pip install 'producer-core[spark]'") from error
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)


def _settings(
    master: str, memory: str, jars: Sequence[Path], *, verbose: bool, light: bool, apart: bool = False
) -> dict[str, Any]:
    import pyspark

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(workers(master) or _CLUSTER_SHUFFLE),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": memory,
        "spark.speculation": "false",  # two attempts at one slice would fence each other
        "spark.jars": ",".join(str(jar.absolute()) for jar in jars),
        "spark.python.worker.faulthandler.enabled": "true",
        **_LOW_MEMORY,
    }
    if _on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # the same code as the driver's
            "spark.executorEnv.PYTHONPATH": str(Path(producer_core.__file__).parents[1]),
        }
    if master.startswith("local-cluster"):  # each of its workers is a separate JVM
        settings |= {"spark.executor.memory": f"{_megabytes(master)}m", "spark.task.maxFailures": "4"}
    if is_local(master) and (first := overriding(jars)):
        settings["spark.driver.extraClassPath"] = os.pathsep.join(str(jar.absolute()) for jar in first)
    driver = [f"-Duser.dir={folder()}"] if apart else []
    if light:
        driver.append(_LIGHT)
        if pyspark.__version__.startswith("4.0."):  # later versions have the class under another name
            settings["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINT_FILES
    if not verbose:
        properties = folder() / "log4j2.properties"
        if not properties.exists() or properties.read_text() != _LOG4J:  # another job may be reading it
            private_files.write(properties, _LOG4J)
        quiet = f"-Dlog4j2.configurationFile=file:{properties}"
        driver.append(quiet)
        if master.startswith("local-cluster"):
            settings["spark.executor.extraJavaOptions"] = quiet
    if driver:
        settings["spark.driver.extraJavaOptions"] = " ".join(driver)
    return settings


def _on_this_machine(master: str) -> bool:
    return is_local(master) or re.match(r"spark://(?:127\.0\.0\.1|localhost|\[::1\]):", master) is not None


def _megabytes(master: str) -> int:
    """Return a worker's memory from `local-cluster[n,cores,memory]`; its executor gets all of it."""
    return int(master.rpartition(",")[2].rstrip("] "))


def _set_java_home() -> None:
    """Set JAVA_HOME to the Java that was found: Spark's launcher would use JAVA_HOME's, even when it is too old."""
    found = Path(find_java("Apache Spark").program).resolve()
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").resolve() != found:
        os.environ["JAVA_HOME"] = str(found.parents[1])


def _quiet_python(verbose: bool) -> None:
    """Silence loggers of PySpark and py4j that repeat each exception on stderr, as a line of JSON or a traceback."""
    if not verbose:
        for name in ("SQLQueryContextLogger", "py4j"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_not_interrupt)


def _is_not_interrupt(record: logging.LogRecord) -> bool:
    """Return False for the traceback that py4j logs to the root logger after a Ctrl-C."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")


@contextmanager
def _stderr_to(path: Path, name: str) -> Iterator[None]:
    """Redirect file descriptor 2 to a file while the JVM starts; the JVM inherits it and keeps it.

    The file is appended to, below a header line with the job's name: it also holds the logs of earlier and concurrent
    jobs.
    """
    with suppress(FileNotFoundError):  # absent, or another job was faster
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))  # processes that have it open keep writing there
    keep, log = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, f"-- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, {name}, process {os.getpid()}\n".encode())
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(keep, 2)
        os.close(keep)
        os.close(log)
