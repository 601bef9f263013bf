"""Notes: what bounds the words of an audit, said beside its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from producer_core.pipeline.integrity import topic_bounds

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from producer_core.pipeline.integrity.ledger_sources import LedgerSource

_AHEAD = 60.0
"""Seconds by which a producer's clock may be ahead of ours."""


def timestamps_ahead(admin: AdminClient, topic: topic_bounds.TopicFacts, now: float) -> Iterator[str]:
    for number, moment in topic_bounds.latest_timestamps(admin, topic).items():
        if moment > now + _AHEAD:
            yield (
                f"Partition {number} has timestamps in the future, so moments say little of its offsets: "
                "the range above is what was audited; from offsets it is exact."
            )


def unheard(
    admin: AdminClient,
    sources: Sequence[LedgerSource],
    known: Callable[[str], Mapping[int, int]],
    since: float | None = None,
) -> Iterator[str]:
    """Where retention took a ledger before this audit or one before it has heard it; asked when all was heard.

    `known` gives up to where a source was heard before, by its name; `since` is the moment that the audit begins at.
    """
    for source in sources:
        heard, now = known(source.name), topic_bounds.edges(admin, source.facts)
        gone = [number for number, edge in now.items() if edge.low > heard.get(number, 0)]
        if (
            gone and since is not None
        ):  # where something older is left, nothing of the time since then is gone
            first = topic_bounds.first_since(admin, source.facts, since)
            gone = [number for number in gone if (first[number] or 0) <= now[number].low]
        if gone:
            where = ", ".join(f"{number} before offset {now[number].low:,}" for number in gone)
            yield (
                f"Retention has taken a part of the ledger on {source.facts.name} (partition {where}): "
                "a loss among what it told does not show."
            )


def of_loss(topic: topic_bounds.TopicFacts, *, made_anew: bool) -> Iterator[str]:
    """What else a loss may come from."""
    if not topic.policy:
        yield (
            f"The cleanup.policy of {topic.name} may not be read (DESCRIBE_CONFIGS): if it is compacted, "
            "what is lost here may have been compacted away."
        )
    if made_anew:
        yield (
            f"{topic.name} was deleted and made anew after an earlier audit: what was acknowledged on the old one "
            "is lost with it."
        )
