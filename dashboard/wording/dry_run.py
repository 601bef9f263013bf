"""Texts of the dry run: its records, the outcome of a replay, and the reasons for the default choices."""

from __future__ import annotations

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.dashboard.wording.numbers import size
from producer_core.dashboard.wording.replays import duration
from producer_core.replay.broker_check import TopicCheck
from producer_core.replay.dry_run import DryRun
from producer_core.replay.phrases import inconclusive_fact, newer_key_fact
from producer_core.replay.wording import existing_partitions, newer_keys, requested_partitions


def heading(number: int, length: int) -> str:
    """Return the heading above the dry run."""
    if not number:
        return "Dry run: nothing to replay"
    return f"Dry run: {plural(number, 'record')}, {size(length)}"


def frozen(number: int, at: str, later: int) -> str:
    """Return when the records were selected; `later` counts matching dead letters that failed afterwards."""
    since = ""
    if later:
        have, are = ("has", "is") if later == 1 else ("have", "are")
        since = f" {later:,} more {have} failed since and {are} not included."
    return f"{plural(number, 'record')} selected at {at}.{since}"


def numbers(run: DryRun) -> list[tuple[str, str, str]]:
    """Return what happens to the selected records as three names, numbers and meanings."""
    doubt = "sent if not found" if run.inconclusive == "send" else "kept if not found"
    return [
        ("Send", f"{run.to_send:,}", "no broker has them" if run.to_send else ""),
        ("Skip", f"{run.to_skip:,}", skipped(run)),
        ("In doubt", f"{run.in_doubt:,}", f"searched on their topics; {doubt}" if run.in_doubt else ""),
    ]


def skipped(run: DryRun) -> str:
    """Return why records are skipped, the most frequent reason first."""
    reasons = {
        "newer record with the same key": run.skipped_newer,
        "topic does not exist": run.no_topic,
        "quarantined": run.quarantined,
        "malformed, not edited": run.not_replayable,
        "other cluster": run.other_cluster,
        "cluster unknown": run.unknown_cluster,
        "already handled": run.changed,
    }
    found = sorted(((count, text) for text, count in reasons.items() if count), key=lambda one: -one[0])
    if len(found) == 1:
        return found[0][1]
    return ", ".join(f"{count:,} {text}" for count, text in found)


def warning(run: DryRun) -> str:
    """Return the finding that the choices below do not cover; empty without one or before the topics are checked."""
    if run.check is None:
        return ""
    replaces = run.newer == "send" and any(topic.newer_keys and topic.compacted for topic in run.check.topics)
    if replaces or run.no_topic or run.lost_partitions or run.too_large:
        return run.sentences[0]
    return (
        "" if run.check.complete else "The check of the topics is incomplete. Reasons shows what is unknown."
    )


SKIP_NEWER, SEND_NEWER = "Keep as dead letters", "Send anyway"
"""The choices for records whose key has a newer record. The first is the default: it loses neither the dead letter nor
the newer record, whatever the cleanup policy of the topic, and another replay can reverse it."""


KEEP_INCONCLUSIVE, SEND_INCONCLUSIVE = "Keep as dead letters", "Send anyway"
"""The choices for records that may be on their topic but are not found there."""

INCONCLUSIVE_REASON = (
    "A failed search does not prove absence: the network, a proxy or a stopped broker may still deliver a late request. "
    "Sending anyway can store a record twice under one message id. Consumers that deduplicate by message id see it once."
)


def inconclusive_question(number: int) -> str:
    """Return the label of the choice for records that may be on their topic."""
    return f"{inconclusive_fact(number)}. If the replay does not find {'it' if number == 1 else 'them'}:"


def newer_question(number: int) -> str:
    """Return the label of the choice for records whose key has a newer record."""
    return f"{newer_key_fact(number)}:"


def newer_reason(run: DryRun) -> str:
    """Return why keeping the records is the default, given the cleanup policies of their topics."""
    affected = [topic for topic in run.check.topics if topic.newer_keys] if run.check else []
    unknown = [topic.topic for topic in affected if topic.cleanup_policy is None]
    compacted = [topic.topic for topic in affected if topic.compacted]
    one = run.newer_keys == 1
    kept = (
        "Keeping the record loses nothing: it remains a dead letter and can be sent later."
        if one
        else "Keeping the records loses nothing: they remain dead letters and can be sent later."
    )
    if unknown:
        policy = "cleanup policy of {} is" if len(unknown) == 1 else "cleanup policies of {} are"
        return (
            f"The {policy.format(join_names(unknown, most=3))} unknown, because the topic configuration cannot be read. On a compacted "
            f"topic, an old value sent now permanently replaces the newer one. {kept} Send {'it' if one else 'them'} only "
            f"if {'the' if one else 'each'} record is an independent event."
        )
    if compacted:
        are = "is" if len(compacted) == 1 else "are"
        return f"{join_names(compacted, most=3)} {are} compacted: an old value sent now permanently replaces the newer one. {kept}"
    are = "is" if len(affected) == 1 else "are"
    return (
        f"{join_names([topic.topic for topic in affected], most=3)} {are} not compacted, so no record is replaced. A consumer that keeps "
        f"the last value per key would end up with the old value. {kept}"
    )


def estimate(number: int, most: float | None) -> str:
    """Return the minimum duration at the chosen rate."""
    if not most:
        return "No rate limit: limited only by the brokers."
    return f"At most {most:g}/s: takes at least {duration(number / most)}."


def topics(run: DryRun, *, most: int) -> list[tuple[str, ...]]:
    """Return a row per topic, largest first: the records, the requested partitions, and the preflight findings."""
    found = {topic.topic: topic for topic in run.check.topics} if run.check else {}
    rows = [_topic(run, topic, found.get(topic)) for topic in [*run.by_topic][:most]]
    rest = len(run.by_topic) - most
    return [*rows, (plural(rest, "more topic"), *[""] * 6)] if rest > 0 else rows


def _topic(run: DryRun, topic: str, found: TopicCheck | None) -> tuple[str, ...]:
    first = (topic, f"{run.by_topic[topic]:,}", requested_partitions(run, topic), existing_partitions(found))
    if found is None or not found.partitions:
        return *first, "", "", ""
    return *first, size(found.max_message_bytes), f"{found.too_large:,}", newer_keys(found)
