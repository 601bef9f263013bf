"""Options that every Spark job has, and the session they make."""

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
    """Where and how Spark shall run. None: the best for this machine and the job."""

    master: str | None = None
    jars: tuple[Path, ...] = ()
    driver_memory: str | None = None
    verbose: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Java, PySpark, the master and the connector, before anything is opened: typed errors within seconds.

        A connector that nobody fetched yet is fetched here, so that a machine without a network is told now.
        """
        from producer_core.pipeline import connector, session

        session.check_tools(self.master, self.jars)
        if not (self.jars or session.submitted() or connector.fetched()):
            output.say("Fetching Spark's Kafka connector, once …", err=True)
            connector.fetch_connector()

    @contextmanager
    def session(self, name: str, *, driver_memory: str = "1g", light: bool = False) -> Iterator[SparkSession]:
        """A session for the block; `driver_memory` is what the job needs, unless --driver-memory said otherwise, and
        `light` whether it makes many small steps.

        What Spark raises inside comes out as a typed error with a fix where it is known.
        """
        from producer_core.pipeline import session
        from producer_core.pipeline.spark_errors import explained, spark_error
        from producer_core.pipeline.spark_master import default_master

        where = (
            "the submitted Spark" if session.submitted() else f"Spark on {self.master or default_master()}"
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
            except click.exceptions.Exit:  # the command has said how it ended
                raise
            except Exception as error:  # Spark's and py4j's own have no common root
                told = spark_error(error) if self.verbose else explained(error)
                if told is not error and interrupted():
                    raise KeyboardInterrupt from error
                if told is None or told is error:
                    raise
                raise told from error
            finally:
                if opened is not None:
                    opened.stop()


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C came, whoever's handler it met: PySpark's asks the JVM in the middle of another question, and fails."""
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield lambda: bool(select.select([heard], [], [], 0)[0]) and signal.SIGINT in os.read(heard, 100)
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)


def _interruptible() -> None:
    """From here on it is KeyboardInterrupt alone."""
    if getattr(signal.getsignal(signal.SIGINT), "__module__", "").startswith("pyspark"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def spark_options(command: F) -> F:
    """`--master --jars --driver-memory --conf --verbose`, as one argument `spark`: a SparkChoice."""

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
        click.option("--verbose", is_flag=True, help="Show Spark's own log."),
        click.option(
            "--conf",
            type=SettingType(),
            multiple=True,
            help="One of Spark's own settings, spark.…=…; repeatable.",
        ),
        click.option("--driver-memory", metavar="SIZE", help="Memory of Spark's driver, for example 2g."),
        click.option(
            "--jars",
            multiple=True,
            type=click.Path(path_type=Path, exists=True),
            help="The Kafka connector's jars, or a folder of them, where they cannot be fetched.",
        ),
        click.option(
            "--master",
            metavar="MASTER",
            help="The Spark master: local[2,4], spark://host:7077, yarn, …; default: all cores of this machine.",
        ),
    ):
        wrapped = option(wrapped)
    typed: F = wrapped
    return typed
