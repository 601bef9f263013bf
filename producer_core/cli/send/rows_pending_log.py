"""The pending log of a file's send: the input file itself holds the rows that are not settled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from producer_core.delivery import replayable_source
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.settling import SettlingSet
from producer_core.errors import QueueFull
from producer_core.kafka.newer_keys import NEWER_RECORD

_ROOM_TIMEOUT = 0.5
"""Seconds a row waits for room in the client before control returns to the sender."""


class RowProgress(Protocol):
    """The part of `FileProgress` that the pending log needs."""

    held_back: list[int]

    def reach(self, seq: int) -> None: ...
    def is_superseded(self, seq: int, key: bytes | None) -> bool: ...
    def settle(self, seqs: Iterable[int]) -> None: ...
    def rows_of(self, message_ids: Iterable[str]) -> list[int]: ...
    def give_up(self, seqs: Iterable[int]) -> None: ...


class RowsPendingLog:
    """Passes the delivery engine's events to `FileProgress`. The input file itself holds the pending rows."""

    def __init__(self, progress: RowProgress, sender: replayable_source.FeederTarget) -> None:
        self._progress = progress
        self._sender = sender
        self._room = threading.Event()  # set after each batch of delivery reports
        self._settling = SettlingSet(sender.pending, settles_journal=sender.transport.settles_journal)

    waiting = 0

    @property
    def unstored_dead_letters(self) -> int:
        return self._settling.unfinished

    def start(self) -> None:
        """Do nothing: `send` itself reads the rows."""

    def stop(self) -> None:
        """Do nothing: no thread runs."""

    def holds(self, seq: int) -> bool:
        return False

    def take(self, delivery: Delivery) -> None:
        """Enqueue the row, waiting for room. Raise QueueFull when none appears; the row is still in the file."""
        self._progress.reach(delivery.seq)
        if self._progress.is_superseded(delivery.seq, delivery.key):
            self._progress.held_back.append(delivery.seq)
            self._sender.hold_back(delivery, NEWER_RECORD)
            return
        deadline = time.monotonic() + _ROOM_TIMEOUT
        while not self._sender.offer(delivery):
            if time.monotonic() > deadline:
                raise QueueFull(f"No room for the next row within {_ROOM_TIMEOUT} s.")
            self._room.clear()
            self._room.wait(_ROOM_TIMEOUT / 10)

    def take_many(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        """Enqueue the rows one by one."""
        for delivery in deliveries:
            self.take(delivery)
            taken.append(delivery)

    def remove(self, delivery: Delivery) -> bool:
        return self._settling.remove(delivery)

    def remove_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        return self._settling.remove_many(deliveries)

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None:
        self._settling.acknowledged(deliveries)

    def claim_requested(self, message_id: bytes, earlier: Delivery) -> None:
        """Do nothing: no row is claimed before it is enqueued."""

    def mark_redundant(self, delivery: Delivery) -> None:
        self._settling.finished((delivery.seq,) if delivery.on_replayed is None else ())

    def flush(self) -> None:
        self._room.set()
        finished = self._settling.take_finished()
        self._settling.written(finished)
        if finished:
            self._progress.settle(finished)

    def dead_letters_stored(self, message_ids: Iterable[str]) -> None:
        rows = self._progress.rows_of(message_ids)
        self._settling.written(rows)
        if rows:
            self._progress.give_up(rows)
