"""Texts about the time to decision of dead letters, and the objectives for it."""

from __future__ import annotations

from collections.abc import Sequence

from producer_core._internal.decision_objective import EVERY_TOPIC, DecisionObjective
from producer_core._internal.plural import plural
from producer_core.dashboard.wording.numbers import count, percent
from producer_core.dashboard.wording.time import age, stamp, zone_name
from producer_core.dlq.objectives import TopicDecisions

DEFINITION = (
    "A dead letter is decided when it is replayed, found on its topic or archived. The time starts with the first failure; "
    "a failed replay is no decision. Each dead letter counts once: when it is decided, or at its deadline."
)
RECORD = (
    "How long the topic keeps the oldest pending record that may be on it, so that a probe or a consumer that skips "
    "duplicates still finds it. It comes from the latest dry run of a replay."
)
NONE = "No dead letter is pending or was decided in this time."
OBJECTIVES_NOTE = "The share of dead letters that must be decided within a time. Alerts fire when it is missed or soon will be."
NO_OBJECTIVES = "No objective is set, so no alert depends on the time to decision."


def topic_name(topic: str) -> str:
    return "all other topics" if topic == EVERY_TOPIC else topic


def met(one: TopicDecisions) -> str:
    """Return the share decided in time, with the numbers."""
    if one.objective is None:
        return "–"
    if one.met is None:
        return "none yet"
    return f"{percent(one.met)} of {count(one.evaluated)}"


def pending(one: TopicDecisions) -> str:
    return f"{count(one.pending)}, {count(one.overdue)} late" if one.overdue else count(one.pending)


def next_deadline(one: TopicDecisions, zone: str | None, now: float) -> str:
    """Return when the next pending dead letter misses the objective, and how many do so within an hour."""
    if one.next_at is None:
        return "–"
    at = f"{stamp(one.next_at, zone, now).text} (in {age(one.next_at - now)})"
    return f"{at}; {count(one.due)} within an hour" if one.due else at


def taken(seconds: float | None) -> str:
    return "–" if seconds is None else age(seconds)


def late(topics: Sequence[TopicDecisions], zone: str | None, now: float, most: int = 2) -> str:
    """Return which objectives are missed or will be soon, and what to do."""
    sentences = [_late(one, zone, now) for one in topics[:most]]
    more = len(topics) - most
    sentences += [f"{plural(more, 'more topic')} below."] if more > 0 else []
    return " ".join([*sentences, "Replay or archive the oldest first."])


def _late(one: TopicDecisions, zone: str | None, now: float) -> str:
    parts = []
    if one.is_missed:
        parts.append(f"{percent(one.met)} decided in time, {count(one.missed)} late")
    if one.due and one.next_at is not None:
        at = f"{stamp(one.next_at, zone, now).text} {zone_name(zone, one.next_at)}"
        parts.append(f"{count(one.due)} must be decided within an hour, the first by {at}")
    return f"{one.topic}: {'; '.join(parts)} (objective {one.objective})."


def objective_set(topic: str, objective: DecisionObjective | None) -> str:
    """Return the result of a change."""
    if objective is None:
        return f"Removed the objective of {topic_name(topic)}."
    return f"Objective of {topic_name(topic)}: {objective}."
