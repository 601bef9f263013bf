"""Queries for the time to decision of dead letters, and the objectives for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from producer_core._internal.decision_objective import DecisionObjective
from producer_core.diagnostics.incident.facts import incident_of
from producer_core.dlq.objectives import READ_LIMIT, TopicDecisions, decisions, objectives
from producer_core.replay.probe_time import ProbeTime, checked_retentions, probe_time
from producer_core.store import Store

RANGES: Mapping[str, float] = {"24 hours": 86_400.0, "7 days": 604_800.0, "28 days": 28 * 86_400.0}
"""The ranges of the table, in seconds. An objective is measured over the last one."""


@dataclass(frozen=True)
class DecisionsPage:
    """Holds the decisions by topic as of `now`, and how long each topic keeps what a probe looks for."""

    now: float
    topics: tuple[TopicDecisions, ...]
    probes: Mapping[str, ProbeTime]

    @property
    def late(self) -> tuple[TopicDecisions, ...]:
        """Return the topics that miss their objective, or will soon unless an operator decides; the latest first."""
        found = [one for one in self.topics if one.objective and (one.is_missed or one.due)]
        return tuple(sorted(found, key=lambda one: (not one.is_missed, one.next_at or 0.0)))


def decisions_page(store: Store, now: float, seconds: float) -> DecisionsPage:
    """Return the decisions of the last `seconds`, or of the range of an incident bundle.

    The brokers are not asked: only dry runs have read the retention.
    """
    since, until = now - seconds, now
    if facts := incident_of(store):
        since, until, now = facts["since"], facts["until"], facts["exported_at"]
    with store.borrow(limit=READ_LIMIT):
        topics, known = decisions(store, now, since=since, until=until), checked_retentions(store)
    return DecisionsPage(now, topics, {one.topic: probe_time(one, known, now) for one in topics})


def objectives_page(store: Store) -> Mapping[str, DecisionObjective]:
    """Return the objectives by topic."""
    return objectives(store)
