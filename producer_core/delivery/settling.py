"""What has left `pending` and is not written down as done yet: nobody may take it for a message that waits."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

from producer_core.delivery.delivery import Delivery


class SettlingSet:
    """The sequences between `pending` and whoever keeps messages; safe from any thread.

    `proves`: the transport writes down itself what it reports as acknowledged. A replay's message is kept elsewhere, so
    it leaves nothing behind.
    """

    def __init__(self, pending: dict[bytes, Delivery], *, settles_journal: bool) -> None:
        self._pending = pending
        self._proves = settles_journal
        self._lock = threading.Lock()  # guards the two fields below
        self._leaving: set[int] = set()
        self._finished: list[int] = []

    @property
    def unfinished(self) -> int:
        """How many have left and are neither acknowledged nor kept; those whose end the journal could not write down count
        as done."""
        with self._lock:
            return len(self._leaving.difference(self._finished))

    def leave(self, delivery: Delivery) -> bool:
        """Take a message out of `pending`; False when somebody else did. One step with remembering it."""
        with self._lock:
            if self._pending.pop(delivery.id, None) is None:
                return False
            if delivery.on_replayed is None:
                self._leaving.add(delivery.seq)
            return True

    def leave_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """As `leave` for each, none of which is a replay."""
        with self._lock:
            take = self._pending.pop
            left = [take(delivery.id, None) is not None for delivery in deliveries]
            self._leaving.update([delivery.seq for delivery in compress(deliveries, left)])
        return left

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None:
        """They are done; `take_finished` hands out what is to be written down of them."""
        done = [delivery.seq for delivery in deliveries if delivery.on_replayed is None]
        with self._lock:
            if self._proves:
                self._leaving.difference_update(done)
            else:
                self._finished += done

    def finished(self, sequences: Iterable[int]) -> None:
        """They are done, whatever the transport proves."""
        with self._lock:
            self._finished += sequences

    def take_finished(self) -> list[int]:
        """What is done and not written down."""
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def written(self, sequences: Collection[int]) -> None:
        with self._lock:
            self._leaving.difference_update(sequences)

    def of(self, sequences: Iterable[int]) -> list[int]:
        """Those among them that are leaving."""
        with self._lock:
            return [seq for seq in sequences if seq in self._leaving]

    def knows(self, message_id: bytes, seq: int) -> bool:
        """Whether the message is in `pending` or leaving."""
        with self._lock:
            return message_id in self._pending or seq in self._leaving
