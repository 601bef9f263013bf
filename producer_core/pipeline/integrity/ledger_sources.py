"""Sources: where an audit hears ledgers, up to where each of them was when it began, and what of them is new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from producer_core.errors import ConfigError
from producer_core.pipeline.integrity import ledgers, topic_bounds, watermarks
from producer_core.pipeline.integrity.cached_frames import keep
from producer_core.pipeline.integrity.read_topic import bounded
from producer_core.pipeline.integrity.spans import PartitionBounds
from producer_core.pipeline.integrity.store_ledger import kept

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

_SETTLING = 60.0
"""A store's row may be committed so long after its merge began."""


@dataclass(frozen=True)
class LedgerSource:
    """A topic of ledgers, as it was when the audit began."""

    facts: topic_bounds.TopicFacts
    edges: Mapping[int, PartitionBounds]

    @property
    def name(self) -> str:
        """One that was deleted and made anew is another."""
        return watermarks.incarnated(self.facts.name, self.facts.incarnation)


@dataclass(frozen=True)
class LedgerRange:
    """Each batch once; the numbers that each source has; and how much was left out or could not be read."""

    batches: DataFrame
    stretches: DataFrame
    left_out: int
    strange: int


def sources(admin: AdminClient, topics: Sequence[str]) -> list[LedgerSource]:
    """The topics of ledgers, with their ends as they are now."""
    found = [topic_bounds.facts(admin, name) for name in topics]
    return [LedgerSource(facts, topic_bounds.edges(admin, facts)) for facts in found]


def hear(
    session: SparkSession,
    sources: Sequence[LedgerSource],
    store: Store | None,
    options: Mapping[str, str],
    *,
    topic: str,
    cluster: str,
) -> LedgerRange:
    """What they tell, with what the store keeps of a topic in a cluster; `options` are Kafka's."""
    stored = kept(session, store, topic, cluster)
    frames = [
        ledgers.parsed(
            bounded(
                session, source.facts.name, {number: (edge.low, edge.stable) for number, edge in source.edges.items()},
                {**options, "kafka.isolation.level": "read_committed"}, headers=False,
            )
        )
        for source in sources
    ]  # fmt: skip
    if store is not None or not frames:
        frames.append(stored.batches)
    raw = keep(reduce(lambda one, other: one.unionByName(other), frames))
    known = ledgers.understood(raw)
    counts = ledgers.counted(raw)
    if counts["strange"]:
        _no_data_topics(raw, sources)
    if counts["repeated"]:
        known = keep(ledgers.once(known))
        counts["lost"] = ledgers.counted(known)["lost"]
    if counts["bare"]:
        known = keep(ledgers.located(known))
    stretches = ledgers.stretches(known).unionByName(stored.stretches)
    return LedgerRange(known, stretches, counts["lost"] + stored.left_out, counts["strange"])


def _no_data_topics(raw: DataFrame, sources: Sequence[LedgerSource]) -> None:
    """ConfigError where a topic holds records and no batch of telemetry is among them: nothing would be proved by it."""
    known = raw.where("v is not null").select("source").distinct()  # of a newer schema too: those are counted
    others = {
        row["source"] for row in raw.select("source").distinct().join(known, "source", "left_anti").collect()
    }
    understood = {row["source"] for row in known.collect()}
    for source in sources:
        name = source.facts.name
        mine = {f"{name}-{number}" for number in source.edges}
        if mine & others and not mine & understood:
            raise ConfigError(
                f"Topic {name!r} holds records, and none of them is a batch of a producer's telemetry.",
                fix="Name as --ledger-topic the topic that producers have as telemetry_topic=.",
            )


def fresh(sources: Sequence[LedgerSource], known: Callable[[str], Mapping[int, int]]) -> str:
    """SQL: what they have told since the last audit; `known` gives the marks of one by its name."""
    new = [f"(source = '{ledgers.STORE}' and position >= {known(ledgers.STORE).get(0, 0)})"]
    for source in sources:
        marked = known(source.name)
        new += [
            f"(source = '{source.facts.name}-{number}' and position >= {marked.get(number, 0)})"
            for number in source.edges
        ]
    return " or ".join(new)


def read_until(sources: Sequence[LedgerSource], started: float) -> dict[str, dict[int, int]]:
    """The marks of an audit that began to look then."""
    found = {
        source.name: {number: edge.stable for number, edge in source.edges.items()} for source in sources
    }
    return {ledgers.STORE: {0: round((started - _SETTLING) * 1000)}, **found}
