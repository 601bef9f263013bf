"""Read ledgers from their sources: telemetry topics up to their current ends, and the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core.errors import ConfigError, PipelineError
from producer_core.kafka.clients import admin
from producer_core.metrics.telemetry import HIGHEST, SCHEMA_VERSION
from producer_core.pipeline.integrity import topic_bounds, watermarks
from producer_core.pipeline.integrity.ledger_topic import telemetry
from producer_core.pipeline.integrity.outcome import LedgerGap
from producer_core.pipeline.integrity.spans import PartitionBounds
from producer_core.pipeline.integrity.store_ledger import STORE, add_store_ledger

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from producer_core.config import ClientConfig
    from producer_core.pipeline.integrity.audit_tables import AuditTables
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
class LedgerFacts:
    """Count what was left out of the ledgers, and what is unreadable, and name the missing batches."""

    left_out: int
    strange: int
    gaps: tuple[LedgerGap, ...]


def sources(client: AdminClient, topics: Sequence[str]) -> list[LedgerSource]:
    """Return the ledger topics with their current bounds."""
    found = [topic_bounds.facts(client, name) for name in topics]
    return [LedgerSource(facts, topic_bounds.bounds(client, facts)) for facts in found]


def read_ledgers(
    config: ClientConfig,
    tables: AuditTables,
    sources: Sequence[LedgerSource],
    store: Store | None,
    *,
    topic: str,
    cluster: str,
) -> LedgerFacts:
    """Read the ledgers of the sources and of the store about a topic in a cluster.

    Raise PipelineError when a ledger topic was deleted and re-created since its bounds were requested.
    """
    for source in sources:
        tables.add("add_telemetry", telemetry(config.settings, source.facts.name, source.bounds))
    if sources:
        check_not_recreated(admin(config.settings), sources)
    left_out = add_store_ledger(tables, store, topic, cluster)
    facts = sum_up(tables, topic, left_out)
    _check_not_data_topics(tables, sources)
    tables.drop("batches", "readable_batches", "known", "all_rows")
    return facts


def check_not_recreated(client: AdminClient, sources: Sequence[LedgerSource]) -> None:
    """Raise PipelineError when a ledger topic is another one than at the start of the audit: the bounds are not its own."""
    for source in sources:
        name = source.facts.name
        if topic_bounds.facts(client, name).incarnation != source.facts.incarnation:
            raise PipelineError(
                f"Ledger topic {name!r} was deleted and re-created during the audit.", fix="Audit again."
            )


def sum_up(tables: AuditTables, topic: str, left_out: int = 0) -> LedgerFacts:
    """Create the tables of ledger rows and dead letters from the batches; `left_out` is the store's number."""
    tables.create("readable_batches", "readable", version=SCHEMA_VERSION, highest=HIGHEST)
    tables.create("known")
    for table in ("all_rows", "ledger_rows"):
        tables.create(table)
    tables.create("dead_letters", topic=topic)
    unreadable, lost = tables.row("ledger_counts")
    (invalid,) = tables.row("invalid_rows")
    gaps = tuple(LedgerGap(*row) for row in tables.rows("gaps", store=STORE))
    return LedgerFacts(lost + left_out, unreadable + invalid, gaps)


def _check_not_data_topics(tables: AuditTables, sources: Sequence[LedgerSource]) -> None:
    """Raise ConfigError when a topic holds records but no batch of telemetry: such an audit would prove nothing."""
    others = {source for (source,) in tables.rows("foreign_sources")}
    telemetry = {source for (source,) in tables.rows("telemetry_sources")}
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
    new = [f"(source = '{STORE}' and position >= {known(STORE).get(0, 0)})"]
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
    return {STORE: {0: round((started - _SETTLING) * 1000)}, **found}
