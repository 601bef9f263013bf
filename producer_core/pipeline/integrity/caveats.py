"""Notes that limit the statements of an audit; the report shows them beside its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from producer_core.pipeline.integrity import topic_bounds

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from producer_core.pipeline.integrity.ledger_sources import LedgerSource

_AHEAD = 60.0
"""Seconds by which a producer's clock may be ahead of this one."""


def timestamps_ahead(admin: AdminClient, topic: topic_bounds.TopicFacts, now: float) -> Iterator[str]:
    for number, moment in topic_bounds.latest_timestamps(admin, topic).items():
        if moment > now + _AHEAD:
            yield (
                f"Partition {number} has timestamps in the future, so times do not select its offsets exactly: "
                "the range above was audited. Audit from offsets for an exact range."
            )


def expired_ledger(
    admin: AdminClient,
    sources: Sequence[LedgerSource],
    known: Callable[[str], Mapping[int, int]],
    since: float | None = None,
) -> Iterator[str]:
    """Yield a note for each ledger topic from which retention removed records that no audit has read.

    `known` returns the offsets up to which earlier audits read a source, by its name; `since` is the start of the
    audit. Call this after the ledgers were read.
    """
    for source in sources:
        read_until, now = known(source.name), topic_bounds.bounds(admin, source.facts)
        affected = [number for number, bound in now.items() if bound.low > read_until.get(number, 0)]
        if affected and since is not None:
            # where an older record is left, retention removed nothing from `since` on
            first = topic_bounds.first_since(admin, source.facts, since)
            affected = [number for number in affected if (first[number] or 0) <= now[number].low]
        if affected:
            where = ", ".join(f"partition {number} before offset {now[number].low:,}" for number in affected)
            yield (
                f"Retention has removed part of the ledger on {source.facts.name} ({where}): "
                "losses among the acknowledgements recorded there are not detected."
            )


def of_loss(topic: topic_bounds.TopicFacts, *, recreated: bool) -> Iterator[str]:
    """Yield other explanations for a loss."""
    if not topic.policy:
        yield (
            f"The cleanup.policy of {topic.name} cannot be read (DESCRIBE_CONFIGS): if the topic is compacted, "
            "the lost messages may have been compacted away."
        )
    if recreated:
        yield (
            f"{topic.name} was deleted and re-created after an earlier audit: messages acknowledged on the old topic "
            "are lost with it."
        )
