"""The letterbox: `producer.dlq` over a store, with the contract's names and what a person asks of one letter."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from producer_core.dlq import DeadLetterFilter, DeadLetters, Groups
from producer_core.errors import StoreError
from producer_core.events import DeadLetter
from producer_core.messages import Message


class StoredDeadLetters(Protocol):
    """Who keeps the dead letters."""

    def dead_letters(self) -> DeadLetters: ...
    def own(self, where: DeadLetterFilter | None = None, *, wait: bool = True) -> DeadLetterFilter: ...
    def messages(self, topic: str | None) -> list[Message]: ...
    def clear(self, topic: str | None) -> int: ...
    def waiting(self) -> int: ...
    def add(self, message: Message, error: str) -> None: ...


class StoreQueue:
    """What it shows is the store's; while that cannot be had, only a number.

    It shows dead letters of the producer's cluster and of no known one. A filter that names a cluster shows that one's;
    `get` finds any letter. Numbers do not wait until the producer knows its cluster.
    """

    def __init__(self, dead_letter_backend: StoredDeadLetters, limit: int) -> None:
        self._dead_letter_backend = dead_letter_backend
        self.max_size = limit

    def get(self, message_id: str) -> DeadLetter | None:
        """One dead letter with all its bytes."""
        return self._dead_letter_backend.dead_letters().get(message_id)

    def groups(self, where: DeadLetterFilter | None = None, *, limit: int = 50) -> Groups:
        """The causes, the largest first."""
        return self._dead_letter_backend.dead_letters().groups(
            self._dead_letter_backend.own(where), limit=limit
        )

    def to_frame(self, where: DeadLetterFilter | None = None, **options: Any) -> Any:
        """A frame of the dead letters that the filter matches; see `DeadLetters.to_frame`."""
        return self._dead_letter_backend.dead_letters().to_frame(
            self._dead_letter_backend.own(where), **options
        )

    def add_message(self, message: Message, error: str) -> None:
        """Keep a message that failed for good, with what is known of why."""
        self._dead_letter_backend.add(message, str(error))

    def get_messages_by_topic(self, topic: str) -> list[Message]:
        return self._dead_letter_backend.messages(topic)

    def clear_topic(self, topic: str) -> int:
        return self._dead_letter_backend.clear(topic)

    @property
    def messages(self) -> list[Message]:
        return self._dead_letter_backend.messages(None)

    @property
    def topic_stats(self) -> dict[str, int]:
        return self._dead_letter_backend.dead_letters().count_by(
            self._dead_letter_backend.own(wait=False), "topic"
        )

    def get_stats(self) -> dict[str, Any]:
        """How many are held, by topic, with the oldest and the newest; zeros while the store cannot be had."""
        try:
            dead_letters, own = (
                self._dead_letter_backend.dead_letters(),
                self._dead_letter_backend.own(wait=False),
            )
            by_topic = dead_letters.count_by(own, "topic")
            oldest = dead_letters.bodies(dead_letters.ids(own, limit=1))
            newest = dead_letters.find(own, limit=1)
        except StoreError:
            by_topic, oldest, newest = {"": self._dead_letter_backend.waiting()}, [], []
        return {
            "total_messages": sum(by_topic.values()),
            "topic_breakdown": {topic: count for topic, count in by_topic.items() if topic},
            "oldest_message": _iso(oldest),
            "newest_message": _iso(newest),
        }


def _iso(dead_letters: list[DeadLetter]) -> str | None:
    return datetime.fromtimestamp(dead_letters[0].accepted_at).isoformat() if dead_letters else None
