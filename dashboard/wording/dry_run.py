"""The dry run in words: which dead letters it is about, what would become of them, and why a choice is made beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from producer_core.dashboard.wording.numbers import plural, size
from producer_core.dashboard.wording.replays import duration
from producer_core.replay.broker_check import TopicCheck
from producer_core.replay.dry_run import DryRun
from producer_core.replay.wording import asked_for, newer_keys, there


def before(number: int, length: int) -> str:
    """Over the dry run."""
    if not number:
        return "Nothing of this can be sent"
    return f"What a replay of these {plural(number, 'dead letter')} ({size(length)}) would do"


def frozen(number: int, at: str, later: int) -> str:
    """Which dead letters the dry run is about: those that waited when somebody clicked, not what came since."""
    they = "The one dead letter that waited" if number == 1 else f"The {number:,} dead letters that waited"
    since = ""
    if later:
        have, are = ("has", "is") if later == 1 else ("have", "are")
        since = f" {later:,} more that match {have} died since and {are} not among them."
    return f"{they} at {at}, when this was asked for.{since}"


def split(number: int, left_out: int) -> str:
    """How the dead letters of a dry run divide: what is sent and what stays add up to all of them."""
    if not left_out:
        return ""
    stays = "1 stays a dead letter" if left_out == 1 else f"{left_out:,} stay dead letters"
    return f"Of the {number:,}, {number - left_out:,} would be sent and {stays}."


SKIP, SEND = "Keep them as dead letters", "Send them all the same"
"""What may become of dead letters whose key has a newer record. The first is chosen beforehand: whatever the topic does with
old values, it loses neither the dead letter nor the newer record, and can be made good by another replay."""


KEEP, SEND_ANYWAY = "Keep them as dead letters", "Send them anyway"
"""What may become of dead letters that may be on their topic and are not found there."""

INCONCLUSIVE_REASON = (
    "Not finding a record proves nothing: the network, a proxy or a stopped broker may still deliver a late request. Sent "
    "anyway, a record may be there twice, under one message id. Readers that drop copies by message id see it once."
)


def inconclusive_question(number: int) -> str:
    """The choice over dead letters that may be on their topic."""
    if number == 1:
        return "1 dead letter may be on its topic. If the replay does not find it there"
    return f"{number:,} dead letters may be on their topics. Those that the replay does not find there"


def newer_question(number: int) -> str:
    """The choice over dead letters whose key has a newer record."""
    has = "letter has a key" if number == 1 else "letters have keys"
    return f"{number:,} {has} with a newer record on the topic"


def newer_reason(run: DryRun) -> str:
    """Why keeping them is chosen beforehand, by what is known of their topics."""
    asked = [topic for topic in run.check.topics if topic.newer_keys] if run.check else []
    unknown = [topic.topic for topic in asked if topic.cleanup_policy is None]
    compacted = [topic.topic for topic in asked if topic.compacted]
    kept = "Keeping them loses nothing: they stay dead letters and can be sent later."
    if unknown:
        return (
            f"Nobody can tell whether {_names(unknown)} {_is(len(unknown))} compacted: the settings cannot be read. Where a "
            f"topic is, an old value sent now replaces the newer one for good. {kept} Send them if each record stands for "
            "itself."
        )
    if compacted:
        are = _is(len(compacted))
        return f"{_names(compacted)} {are} compacted: an old value sent now replaces the newer one for good. {kept}"
    return (
        f"{_names([topic.topic for topic in asked])} {_is(len(asked))} not compacted, so nothing is replaced; but who keeps "
        f"the last value of a key would end with the old one. {kept}"
    )


def _names(topics: Sequence[str]) -> str:
    return ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")


def estimate(number: int, most: float | None) -> str:
    """How long it takes, as far as anybody knows."""
    if not most:
        return "No limit: as quickly as the brokers take them."
    return f"At most {most:g} a second: {duration(number / most)} or longer."


def topics(run: DryRun, *, most: int) -> list[tuple[str, ...]]:
    """By topic, most dead letters first: how many, what they ask for, and what a look ahead found there."""
    found = {topic.topic: topic for topic in run.check.topics} if run.check else {}
    rows = [_topic(run, topic, found.get(topic)) for topic in [*run.by_topic][:most]]
    rest = len(run.by_topic) - most
    return [*rows, (f"{rest:,} more topics", *[""] * 6)] if rest > 0 else rows


def _topic(run: DryRun, topic: str, found: TopicCheck | None) -> tuple[str, ...]:
    first = (topic, f"{run.by_topic[topic]:,}", asked_for(run, topic), there(found))
    if found is None or not found.partitions:
        return *first, "", "", ""
    return *first, size(found.max_message_bytes), f"{found.too_large:,}", newer_keys(found)


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
