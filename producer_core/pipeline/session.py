"""The Spark session: made once, at the edge, quiet, with Kafka's connector from local files."""

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
"""Of the JVM that drives a job; it takes what it is given. On one machine the workers live in it."""

_SHUFFLE_ELSEWHERE = 32
"""Partitions after a shuffle on a cluster; adaptive execution makes fewer where there is little."""

_LOG_BYTES = 1 << 20
"""Of `spark.log`, beyond which the next job begins a new one; the one before is kept as `spark.log.1`."""

_LITTLE_HELD = {
    # A page is the least that every small hash table and every broadcast takes, 64 MB each with one core and 2 GB.
    "spark.buffer.pageSize": "4m",
    # Clients of Kafka are kept with what they fetched for five minutes, though a batch job never asks them again.
    "spark.kafka.consumer.cache.timeout": "20s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "20s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
}
"""What a job holds that it needs no more, made small: several jobs of one session must fit into its memory."""

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
"""A JVM that makes many small steps compiles them for the long run, for minutes, on the cores that the job needs: with
this a fleet's lag in the first minute was a fifth (measured on two busy cores)."""

_NOTES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
"""Writes a checkpoint's files as the usual one does, each beside its place and renamed: 0.03 s a micro-batch where that
took 0.12 (measured on two busy cores). On a file system of this machine, as ours always are, a rename is whole or not at all."""


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
    """A session whose JVM logs to a file beside the connector's jars, or to the terminal with `verbose`.

    `jars` replaces the fetched connector (for machines without a network), `options` are Spark's own settings and
    win over ours. `light` is for a job of many small steps, whose work is not the JVM's. Under `spark-submit` the
    session is the submitted one, as it was asked for there. With `apart` the JVM works in the connector's folder, not
    in the current one: Spark 4.0 makes a folder «artifacts» where it works, and fails where it may not; relative paths
    that Spark is given are then looked for there. Driver memory, `light` and `apart` count only for the first session of
    a process.
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
    _own_java()
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
    except Exception as error:  # py4j and PySpark raise what they like
        raise master_start_error(chosen, spark_error(error)) or error from error


def submitted() -> bool:
    """Whether `spark-submit` started this process, so that master, memory and jars are chosen already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_tools(master: str | None = None, jars: Sequence[Path] = ()) -> None:
    """A typed error, with the line that helps, when PySpark, Java, the master or the jars are not what is needed.

    Seconds at most, and nothing is started.
    """
    import_spark()
    if submitted():
        return
    find_java("Apache Spark")
    check_master(master or default_master())
    named_jars(jars)


def import_spark() -> None:
    """MissingTool when PySpark is not installed. Workers get this Python unless somebody chose another."""
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
        "spark.sql.shuffle.partitions": str(workers(master) or _SHUFFLE_ELSEWHERE),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": memory,
        "spark.speculation": "false",  # two attempts at one slice would only fence each other
        "spark.jars": ",".join(str(jar.absolute()) for jar in jars),
        "spark.python.worker.faulthandler.enabled": "true",
        **_LITTLE_HELD,
    }
    if _on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": str(
                Path(producer_core.__file__).parents[1]
            ),  # the very same code
        }
    if master.startswith("local-cluster"):  # each worker of it is a JVM of its own
        settings |= {"spark.executor.memory": f"{_megabytes(master)}m", "spark.task.maxFailures": "4"}
    if is_local(master) and (first := overriding(jars)):
        settings["spark.driver.extraClassPath"] = os.pathsep.join(str(jar.absolute()) for jar in first)
    driver = [f"-Duser.dir={folder()}"] if apart else []
    if light:
        driver.append(_LIGHT)
        if pyspark.__version__.startswith("4.0."):  # later ones fail at the name, for they have it elsewhere
            settings["spark.sql.streaming.checkpointFileManagerClass"] = _NOTES
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
    """What a worker of `local-cluster[n,cores,memory]` has, and so its executor."""
    return int(master.rpartition(",")[2].rstrip("] "))


def _own_java() -> None:
    """Spark's launcher takes JAVA_HOME's java whatever its age; let it be the one that was found."""
    found = Path(find_java("Apache Spark").program).resolve()
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").resolve() != found:
        os.environ["JAVA_HOME"] = str(found.parents[1])


def _quiet_python(verbose: bool) -> None:
    """PySpark 4 writes each analysis error to stderr as a line of JSON, and py4j a traceback, beside raising it."""
    if not verbose:
        for name in ("SQLQueryContextLogger", "py4j"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_no_interrupt)


def _no_interrupt(record: logging.LogRecord) -> bool:
    """What py4j says to the root logger of a Ctrl-C, with its traceback."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")


@contextmanager
def _stderr_to(path: Path, name: str) -> Iterator[None]:
    """The JVM inherits file descriptor 2 when it is launched, so its stderr goes to the file for good.

    Appended to, under a line that says whose it is: the jobs before may be asked about, and others write there now.
    """
    with suppress(FileNotFoundError):  # or another job was quicker
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))  # who has it open goes on there
    keep, log = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, f"-- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, {name}, process {os.getpid()}\n".encode())
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(keep, 2)
        os.close(keep)
        os.close(log)
