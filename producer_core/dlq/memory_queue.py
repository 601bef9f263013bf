"""Keep a limited number of dead letters in memory, for producers without a store."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.dlq.dataframe import LIMIT, frame
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.kafka.schemas.decoder import decoder_for
from producer_core.messages import (
    Message,
    MessageStatus,
    check_message_id,
    decode_value,
    encode_key,
    encode_value,
    parse_id,
)

if TYPE_CHECKING:
    from producer_core.producer.frames import Kind

logger = queued_logger(__name__)

Overflow = Callable[[Sequence[DeadLetter]], None]


class DeadLetterQueue:
    """The dead letters of one producer, in the order of their failures. Thread-safe.

    Above `max_size` dead letters, `max_bytes` bytes or `max_age` seconds since the failure (None: no limit), the oldest
    are passed to `overflow`, such as a spill file's `append`, and counted as `spilled`. The age is checked when a dead
    letter is added. Without `overflow` they are dropped and counted as `dropped`, and the first one logs a warning. A
    producer always sets `overflow`.
    """

    def __init__(
        self,
        max_size: int = 10000,
        *,
        max_bytes: int | None = None,
        max_age: float | None = None,
        overflow: Overflow | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_size < 1:
            raise ValueError(f"max_size must be at least 1, not {max_size}")
        self.max_size = max_size
        self.max_bytes = max_bytes
        self.max_age = max_age
        self.bytes = 0
        self.spilled = 0
        self.dropped = 0
        self._overflow = overflow
        self._clock = clock
        self._lock = threading.RLock()  # guards both dicts, `bytes`, `spilled` and `dropped`
        self._dead_letters: dict[str, DeadLetter] = {}
        self._messages: dict[str, Message] = {}

    # messages

    @property
    def messages(self) -> deque[Message]:
        """Return a copy of the messages held, the oldest first."""
        with self._lock:
            return deque(self._messages.values(), maxlen=self.max_size)

    @property
    def topic_stats(self) -> dict[str, int]:
        """Return the number of dead letters held, by topic."""
        with self._lock:
            return dict(Counter(dead_letter.topic for dead_letter in self._dead_letters.values()))

    def add_message(self, message: Message, error: str) -> None:
        """Add a message that failed permanently, with its error text."""
        text, now = str(error), self._clock()
        dead = replace(message, status=MessageStatus.DLQ, last_error=text)
        self._insert(dead_letter_of(dead, text, now), dead)
        logger.warning(
            **with_fields("dead letter", message_id=message.id, topic=message.topic, error=mask_or_hide(text))
        )

    def get_messages_by_topic(self, topic: str) -> list[Message]:
        return [message for message in self.messages if message.topic == topic]

    def get_stats(self) -> dict[str, Any]:
        """Return the statistics. `total_messages` and `topic_breakdown` count the same messages held now."""
        held = self.messages
        return {
            "total_messages": len(held),
            "topic_breakdown": dict(Counter(message.topic for message in held)),
            "oldest_message": held[0].timestamp.isoformat() if held else None,
            "newest_message": held[-1].timestamp.isoformat() if held else None,
            "spilled_messages": self.spilled,
            "dropped_messages": self.dropped,
        }

    def clear_topic(self, topic: str) -> int:
        """Remove a topic's dead letters and return their number."""
        removed = self.remove([dead_letter.message_id for dead_letter in self.dead_letters(topic)])
        logger.info(**with_fields("dead letters cleared", topic=topic, count=removed))
        return removed

    # the interface of DeadLetters, without a store

    def add(self, dead_letter: DeadLetter) -> None:
        """Add a dead letter; if the message already has one, merge the attempts."""
        with self._lock:
            dead_letter = _merged(self._dead_letters.get(dead_letter.message_id), dead_letter)
            self._insert(dead_letter, message_of(dead_letter))

    def dead_letters(self, topic: str | None = None) -> list[DeadLetter]:
        """Return the dead letters with bodies, the oldest failure first."""
        with self._lock:
            return [
                dead_letter
                for dead_letter in self._dead_letters.values()
                if topic in (None, dead_letter.topic)
            ]

    def find(
        self, where: DeadLetterFilter | None = None, *, limit: int = 100, offset: int = 0
    ) -> list[DeadLetter]:
        """Return the matching dead letters, the latest failure first."""
        where = where or DeadLetterFilter()
        found = [dead_letter for dead_letter in reversed(self.dead_letters()) if where.matches(dead_letter)]
        return found[offset : offset + limit]

    def get(self, message_id: str) -> DeadLetter | None:
        check_message_id(message_id)
        with self._lock:
            return self._dead_letters.get(message_id)

    def to_frame(
        self,
        where: DeadLetterFilter | None = None,
        *,
        kind: Kind | None = None,
        limit: int = LIMIT,
        bodies: bool = False,
        masked: bool = True,
    ) -> Any:
        """Return the matching dead letters as a data frame, the latest failure first, masked unless `masked=False`."""
        dead_letters = self.find(where, limit=limit)
        sizes = [None if one.value is None else len(one.value) for one in dead_letters]
        decoder = decoder_for(lambda: None)
        return frame(dead_letters, sizes, kind=kind, bodies=bodies, masked=masked, decoder=decoder)

    def count(self, where: DeadLetterFilter | None = None) -> int:
        """Return the number of matching dead letters."""
        return sum(map((where or DeadLetterFilter()).matches, self.dead_letters()))

    def remove(self, ids: Sequence[str]) -> int:
        """Remove these dead letters and return the number of those that were held."""
        with self._lock:
            return sum(self._remove(message_id) for message_id in ids)

    def take_unwritten(self) -> list[DeadLetter]:
        """Return the dead letters held, and forget them. The caller must keep them."""
        with self._lock:
            dead_letters = self.dead_letters()
            self.remove([dead_letter.message_id for dead_letter in dead_letters])
            return dead_letters

    def __len__(self) -> int:
        return len(self._dead_letters)

    @property
    def full(self) -> bool:
        """Return whether the queue is above a limit because `overflow` failed."""
        if not self._dead_letters:  # without the lock, because this is called for each message that is sent
            return False
        with self._lock:
            return bool(self._dead_letters) and self._is_over_limit()

    def _insert(self, dead_letter: DeadLetter, message: Message) -> None:
        with self._lock:
            self._remove(dead_letter.message_id)
            self._dead_letters[dead_letter.message_id] = dead_letter
            self._messages[dead_letter.message_id] = message
            self.bytes += _size(dead_letter)
            self._enforce_limits()

    def _remove(self, message_id: str) -> bool:
        self._messages.pop(message_id, None)
        dead_letter = self._dead_letters.pop(message_id, None)
        self.bytes -= 0 if dead_letter is None else _size(dead_letter)
        return dead_letter is not None

    def _enforce_limits(self) -> None:
        while self._dead_letters and self._is_over_limit():
            self._spill_oldest()

    def _is_over_limit(self) -> bool:
        oldest = next(iter(self._dead_letters.values()))
        return (
            len(self._dead_letters) > self.max_size
            or (self.max_bytes is not None and self.bytes > self.max_bytes)
            or (self.max_age is not None and self._clock() - oldest.failed_at > self.max_age)
        )

    def _spill_oldest(self) -> None:
        oldest = next(iter(self._dead_letters.values()))
        if self._overflow is not None:
            self._overflow([oldest])  # if this raises, the dead letter stays in memory
            self.spilled += 1
        else:
            if not self.dropped:
                logger.warning(
                    **with_fields("dead letter queue full, dropping the oldest", max_size=self.max_size)
                )
            self.dropped += 1
        self._remove(oldest.message_id)


def _size(dead_letter: DeadLetter) -> int:
    """Return the bytes of key, value and header values."""
    parts = (dead_letter.key, dead_letter.value, *(value for _, value in dead_letter.headers))
    return sum(len(part) for part in parts if part is not None)


def message_of(dead_letter: DeadLetter) -> Message:
    """Return the dead letter as a message. JSON values are decoded; other values stay bytes."""
    return Message(
        id=dead_letter.message_id,
        topic=dead_letter.topic,
        key=None if dead_letter.key is None else dead_letter.key.decode(errors="replace"),
        value=decode_value(dead_letter.value),
        timestamp=datetime.fromtimestamp(dead_letter.accepted_at),
        status=MessageStatus.DLQ,
        retry_count=max(0, len(dead_letter.attempts) - 1),
        last_error=dead_letter.error_text,
    )


def dead_letter_of(message: Message, error: str, now: float) -> DeadLetter:
    """Return a dead letter for a message without a delivery report. Its verdict is `possibly_persisted`."""
    return DeadLetter(
        message_id=message.id,
        cluster_id="",
        producer_id="",
        topic=message.topic,
        key=encode_key(message.key),
        value=encode_value(message.value),
        headers=(),
        partition=None,
        timestamp_ms=None,
        verdict="possibly_persisted",
        verdict_reason="The message was added without a delivery report; the broker may have it.",
        kind="permanent",
        code="unknown",
        error_text=error,
        fingerprint=fingerprint("unknown", error),
        attempts=(Attempt(now, "unknown", error),),
        accepted_at=message.timestamp.timestamp(),
        failed_at=now,
        replayable=_is_id(message.id),  # the message id header cannot carry any other id
    )


def _is_id(text: str) -> bool:
    try:
        parse_id(text)
    except ValueError:
        return False
    return True


def _merged(earlier: DeadLetter | None, dead_letter: DeadLetter) -> DeadLetter:
    if earlier is None:
        return dead_letter
    attempts = tuple(dict.fromkeys((*earlier.attempts, *dead_letter.attempts)))
    return replace(
        dead_letter,
        attempts=attempts,
        accepted_at=earlier.accepted_at,
        replay_count=max(earlier.replay_count, dead_letter.replay_count),
        quarantined=earlier.quarantined or dead_letter.quarantined,
        application=earlier.application or dead_letter.application,
        application_version=dead_letter.application_version or earlier.application_version,
    )
