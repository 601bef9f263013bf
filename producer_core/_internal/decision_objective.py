"""The objective of a topic for decisions on its dead letters, and its form in the settings of a store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from producer_core._internal.time_span import exact_span
from producer_core.errors import ConfigError

SETTING = "dlq_objectives"
"""The setting of a store that has the objectives by topic."""

EVERY_TOPIC = "*"
"""The name under which an objective applies to each topic that has none of its own."""

PERIOD = 28 * 86400.0
"""Seconds over which an objective is measured: four weeks, so that every period has as many weekends."""

AHEAD = 3600.0
"""Seconds from now within which a report counts the next deadlines, and the latest missed ones."""

_MAX_WITHIN = 100 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class DecisionObjective:
    """The percentage of a topic's dead letters that must be decided within this number of seconds.

    A dead letter is decided when it is replayed, found on its topic, or archived. The time starts when the message became a
    dead letter for the first time: a replay that fails is no decision, and restoring an archived dead letter takes the
    decision back.
    """

    percent: float
    within: float

    def __post_init__(self) -> None:
        if not _is_number(self.percent) or not 0 < self.percent < 100:
            raise ConfigError(
                f"The objective {self.percent!r:.40} is not a percentage between 0 and 100.",
                fix="For example, 95. An objective of 100% leaves no dead letter to miss it; use 99.9.",
            )
        if not _is_number(self.within) or not 1 <= self.within <= _MAX_WITHIN:
            raise ConfigError(
                f"The time {self.within!r:.40} of an objective is not a number of seconds.",
                fix="Use one second or more, and at most 100 years.",
            )

    @property
    def budget(self) -> float:
        """The share of dead letters that may miss the objective, between 0 and 1."""
        return (100 - self.percent) / 100

    def to_setting(self) -> dict[str, float]:
        return {"percent": self.percent, "within": self.within}

    def __str__(self) -> str:
        return f"{self.percent:.6g}% within {exact_span(self.within)}"


def objectives_of(settings: Mapping[str, Any]) -> dict[str, DecisionObjective]:
    """Return the objectives by topic. Raise ConfigError for a setting that is not valid."""
    given = settings.get(SETTING) or {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{SETTING} must be a mapping of topics to objectives, not {given!r:.60}.")
    return {topic: _objective(topic, value) for topic, value in sorted(given.items())}


def objective_for(objectives: Mapping[str, DecisionObjective], topic: str) -> DecisionObjective | None:
    """Return the objective of a topic: its own, or else the one of every topic."""
    return objectives.get(topic) or objectives.get(EVERY_TOPIC)


def as_parameters(objectives: Mapping[str, DecisionObjective]) -> dict[str, Any]:
    """Return the objectives as parameters of the queries in `decisions.sql`."""
    own = {topic: one.within for topic, one in objectives.items() if topic != EVERY_TOPIC}
    every = objectives.get(EVERY_TOPIC)
    return {
        "topics": list(own),
        "allowed": list(own.values()),
        "every": None if every is None else every.within,
    }


def _objective(topic: object, value: object) -> DecisionObjective:
    if not isinstance(topic, str) or not topic or not isinstance(value, Mapping):
        raise ConfigError(f"{SETTING} has no valid objective for {topic!r:.60}.")
    return DecisionObjective(value.get("percent", math.nan), value.get("within", math.nan))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
