"""The `dlq` commands that publish dead letters to a Kafka dead-letter topic and fetch them from one."""

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
    from producer_core.dlq import DeadLetterFilter, DeadLetters
    from producer_core.dlq.topics import FetchSummary, WrittenDialect
    from producer_core.producer.producer import ReliableKafkaProducer


@click.command(short_help="Publish dead letters to a Kafka dead-letter topic.")
@filter_options.filter_options
@click.option(
    "--to-topic",
    default="{topic}-dlt",
    show_default=True,
    metavar="TOPIC",
    help="Dead-letter topic; {topic} is replaced by the original topic.",
)
@click.option(
    "--dialect",
    type=click.Choice(["producer_core", "spring", "connect"]),
    default="producer_core",
    show_default=True,
    help="Add headers of Spring Kafka or Kafka Connect.",
)
@click.option("--again", is_flag=True, help="Include those already published to this topic.")
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
    dialect: WrittenDialect,
    again: bool,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Publish the selected dead letters to a dead-letter topic for other consumers.

    \b
      producer-core dlq publish --topic orders -b broker1:9092
      producer-core dlq publish --to-topic all-dead --dialect spring --yes -b broker1:9092

    Key and value are published unchanged; the headers dlq.* describe the failure. The dead letters stay in the store
    until they are replayed or archived. Those already published to the same topic are skipped. After a crash or Ctrl-C,
    the same command resumes, and searches the topic for records whose outcome is uncertain. The topic must exist and
    must not be compacted.

    Exit codes: 0 all published, 1 some not published, 2 the command could not run, 130 stopped by Ctrl-C.
    """
    from producer_core.dlq import DeadLetters, topics
    from producer_core.store import Store

    store, where = Store.open(store_path, create=False), filter_options.chosen(given)
    dead = DeadLetters(store)
    number = dead.count(where)
    if number:
        found = filter_options.summary(dead, where, number)
        options.confirm(f"Publish {found} to {_target(to_topic, dead, where)}?", yes)
    address, chosen = options.client_settings(servers, settings, config_file)
    with _stopping() as stop, progress_bar.counter("Published") as report:
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
            progress=report,
        )
    output.emit(dataclasses.asdict(done)) if as_json else output.say(done.text)
    ctx.exit(INTERRUPTED if stop.is_set() and done.left else int(done.failed + done.left > 0))


def _target(to_topic: str, dead: DeadLetters, where: DeadLetterFilter) -> str:
    if "{topic}" not in to_topic:
        return to_topic
    topics = dead.count_by(where, "topic")
    return filter_options.named_topics([to_topic.replace("{topic}", topic) for topic in topics])


def _publishing_producer(servers: str, settings: Mapping[str, Any]) -> ReliableKafkaProducer:
    """Return a producer without a store, because the command itself reports unpublished dead letters."""
    from producer_core.producer.producer import ReliableKafkaProducer

    return ReliableKafkaProducer(servers, settings, store=None, run_replays=False)


@click.command(short_help="Fetch dead letters from a Kafka dead-letter topic.")
@click.argument("topic")
@click.option(
    "--since", type=options.TimestampType(), help="Records since this time: 2h (ago), or 2026-01-31T12:00."
)
@click.option(
    "--original-topic",
    metavar="TOPIC",
    help="Original topic of records whose headers do not name it.",
)
@click.option("--again", is_flag=True, help="Read the topic from its start, not from the last position.")
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
    """Fetch the records of a dead-letter topic into the store, as dead letters that can be replayed.

    \b
      producer-core dlq fetch orders-dlt -b broker1:9092
      producer-core dlq fetch connect-errors --since 2d --original-topic orders

    The command reads the headers of producer_core, Spring Kafka, Spring Cloud Stream, Kafka Connect, Kafka Streams,
    share groups and SmallRye. It only reads the topic, up to its current end. A later fetch continues where the last
    one stopped; no record is fetched twice. If the records have none of these headers, the topic is probably not a
    dead-letter topic, and the command asks for confirmation, unless --yes is given. A record that a consumer could not
    process is still on its original topic; its verdict reflects that, and a replay writes a second copy. Without
    --original-topic, records whose headers do not name their topic cannot be replayed.

    Exit codes: 0 all records read, 1 some records left, 2 the command could not run, 130 stopped by Ctrl-C.
    """
    from producer_core.config import client_config
    from producer_core.dlq import topics

    config = client_config(*options.client_settings(servers, settings, config_file))
    topics.check_topic(config.settings, topic)  # before a store is created
    store = open_store.opened(store_path)

    def fetched(*, unmarked: bool) -> tuple[FetchSummary, bool]:
        with _stopping() as stop, progress_bar.counter("Fetched") as report:
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
                progress=report,
            )
            return done, stop.is_set()

    try:
        done, stopped = fetched(unmarked=yes)
    except topics.NotDeadLetters as error:
        if not sys.stdin.isatty():
            raise
        output.say(error.what, err=True)
        options.confirm(f"Fetch all records of {topic} as dead letters?", False)
        done, stopped = fetched(unmarked=True)
    output.emit(dataclasses.asdict(done)) if as_json else output.say(done.text)
    ctx.exit(INTERRUPTED if stopped and done.left else int(done.left > 0))


COMMANDS = (publish, fetch)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, so that the work in progress is stored. A second one ends it at once."""
    stop = threading.Event()

    def interrupt(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
