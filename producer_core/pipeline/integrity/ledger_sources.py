"""Read ledgers from their sources: telemetry topics up to their current ends, and the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from producer_core.errors import ConfigError
from producer_core.pipeline.integrity import ledgers, topic_bounds, watermarks
from producer_core.pipeline.integrity.cached_frames import materialize
from producer_core.pipeline.integrity.read_topic import read_ranges
from producer_core.pipeline.integrity.spans import PartitionBounds
from producer_core.pipeline.integrity.store_ledger import read_store_ledger

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

_SETTLING = 60.0
"""Seconds after the start of its merge within which a store's row may be committed."""


@dataclass(frozen=True)
class LedgerSource:
    """Describe a ledger topic as it was when the audit began."""

    facts: topic_bounds.TopicFacts
    bounds: Mapping[int, PartitionBounds]

    @property
    def name(self) -> str:
        """Return a name under which a deleted and re-created topic is another source."""
        return watermarks.topic_key(self.facts.name, self.facts.incarnation)


@dataclass(frozen=True)
class LedgerRange:
    """Hold each batch once, the batch numbers of each source, and how much was left out or is unreadable."""

    batches: DataFrame
    batch_ranges: DataFrame
    left_out: int
    strange: int


def sources(admin: AdminClient, topics: Sequence[str]) -> list[LedgerSource]:
    """Return the ledger topics with their current bounds."""
    found = [topic_bounds.facts(admin, name) for name in topics]
    return [LedgerSource(facts, topic_bounds.bounds(admin, facts)) for facts in found]


def read_ledgers(
    session: SparkSession,
    sources: Sequence[LedgerSource],
    store: Store | None,
    options: Mapping[str, str],
    *,
    topic: str,
    cluster: str,
) -> LedgerRange:
    """Return the ledgers of the sources and of the store about a topic in a cluster; `options` are Kafka's."""
    stored = read_store_ledger(session, store, topic, cluster)
    frames = [
        ledgers.parsed(
            read_ranges(
                session, source.facts.name, {number: (bound.low, bound.stable) for number, bound in source.bounds.items()},
                {**options, "kafka.isolation.level": "read_committed"}, headers=False,
            )
        )
        for source in sources
    ]  # fmt: skip
    if store is not None or not frames:
        frames.append(stored.batches)
    raw = materialize(reduce(lambda one, other: one.unionByName(other), frames))
    known = ledgers.readable(raw)
    counts = ledgers.counted(raw)
    if counts["strange"]:
        _check_not_data_topics(raw, sources)
    if counts["repeated"]:
        known = materialize(ledgers.deduplicated(known))
        counts["lost"] = ledgers.counted(known)["lost"]
    if counts["unlocated"]:
        known = materialize(ledgers.with_cluster(known))
    batch_ranges = ledgers.batch_ranges(known).unionByName(stored.batch_ranges)
    return LedgerRange(known, batch_ranges, counts["lost"] + stored.left_out, counts["strange"])


def _check_not_data_topics(raw: DataFrame, sources: Sequence[LedgerSource]) -> None:
    """Raise ConfigError when a topic holds records but no batch of telemetry: such an audit would prove nothing."""
    # including newer schemas, which are counted
    known = raw.where("v is not null").select("source").distinct()
    others = {
        row["source"] for row in raw.select("source").distinct().join(known, "source", "left_anti").collect()
    }
    telemetry = {row["source"] for row in known.collect()}
    for source in sources:
        name = source.facts.name
        partitions = {f"{name}-{number}" for number in source.bounds}
        if partitions & others and not partitions & telemetry:
            raise ConfigError(
                f"Topic {name!r} holds records, but none is a batch of a producer's telemetry.",
                fix="Set --ledger-topic to the producers' telemetry_topic.",
            )


def fresh(sources: Sequence[LedgerSource], known: Callable[[str], Mapping[int, int]]) -> str:
    """Return SQL for rows written since the last audit; `known` returns the watermarks of a source by its name."""
    new = [f"(source = '{ledgers.STORE}' and position >= {known(ledgers.STORE).get(0, 0)})"]
    for source in sources:
        marked = known(source.name)
        new += [
            f"(source = '{source.facts.name}-{number}' and position >= {marked.get(number, 0)})"
            for number in source.bounds
        ]
    return " or ".join(new)


def read_until(sources: Sequence[LedgerSource], started: float) -> dict[str, dict[int, int]]:
    """Return the watermarks of an audit that began to read at `started`."""
    found = {
        source.name: {number: bound.stable for number, bound in source.bounds.items()} for source in sources
    }
    return {ledgers.STORE: {0: round((started - _SETTLING) * 1000)}, **found}
