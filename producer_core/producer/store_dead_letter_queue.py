"""Provide `producer.dlq` over a store, with the public `DeadLetterQueue` methods and single dead letters."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from producer_core.dlq import DeadLetterFilter, DeadLetters, Groups
from producer_core.errors import StoreError
from producer_core.events import DeadLetter
from producer_core.messages import Message, check_message_id


class StoredDeadLetters(Protocol):
    """The dead letters of a producer in a store."""

    def dead_letters(self) -> DeadLetters: ...
    def own(self, where: DeadLetterFilter | None = None, *, wait: bool = True) -> DeadLetterFilter: ...
    def messages(self, topic: str | None) -> list[Message]: ...
    def clear(self, topic: str | None) -> int: ...
    def waiting(self) -> int: ...
    def trouble(self) -> str: ...
    def take_unwritten(self) -> list[DeadLetter]: ...
    @property
    def spill_file(self) -> Path: ...
    def add(self, message: Message, error: str) -> None: ...


class StoreDeadLetterQueue:
    """Shows the dead letters of the producer's application, if it has a name, on its cluster or without a known cluster.

    A filter that names an application or a cluster selects that one instead; `get` finds any dead letter. Counts do not wait until
    the producer knows its cluster. While the store is unavailable, only the number of buffered dead letters is known.
    """

    def __init__(self, backend: StoredDeadLetters, limit: int) -> None:
        self._backend = backend
        self.max_size = limit

    def get(self, message_id: str) -> DeadLetter | None:
        """Return one dead letter with all its bytes."""
        check_message_id(message_id)
        return self._backend.dead_letters().get(message_id)

    def find(
        self, where: DeadLetterFilter | None = None, *, limit: int = 100, offset: int = 0
    ) -> list[DeadLetter]:
        """Return the matching dead letters, the latest failure first, without their bodies (see `get`)."""
        return self._backend.dead_letters().find(self._backend.own(where), limit=limit, offset=offset)

    def count(self, where: DeadLetterFilter | None = None) -> int:
        """Return the number of matching dead letters."""
        return self._backend.dead_letters().count(self._backend.own(where, wait=False))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # as an object that is not a collection; `len` would ask the store

    def groups(self, where: DeadLetterFilter | None = None, *, limit: int = 50) -> Groups:
        """Return the causes of the dead letters, the most frequent first."""
        return self._backend.dead_letters().groups(self._backend.own(where), limit=limit)

    def to_frame(self, where: DeadLetterFilter | None = None, **options: Any) -> Any:
        """Return a frame of the dead letters that the filter matches; see `DeadLetters.to_frame`."""
        return self._backend.dead_letters().to_frame(self._backend.own(where), **options)

    @property
    def store_trouble(self) -> str:
        """Why the store is unavailable; empty while it is available."""
        return self._backend.trouble()

    @property
    def spill_file(self) -> Path:
        """The file that takes dead letters while the store is unavailable."""
        return self._backend.spill_file

    def take_unwritten(self) -> list[DeadLetter]:
        """Return the dead letters that neither the store nor the spill file took, and forget them.

        The caller must keep them. Call it after the producer was closed.
        """
        return self._backend.take_unwritten()

    def add_message(self, message: Message, error: str) -> None:
        """Add a message that failed permanently, with its error."""
        self._backend.add(message, str(error))

    def get_messages_by_topic(self, topic: str) -> list[Message]:
        return self._backend.messages(topic)

    def clear_topic(self, topic: str) -> int:
        return self._backend.clear(topic)

    @property
    def messages(self) -> list[Message]:
        return self._backend.messages(None)

    @property
    def topic_stats(self) -> dict[str, int]:
        return self._backend.dead_letters().count_by(self._backend.own(wait=False), "topic")

    def get_stats(self) -> dict[str, Any]:
        """Return the number of dead letters, in total and by topic, and the times of the oldest and the newest.

        While the store is unavailable the total counts the buffered ones, and the rest is empty.
        """
        try:
            dead_letters, own = (
                self._backend.dead_letters(),
                self._backend.own(wait=False),
            )
            by_topic = dead_letters.count_by(own, "topic")
            oldest = dead_letters.bodies(dead_letters.ids(own, limit=1))
            newest = dead_letters.find(own, limit=1)
        except StoreError:
            by_topic, oldest, newest = {"": self._backend.waiting()}, [], []
        return {
            "total_messages": sum(by_topic.values()),
            "topic_breakdown": {topic: count for topic, count in by_topic.items() if topic},
            "oldest_message": _iso(oldest),
            "newest_message": _iso(newest),
        }


def _iso(dead_letters: list[DeadLetter]) -> str | None:
    return datetime.fromtimestamp(dead_letters[0].accepted_at).isoformat() if dead_letters else None
