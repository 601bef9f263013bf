"""Track settled messages that are not recorded as done yet, so that they are not taken for waiting messages."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

from producer_core.delivery.delivery import Delivery


class SettlingSet:
    """Holds the sequences of messages that left `pending` until a pending log has recorded them as done. Thread-safe.

    With `settles_journal` the transport itself records what it reports as acknowledged. The message of a replay is never in
    the set, because its dead letter records the outcome.
    """

    def __init__(self, pending: dict[bytes, Delivery], *, settles_journal: bool) -> None:
        self._pending = pending
        self._settles_journal = settles_journal
        self._lock = threading.Lock()  # guards the two fields below
        self._settling: set[int] = set()
        self._finished: list[int] = []

    @property
    def unfinished(self) -> int:
        """The number of messages that left `pending` and are neither acknowledged nor stored as dead letters.

        A message whose end the journal failed to record is not counted.
        """
        with self._lock:
            return len(self._settling.difference(self._finished))

    def remove(self, delivery: Delivery) -> bool:
        """Move a message from `pending` to this set in one step; return False when another thread settled it first."""
        with self._lock:
            if self._pending.pop(delivery.id, None) is None:
                return False
            if delivery.on_replayed is None:
                self._settling.add(delivery.seq)
            return True

    def remove_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """Do the same as `remove` for each message. None of them is a replay."""
        with self._lock:
            pop = self._pending.pop
            removed = [pop(delivery.id, None) is not None for delivery in deliveries]
            self._settling.update([delivery.seq for delivery in compress(deliveries, removed)])
        return removed

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None:
        """Mark acknowledged messages as finished, or drop them if the transport records them."""
        sequences = [
            delivery.seq
            for delivery in deliveries
            if (callbacks := delivery.callbacks) is None or callbacks.on_replayed is None
        ]
        with self._lock:
            if self._settles_journal:
                self._settling.difference_update(sequences)
            else:
                self._finished += sequences

    def finished(self, sequences: Iterable[int]) -> None:
        """Mark as finished the messages that the transport does not record."""
        with self._lock:
            self._finished += sequences

    def take_finished(self) -> list[int]:
        """Return the finished sequences that are not recorded yet, and clear them."""
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def written(self, sequences: Collection[int]) -> None:
        """Drop sequences that are recorded as done."""
        with self._lock:
            self._settling.difference_update(sequences)

    def of(self, sequences: Iterable[int]) -> list[int]:
        """Return those of the sequences that are in this set."""
        with self._lock:
            return [seq for seq in sequences if seq in self._settling]

    def contains(self, message_id: bytes, seq: int) -> bool:
        """Return whether the message is in `pending` or in this set."""
        with self._lock:
            return message_id in self._pending or seq in self._settling
