"""The commands for dead letters on Kafka topics: publish them there, and fetch what others put there."""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import open_store, options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import INTERRUPTED
from producer_core.cli.send import progress_bar

if TYPE_CHECKING:
    from producer_core.dlq.topics import FetchSummary, Written
    from producer_core.producer.producer import ReliableKafkaProducer


@click.command(short_help="Publish dead letters to a Kafka dead-letter topic.")
@filter_options.filter_options
@click.option(
    "--to-topic",
    default="{topic}-dlt",
    show_default=True,
    metavar="TOPIC",
    help="The dead-letter topic; {topic} stands for the topic of each letter.",
)
@click.option(
    "--dialect",
    type=click.Choice(["producer_core", "spring", "connect"]),
    default="producer_core",
    show_default=True,
    help="Headers of Spring Kafka or Kafka Connect beside ours.",
)
@click.option("--again", is_flag=True, help="Those too that were published to the same topic before.")
@options.client_options
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def publish(
    ctx: click.Context,
    /,
    store_path: Path | None,
    to_topic: str,
    dialect: Written,
    again: bool,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Publish the dead letters that the selection matches to a dead-letter topic, for others to read.

    \b
      producer-core dlq publish --topic orders -b broker1:9092
      producer-core dlq publish --to-topic all-dead --dialect spring --yes -b broker1:9092

    Key and value go as they are, the story in headers `dlq.*`. They stay dead letters here: one leaves by its replay or
    an archive only. What was published to the same topic before is left out. Killed or stopped by Ctrl-C, the same
    command goes on, and looks on the topic for what it cannot know. The topic must exist, and not be compacted.

    Exit codes: 0 all are there, 1 some are not, 2 it could not be done, 130 stopped by Ctrl-C.
    """
    from producer_core.dlq import DeadLetters, topics
    from producer_core.store import Store

    store, where = Store.open(store_path, create=False), filter_options.chosen(given)
    dead = DeadLetters(store)
    number = dead.count(where)
    if number:
        options.confirm(f"Publish {filter_options.what(dead, where, number)} to {to_topic}?", yes)
    address, chosen = options.client_settings(servers, settings, config_file)
    with _stopping() as stop, progress_bar.counter("Published") as tell:
        done = topics.publish(
            store,
            where,
            to_topic,
            {**chosen, "bootstrap.servers": address},
            open_producer=_publishing_producer,
            who=options.current_user(),
            origin="cli",
            dialect=dialect,
            again=again,
            stopping=stop.is_set,
            progress=tell,
        )
    output.emit(dataclasses.asdict(done)) if as_json else output.say(done.text)
    ctx.exit(INTERRUPTED if stop.is_set() and done.left else int(done.failed + done.left > 0))


def _publishing_producer(servers: str, settings: Mapping[str, Any]) -> ReliableKafkaProducer:
    """Return a producer without a store: the command itself reports what it could not publish."""
    from producer_core.producer.producer import ReliableKafkaProducer

    return ReliableKafkaProducer(servers, settings, store=None, run_replays=False)


@click.command(short_help="Bring in what is on a Kafka dead-letter topic.")
@click.argument("topic")
@click.option(
    "--since", type=options.TimestampType(), help="Only records since then: 2h (ago), or 2026-01-31T12:00."
)
@click.option(
    "--original-topic",
    metavar="TOPIC",
    help="Where records belong whose headers do not say it; without it those cannot be replayed.",
)
@click.option("--again", is_flag=True, help="From the topic's start, not from where the last fetch ended.")
@options.client_options
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def fetch(
    ctx: click.Context,
    /,
    store_path: Path | None,
    topic: str,
    since: float | None,
    original_topic: str | None,
    again: bool,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Bring the records of a dead-letter topic in as dead letters, to be looked at and replayed.

    \b
      producer-core dlq fetch orders-dlt -b broker1:9092
      producer-core dlq fetch connect-errors --since 2d --original-topic orders

    Reads headers of producer_core, Spring Kafka, Spring Cloud Stream, Kafka Connect, Kafka Streams, share groups and
    SmallRye. The topic is only read, up to its end as it is now. A second fetch goes on where the last one ended, and
    nothing comes in twice. A topic whose records carry none of these headers is most likely an ordinary one: you are
    asked, unless --yes. What a consumer gave up is still on its own topic, and the verdict says so: replaying it
    writes a second copy.

    Exit codes: 0 all was read, 1 something is left, 2 it could not be done, 130 stopped by Ctrl-C.
    """
    from producer_core.config import client_config
    from producer_core.dlq import topics

    config = client_config(*options.client_settings(servers, settings, config_file))
    store = open_store.opened(store_path)

    def fetched(*, unmarked: bool) -> tuple[FetchSummary, bool]:
        with _stopping() as stop, progress_bar.counter("Fetched") as tell:
            done = topics.fetch(
                config.settings,
                topic,
                store,
                who=options.current_user(),
                origin="cli",
                since=since,
                original_topic=original_topic,
                again=again,
                unmarked=unmarked,
                stopping=stop.is_set,
                progress=tell,
            )
            return done, stop.is_set()

    try:
        done, stopped = fetched(unmarked=yes)
    except topics.NotDeadLetters as error:
        if not sys.stdin.isatty():
            raise
        output.say(error.what, err=True)
        options.confirm(f"Take all records of {topic} as dead letters?", False)
        done, stopped = fetched(unmarked=True)
    output.emit(dataclasses.asdict(done)) if as_json else output.say(done.text)
    ctx.exit(INTERRUPTED if stopped and done.left else int(done.left > 0))


COMMANDS = (publish, fetch)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C, so that what is on its way is written down; a second one ends it at once."""
    stop = threading.Event()

    def heard(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
