"""The lanes: which messages wait for which, so that a retry does not put a later message before an earlier one.

A lane is a key of a topic (without a key: the partition asked for). Kafka promises order within a partition, and
librdkafka keeps it within its delivery timeout; what it gave up and we send again is ours to keep in order.
"""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass, field
from typing import Literal

from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery, DeliveryState

Ordering = Literal["key", "strict", "none"]
"""`key`: a failed message holds back the later ones of its key. `strict`: one message of a key is in flight at
a time. `none`: a retry is sent when it is due, whatever went before it."""

Lane = tuple[str, bytes | int | None]


@dataclass(slots=True)
class _LaneQueue:
    """What waits in one lane. `head` is sent or waits for its own retry; the others wait for it, by sequence."""

    head: Delivery | None
    waiting: list[Delivery] = field(default_factory=list)


class Lanes:
    """Decides whose turn it is; sends nothing itself. Safe from any thread."""

    def __init__(self, ordering: Ordering = "key") -> None:
        self.strict = ordering == "strict"
        self._off = ordering == "none"
        self._lock = threading.Lock()  # guards the fields below
        self.queues: dict[
            Lane, _LaneQueue
        ] = {}  # looked at without the lock, so that an idle path pays one test
        self.held = 0

    def admit(self, delivery: Delivery) -> bool:
        """Whether a new message may go now; otherwise it waits in its lane until `following` hands it out."""
        lane = self._lane(delivery)
        if lane is None or not (self.strict or self.queues):
            return True
        with self._lock:
            queue = self.queues.get(lane)
            if queue is None:
                if self.strict:
                    self.queues[lane] = _LaneQueue(delivery)
                return True
            self._wait(queue, delivery)
            return False

    def failed(self, delivery: Delivery) -> None:
        """A message will be sent again: whatever follows in its lane waits from now on."""
        lane = self._lane(delivery)
        if lane is None:
            return
        with self._lock:
            queue = self.queues.setdefault(lane, _LaneQueue(delivery))
            if queue.head is not delivery and delivery not in queue.waiting:
                self._wait(queue, delivery)

    def turn(self, delivery: Delivery) -> bool:
        """Whether a message that is due may go; if not it waits in its lane, behind an earlier one that waits too."""
        lane = self._lane(delivery)
        if lane is None:
            return True
        with self._lock:
            if delivery.place is not QUEUED:
                return False  # handed out meanwhile
            queue = self.queues.get(lane)
            if queue is None:
                if self.strict or delivery.attempts:
                    self.queues[lane] = _LaneQueue(delivery)
                delivery.place = IN_CLIENT
                return True
            if queue.head is delivery:
                queue.head = None
                self._wait(queue, delivery)
            elif delivery not in queue.waiting:
                self._wait(queue, delivery)
            if queue.head is None and queue.waiting[0] is delivery:
                queue.head = self._take(queue)
            if queue.head is not delivery:
                return False
            delivery.place = IN_CLIENT
            return True

    def waits(self, delivery: Delivery, place: DeliveryState) -> bool:
        """Note where a message waits; False when it was handed out meanwhile."""
        with self._lock:
            if delivery.place not in (QUEUED, AWAITING_DUPLICATE):
                return False
            delivery.place = place
            return True

    def gives_way(self, delivery: Delivery) -> bool:
        """Whether an earlier one stands behind a head that waits for its twin: it is next, and may be that twin.

        Two threads may write messages down in another order than they were numbered.
        """
        lane = self._lane(delivery)
        with self._lock:
            queue = None if lane is None else self.queues.get(lane)
            if queue is None or queue.head is not delivery or not queue.waiting:
                return False
            if queue.waiting[0].seq > delivery.seq:
                return False
            queue.head = None
            self._wait(queue, delivery)
            return True

    def steps_back(self, delivery: Delivery) -> bool:
        """Whether a message waited in its lane: it is behind its twin from now on, and out of the lane."""
        lane = self._lane(delivery)
        with self._lock:
            queue = None if lane is None else self.queues.get(lane)
            if queue is None or delivery not in queue.waiting or delivery.place is not QUEUED:
                return False
            self._remove(queue, delivery)
            delivery.place = AWAITING_DUPLICATE
            return True

    def sent(self, delivery: Delivery) -> bool:
        """A message that had its turn is in flight; True when others of its lane can follow at once."""
        lane = self._lane(delivery)
        if lane is None or self.strict or delivery.attempts:
            return False
        with self._lock:
            queue = self.queues.get(lane)
            if queue is None or queue.head is not delivery:
                return False
            queue.head = None
            return True

    def settled(self, delivery: Delivery, *, acknowledged: bool) -> Literal["free", "break", ""]:
        """A message is out of the way; `free` when others of its lane can follow now.

        `break` when it was acknowledged while an earlier one of its lane still waits: their order is broken.
        """
        if not self.queues or (lane := self._lane(delivery)) is None:
            return ""
        with self._lock:
            queue = self.queues.get(lane)
            if queue is None:
                return ""
            if queue.head is delivery:
                queue.head = None
                return "free"
            self._remove(queue, delivery)
            return "break" if acknowledged and self._earlier_waits(queue, delivery) else ""

    def following(self, delivery: Delivery) -> Delivery | None:
        """The next message of a settled one's lane, or None when the lane is empty or held again.

        Call it until it says None: with `key` all that waited may go, one after the other; with `strict`, and
        before a message that failed itself, the lane is held again by the one handed out.
        """
        lane = self._lane(delivery)
        if lane is None:
            return None
        with self._lock:
            queue = self.queues.get(lane)
            if queue is None or queue.head is not None:
                return None
            if not queue.waiting:
                del self.queues[lane]
                return None
            following = self._take(queue)
            if self.strict or following.attempts:
                queue.head = following
            if following.place is QUEUED:
                following.place = IN_CLIENT
            return following

    def put_back(self, delivery: Delivery) -> None:
        """There was no room for a message that had its turn: it keeps the turn."""
        lane = self._lane(delivery)
        if lane is None:
            return
        with self._lock:
            queue = self.queues.setdefault(lane, _LaneQueue(None))
            if queue.head is None:
                queue.head = delivery

    def _lane(self, delivery: Delivery) -> Lane | None:
        if self._off or delivery.on_replayed is not None:
            return None
        if delivery.key is not None:
            return (delivery.topic, delivery.key)
        partition = -1 if delivery.placement.computed else delivery.partition
        if partition >= 0 or self.strict:
            return (delivery.topic, partition)
        return None

    def _wait(self, queue: _LaneQueue, delivery: Delivery) -> None:
        bisect.insort(queue.waiting, delivery, key=_sequence)
        self.held += 1

    def _take(self, queue: _LaneQueue) -> Delivery:
        self.held -= 1
        return queue.waiting.pop(0)

    def _remove(self, queue: _LaneQueue, delivery: Delivery) -> None:
        if delivery in queue.waiting:
            queue.waiting.remove(delivery)
            self.held -= 1

    @staticmethod
    def _earlier_waits(queue: _LaneQueue, delivery: Delivery) -> bool:
        first = queue.head or (queue.waiting[0] if queue.waiting else None)
        return first is not None and first.seq < delivery.seq


def _sequence(delivery: Delivery) -> int:
    return delivery.seq
