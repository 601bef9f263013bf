"""The options that all Spark jobs share, and the Spark session that they configure."""

from __future__ import annotations

import functools
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from producer_core.cli import output
from producer_core.cli.options import SettingType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class SparkChoice:
    """Where and how Spark runs. None selects the default for this machine and the job."""

    master: str | None = None
    jars: tuple[Path, ...] = ()
    driver_memory: str | None = None
    verbose: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Check Java, PySpark, the master and the connector, and raise typed errors within seconds.

        A missing connector is fetched here, so that a machine without network access fails early.
        """
        from producer_core.pipeline import connector, session

        session.check_tools(self.master, self.jars)
        if not (self.jars or session.submitted() or connector.fetched()):
            output.say("Fetching Spark's Kafka connector (only the first time) …", err=True)
            connector.fetch_connector()

    @contextmanager
    def session(self, name: str, *, driver_memory: str = "1g", light: bool = False) -> Iterator[SparkSession]:
        """Yield a Spark session; `light` suits jobs with many small steps.

        `driver_memory` is the job's default for --driver-memory. Known Spark errors are raised as typed errors with a fix.
        """
        from producer_core.pipeline import session
        from producer_core.pipeline.spark_errors import explained, spark_error
        from producer_core.pipeline.spark_master import default_master

        where = (
            "Spark as set by spark-submit"
            if session.submitted()
            else f"Spark on {self.master or default_master()}"
        )
        output.say(f"Starting {where} …", err=True)
        with _ctrl_c() as interrupted:
            opened = None
            try:
                opened = session.open_session(
                    name=f"producer-core {name}", master=self.master, jars=self.jars, verbose=self.verbose,
                    driver_memory=self.driver_memory or driver_memory, options=self.conf, light=light, apart=True,
                )  # fmt: skip
                _interruptible()
                yield opened
            except click.exceptions.Exit:  # the command has already printed its result
                raise
            except Exception as error:  # errors from Spark and py4j have no common base class
                typed = spark_error(error) if self.verbose else explained(error)
                if typed is not error and interrupted():
                    raise KeyboardInterrupt from error
                if typed is None or typed is error:
                    raise
                raise typed from error
            finally:
                if opened is not None:
                    opened.stop()


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed, whichever signal handler is installed.

    PySpark's handler calls the JVM, which fails during another call.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield (
            lambda: bool(select.select([read_end], [], [], 0)[0]) and signal.SIGINT in os.read(read_end, 100)
        )
    finally:
        signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)


def _interruptible() -> None:
    """Replace PySpark's Ctrl-C handler, so that Ctrl-C raises only KeyboardInterrupt."""
    if getattr(signal.getsignal(signal.SIGINT), "__module__", "").startswith("pyspark"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def spark_options(command: F) -> F:
    """Add --master, --jars, --driver-memory, --conf and --verbose, passed as one SparkChoice named `spark`."""

    @functools.wraps(command)
    def with_choice(
        *args: Any,
        master: str | None,
        jars: tuple[Path, ...],
        driver_memory: str | None,
        verbose: bool,
        conf: tuple[tuple[str, str], ...],
        **others: Any,
    ) -> Any:
        return command(*args, spark=SparkChoice(master, jars, driver_memory, verbose, dict(conf)), **others)

    wrapped: Any = with_choice
    for option in (
        click.option("--verbose", is_flag=True, help="Show Spark's log."),
        click.option(
            "--conf",
            type=SettingType(),
            multiple=True,
            help="Spark setting, spark.…=…; repeatable.",
        ),
        click.option("--driver-memory", metavar="SIZE", help="Memory of Spark's driver, for example 2g."),
        click.option(
            "--jars",
            multiple=True,
            type=click.Path(path_type=Path, exists=True),
            help="Jars of the Kafka connector, or their folder; for machines without network access.",
        ),
        click.option(
            "--master",
            metavar="MASTER",
            help="Spark master: local[2,4], spark://host:7077, yarn, …; default: all local cores.",
        ),
    ):
        wrapped = option(wrapped)
    typed: F = wrapped
    return typed
