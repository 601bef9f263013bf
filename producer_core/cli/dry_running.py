"""A dry run as a person reads it: the number, the topics, the verdicts, and what to know before it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from producer_core.cli import show
from producer_core.events import SAFE_VERDICTS

if TYPE_CHECKING:
    from producer_core.replay.check import TopicCheck
    from producer_core.replay.dry_run import DryRun

_TOPICS = ("topic", "records", "asks for", "partitions", "takes", "too large", "newer keys")
_NUMBERS = ("records", "takes", "too large", "newer keys")
_MOST = 20


def tell(run: DryRun) -> None:
    """Tables on standard output, then the sentences, the worst first."""
    click.echo(headline(run))
    if run.total:
        click.echo()
        topics = list(run.by_topic)
        found = {topic.topic: topic for topic in run.check.topics} if run.check else {}
        show.table(_TOPICS, [_row(run, topic, found.get(topic)) for topic in topics[:_MOST]], right=_NUMBERS)
        if len(topics) > _MOST:
            click.echo(f"… and {len(topics) - _MOST:,} more topics")
        click.echo()
        rows = [(verdict, records, _done(verdict)) for verdict, records in run.by_verdict.items()]
        show.table(("verdict", "records", "what is done"), rows, right=("records",))
    click.echo()
    say(run)


def say(run: DryRun, *, err: bool = False) -> None:
    """The sentences alone."""
    for number, sentence in enumerate(run.sentences, start=1):
        click.echo(f"{number}. {sentence}" if len(run.sentences) > 1 else sentence, err=err)


def headline(run: DryRun) -> str:
    if not run.total:
        return "Dry run: nothing to replay."
    bound = f"; about {show.duration(run.seconds)} at this rate" if run.seconds is not None else ""
    return f"Dry run: {show.count(run.total, 'record')}, {show.size(run.bytes)}{bound}. Nothing was sent."


def _row(run: DryRun, topic: str, found: TopicCheck | None) -> tuple[str | int | None, ...]:
    asked = [one.partition for one in run.by_partition if one.topic == topic and one.partition is not None]
    free = any(one.partition is None for one in run.by_partition if one.topic == topic)
    wanted = [*(["any"] if free else []), *map(str, asked[:6]), *(["…"] if len(asked) > 6 else [])]
    records = run.by_topic[topic]
    if found is None or found.partitions == 0:
        return topic, records, ", ".join(wanted), "?", None, None, None
    if found.partitions is None:
        return topic, records, ", ".join(wanted), "no topic", None, None, None
    newer = f"{found.newer_keys:,}" if found.complete else f"{found.newer_keys:,} or more"
    return (
        topic,
        records,
        ", ".join(wanted),
        f"{found.partitions:,}{', compacted' if found.compacted else ''}",
        show.size(found.max_message_bytes),
        found.too_large,
        newer,
    )


def _done(verdict: str) -> str:
    if verdict in SAFE_VERDICTS:
        return "sent: no broker has them"
    if verdict == "inconclusive":
        return "looked for once more, then sent all the same"
    return "looked for on their topics first; sent where they are not there"
