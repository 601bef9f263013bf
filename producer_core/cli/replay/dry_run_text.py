"""A dry run as a person reads it: the number, the topics, the verdicts, and what to know before it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.cli import output

if TYPE_CHECKING:
    from producer_core.replay.broker_check import TopicCheck
    from producer_core.replay.dry_run import DryRun

_TOPICS = ("topic", "records", "asks for", "partitions", "takes", "too large", "newer keys")
_NUMBERS = ("records", "takes", "too large", "newer keys")
_MOST = 20


def tell(run: DryRun) -> None:
    """Tables on standard output, then the sentences, the worst first."""
    output.say(headline(run))
    if run.total:
        output.say("")
        topics = list(run.by_topic)
        found = {topic.topic: topic for topic in run.check.topics} if run.check else {}
        output.table(
            _TOPICS, [_row(run, topic, found.get(topic)) for topic in topics[:_MOST]], right=_NUMBERS
        )
        if len(topics) > _MOST:
            output.say(f"… and {len(topics) - _MOST:,} more topics")
        from producer_core.replay.wording import done_about

        output.say("")
        rows = [
            (verdict, records, done_about(verdict, send_inconclusive=run.inconclusive == "send"))
            for verdict, records in run.by_verdict.items()
        ]
        output.table(("verdict", "records", "what is done"), rows, right=("records",))
    output.say("")
    say(run)


def say(run: DryRun, *, err: bool = False) -> None:
    """The sentences alone."""
    for number, sentence in enumerate(run.sentences, start=1):
        output.say(f"{number}. {sentence}" if len(run.sentences) > 1 else sentence, err=err)


def headline(run: DryRun) -> str:
    if not run.total:
        return "Dry run: nothing to replay."
    bound = f"; about {output.duration(run.seconds)} at this rate" if run.seconds is not None else ""
    return f"Dry run: {output.count(run.total, 'record')}, {output.size(run.bytes)}{bound}. Nothing was sent."


def _row(run: DryRun, topic: str, found: TopicCheck | None) -> tuple[str | int | None, ...]:
    from producer_core.replay.wording import asked_for, newer_keys, there

    first = (topic, run.by_topic[topic], asked_for(run, topic), there(found))
    if found is None or not found.partitions:
        return *first, None, None, None
    return *first, output.size(found.max_message_bytes), found.too_large, newer_keys(found)
