"""Set and remove the decision objectives of a store, and report how its dead letters meet them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.decision_objective import (
    AHEAD,
    EVERY_TOPIC,
    PERIOD,
    SETTING,
    DecisionObjective,
    as_parameters,
    objective_for,
    objectives_of,
)
from producer_core._internal.topic_names import TOPIC_RULE, is_topic_name
from producer_core.errors import ConfigError
from producer_core.events import SAFE_VERDICTS
from producer_core.roles.role_check import check_operator
from producer_core.store.removed_clusters import removed_clusters

if TYPE_CHECKING:
    from producer_core.store import Store

READ_LIMIT = 5.0
"""Seconds for a report: 0.7 s for two million dead letters."""


@dataclass(frozen=True, slots=True)
class TopicDecisions:
    """The decisions on the dead letters of a topic over a range of time, and its pending dead letters now.

    `evaluated` dead letters were decided within the range before their deadline, or had their deadline in it; `missed` of
    them were not decided in time, `missed_lately` within the last AHEAD seconds. `p50` and `p95` are the exact quantiles, in
    seconds, of the time to decision of the `decided` ones, which were decided within the range. `overdue` pending dead letters have missed their deadline, `due` ones
    will miss it within AHEAD seconds if they are not decided, the first one at `next_at`. `doubtful_at`: the acceptance of the
    oldest pending dead letter that may be on its topic, on one of `clusters`. Times are seconds since 1970.
    """

    topic: str
    objective: DecisionObjective | None
    evaluated: int = 0
    missed: int = 0
    missed_lately: int = 0
    decided: int = 0
    p50: float | None = None
    p95: float | None = None
    pending: int = 0
    overdue: int = 0
    next_at: float | None = None
    due: int = 0
    doubtful_at: float | None = None
    clusters: tuple[str, ...] = ()

    @property
    def met(self) -> float | None:
        """The share that was decided in time; None without an evaluated dead letter."""
        return (self.evaluated - self.missed) / self.evaluated if self.evaluated else None

    @property
    def is_missed(self) -> bool:
        """Whether a larger share missed the deadline than the objective allows."""
        return self.objective is not None and self.missed > self.objective.budget * self.evaluated


def objectives(store: Store) -> dict[str, DecisionObjective]:
    """Return the objectives of a store by topic; EVERY_TOPIC is the one of all other topics."""
    return objectives_of(store.settings())


def set_objective(
    store: Store, topic: str, objective: DecisionObjective | None, *, who: str, origin: str
) -> None:
    """Set the objective of a topic, or of EVERY_TOPIC, for every process that uses the store; None removes it.

    The change has one audit entry. Raise ConfigError for an invalid topic name, and for the removal of an objective that is
    not set; NotPermitted if the approval policy does not let this person change it.
    """
    if topic != EVERY_TOPIC and not is_topic_name(topic):
        raise ConfigError(
            f"{topic!r:.60} is not a topic name.", fix=f"{TOPIC_RULE} Use * for all other topics."
        )
    with store.borrow(write=True):
        check_operator(store, who=who, origin=origin, now=time.time())
        known = objectives(store)
        if objective is None and topic not in known:
            raise ConfigError(
                f"The topic {topic} has no objective of its own." if topic != EVERY_TOPIC
                else "There is no objective for all other topics.",
                fix="List the objectives with producer-core dlq objective list.",
            )  # fmt: skip
        changed = {**known, topic: objective}
        given = {name: one.to_setting() for name, one in sorted(changed.items()) if one is not None}
        store.change_settings({SETTING: given or None}, who=who, origin=origin)


def decisions(
    store: Store, now: float, *, since: float | None = None, until: float | None = None
) -> tuple[TopicDecisions, ...]:
    """Return the decisions of each topic with an objective or with dead letters, by name, over (since, until].

    The default range is the PERIOD that ends now.
    """
    with store.borrow(limit=READ_LIMIT):
        known = objectives(store)
        rows = store.rows(
            "decision_report",
            now=now,
            since=now - PERIOD if since is None else since,
            until=now if until is None else until,
            ahead=AHEAD,
            quantiles=True,
            safe=sorted(SAFE_VERDICTS),
            removed=removed_clusters(store, now),
            **as_parameters(known),
        )
    found = {row["topic"]: _topic_decisions(row, known) for row in rows}
    for topic, objective in known.items():
        if topic != EVERY_TOPIC:
            found.setdefault(topic, TopicDecisions(topic, objective))
    return tuple(found[topic] for topic in sorted(found))


def _topic_decisions(row: Mapping[str, Any], known: Mapping[str, DecisionObjective]) -> TopicDecisions:
    given = {**row, "clusters": tuple(row["clusters"] or ())}
    return TopicDecisions(objective=objective_for(known, row["topic"]), **given)
