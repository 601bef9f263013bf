"""Name the topics of dead letters, and check that they can take them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic
from producer_core.dlq.topics.publisher import Listed, topic_for
from producer_core.errors import BrokerError, ConfigError
from producer_core.events import DeadLetter

TopicCheck = Callable[[str], int | None]
"""Returns the number of a topic's partitions, or None if it is unknown. Raises ConfigError if a topic is missing or compacted, and BrokerError if its settings cannot be read now."""

_CHECK_AGAIN_S = 5.0
"""Seconds until a topic that was missing or compacted is checked again."""

NO_TOPIC = "dead_letter_topic gave no topic"
"""Why a dead letter is not published for which the function returned None."""
UNFIT_CODES = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG_SIZE")
"""The broker refuses the record itself. It never fits its dead-letter topic as it is."""


@dataclass
class Targets:
    """The topics of some dead letters by id, the reasons why others are not published, and what delays the rest."""

    topics: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    trouble: str = ""


class TargetNames:
    """Names the topic of each dead letter. Each topic is checked once, before the first record is sent to it."""

    def __init__(self, topic: DeadLetterTopic, check: TopicCheck) -> None:
        self._topic = topic
        self._check = check
        self._usable: dict[str, int | None] = {}  # by topic: the number of its partitions
        self._troubles: dict[str, tuple[float, str]] = {}  # by topic: when to check again, and the reason

    def of(self, dead_letters: Iterable[DeadLetter]) -> Targets:
        targets = Targets()
        for dead_letter in dead_letters:
            try:
                name = self._topic.name_of(dead_letter)
            except ValueError as error:
                targets.refused[dead_letter.message_id] = str(error)
                continue
            if name is None:
                targets.refused[dead_letter.message_id] = NO_TOPIC
            elif trouble := self._trouble(name):
                targets.trouble = trouble
            else:
                targets.topics[dead_letter.message_id] = name
        return targets

    def upcoming(self, listed: Iterable[Listed]) -> dict[str, dict[str, float]]:
        """Return the times of acceptance by topic and id. A function names a topic only from the whole dead letter."""
        name = self._topic.topic
        found: dict[str, dict[str, float]] = {}
        for one in listed if isinstance(name, str) else ():
            found.setdefault(topic_for(one.topic, str(name)), {})[one.message_id] = one.accepted_at
        return found

    def forget(self, topics: Iterable[str]) -> None:
        """Check these topics again before the next record: one may have been deleted."""
        for topic in topics:
            self._usable.pop(topic, None)

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions that the last check of the topic found."""
        return self._usable.get(topic)

    def _trouble(self, name: str) -> str:
        if name in self._usable:
            return ""
        check_at, text = self._troubles.get(name, (0.0, ""))
        if time.monotonic() < check_at:
            return text
        try:
            self._usable[name] = self._check(name)
        except (BrokerError, ConfigError) as error:
            self._troubles[name] = (time.monotonic() + _CHECK_AGAIN_S, error.what)
            return error.what
        self._troubles.pop(name, None)
        return ""


def reasons(failed: Mapping[str, str], limit: int = 3) -> str:
    """Return the distinct reasons as one text, which is empty only if nothing failed."""
    distinct = list(dict.fromkeys(one or "no reason given" for one in failed.values()))
    return "; ".join(distinct[:limit])
