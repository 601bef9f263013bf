"""Print a dry run: the number of records, the topics, the verdicts, and the facts to know before the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core._internal.plural import plural
from producer_core.cli import output

if TYPE_CHECKING:
    from producer_core.replay.broker_check import TopicCheck
    from producer_core.replay.dry_run import DryRun

_TOPICS = ("topic", "records", "requested", "partitions", "max size", "too large", "superseded")
_NUMBERS = ("records", "max size", "too large", "superseded")
_MOST = 20


def print_tables(run: DryRun) -> None:
    """Print the tables to standard output, then the sentences, most serious first."""
    output.say(headline(run))
    if run.total:
        output.say("")
        topics = list(run.by_topic)
        found = {topic.topic: topic for topic in run.check.topics} if run.check else {}
        output.table(
            _TOPICS, [_row(run, topic, found.get(topic)) for topic in topics[:_MOST]], right=_NUMBERS
        )
        if len(topics) > _MOST:
            output.say(f"… and {plural(len(topics) - _MOST, 'more topic')}")
        from producer_core.replay.wording import done_about

        output.say("")
        rows = [
            (verdict, records, done_about(verdict, send_inconclusive=run.inconclusive == "send"))
            for verdict, records in run.by_verdict.items()
        ]
        output.table(("verdict", "records", "action"), rows, right=("records",))
    output.say("")
    print_sentences(run)


def print_sentences(run: DryRun, *, err: bool = False) -> None:
    """Print the sentences only."""
    for number, sentence in enumerate(run.sentences, start=1):
        output.say(f"{number}. {sentence}" if len(run.sentences) > 1 else sentence, err=err)


def headline(run: DryRun) -> str:
    if not run.total:
        return "Dry run: nothing to replay."
    duration = f"; about {output.duration(run.seconds)} at this rate" if run.seconds is not None else ""
    return f"Dry run: {plural(run.total, 'record')}, {output.size(run.bytes)}{duration}. Nothing was sent."


def nothing(run: DryRun) -> str:
    """Return why a replay would send no record, or an empty text if it would send some."""
    return "" if run.total else f"Nothing to replay: {' '.join(run.sentences[1:])}"


def _row(run: DryRun, topic: str, found: TopicCheck | None) -> tuple[str | int | None, ...]:
    from producer_core.replay.wording import existing_partitions, newer_keys, requested_partitions

    first = (topic, run.by_topic[topic], requested_partitions(run, topic), existing_partitions(found))
    if found is None or not found.partitions:
        return *first, None, None, None
    return *first, output.size(found.max_message_bytes), found.too_large, newer_keys(found)
