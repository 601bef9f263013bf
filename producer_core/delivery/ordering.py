"""Order messages in lanes, so that a later message does not overtake an earlier one that is retried.

A lane is a key of a topic, or without a key a partition that the caller chose. Kafka guarantees order within a partition,
and librdkafka keeps it within the delivery timeout. The producer resends a message that librdkafka no longer retries, and
the lanes keep its order.
"""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass, field
from typing import Literal

from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery, DeliveryState

Ordering = Literal["key", "strict", "none"]
"""`key`: a failed message holds back later messages of its key. `strict`: one message of a key is in flight at a time.
`none`: a retry is sent when it is due, even after later messages."""

Lane = tuple[str, bytes | int | None]


@dataclass(slots=True)
class _LaneQueue:
    """The messages of one lane. `head` is in flight or waits for its retry; the others wait for it, ordered by sequence."""

    head: Delivery | None
    waiting: list[Delivery] = field(default_factory=list)


class Lanes:
    """Decides which message of a lane is sent next; sends nothing itself. Thread-safe."""

    def __init__(self, ordering: Ordering = "key") -> None:
        self.strict = ordering == "strict"
        self._off = ordering == "none"
        self._lock = threading.Lock()  # guards the fields below
        # Callers test whether it is empty without the lock: without failures, order then costs one test.
        self.queues: dict[Lane, _LaneQueue] = {}
        self.held = 0

    def admit(self, delivery: Delivery) -> bool:
        """Return whether a new message can be sent now; otherwise it waits in its lane until `following` returns it."""
        lane = self._lane(delivery)
        if lane is None or not (self.strict or self.queues):
            return True
        with self._lock:
            queue = self.queues.get(lane)
            if queue is None:
                if self.strict:
                    self.queues[lane] = _LaneQueue(delivery)
                return True
            self._insert(queue, delivery)
            return False

    def failed(self, delivery: Delivery) -> None:
        """Hold back the later messages of a lane: this message failed and will be sent again."""
        lane = self._lane(delivery)
        if lane is None:
            return
        with self._lock:
            queue = self.queues.setdefault(lane, _LaneQueue(delivery))
            if queue.head is not delivery and delivery not in queue.waiting:
                self._insert(queue, delivery)

    def take_turn(self, delivery: Delivery) -> bool:
        """Return whether a message that is due can be sent; otherwise it waits in its lane behind an earlier one."""
        lane = self._lane(delivery)
        if lane is None:
            return True
        with self._lock:
            if delivery.state is not QUEUED:
                return False  # another thread sends it
            queue = self.queues.get(lane)
            if queue is None:
                if self.strict or delivery.attempts:
                    self.queues[lane] = _LaneQueue(delivery)
                delivery.state = IN_CLIENT
                return True
            if queue.head is delivery:
                queue.head = None
                self._insert(queue, delivery)
            elif delivery not in queue.waiting:
                self._insert(queue, delivery)
            if queue.head is None and queue.waiting[0] is delivery:
                queue.head = self._pop_first(queue)
            if queue.head is not delivery:
                return False
            delivery.state = IN_CLIENT
            return True

    def set_waiting(self, delivery: Delivery, state: DeliveryState) -> bool:
        """Set the state of a waiting message; return False when another thread sends the message."""
        with self._lock:
            if delivery.state not in (QUEUED, AWAITING_DUPLICATE):
                return False
            delivery.state = state
            return True

    def yield_turn(self, delivery: Delivery) -> bool:
        """Let an earlier message of the lane go before a head that waits for its original; return False if there is none.

        The earlier message may be that original: two threads can journal messages in an order other than that of their
        sequences.
        """
        lane = self._lane(delivery)
        with self._lock:
            queue = None if lane is None else self.queues.get(lane)
            if queue is None or queue.head is not delivery or not queue.waiting:
                return False
            if queue.waiting[0].seq > delivery.seq:
                return False
            queue.head = None
            self._insert(queue, delivery)
            return True

    def withdraw(self, delivery: Delivery) -> bool:
        """Take a waiting message out of its lane, to wait for its original; return False when it does not wait there."""
        lane = self._lane(delivery)
        with self._lock:
            queue = None if lane is None else self.queues.get(lane)
            if queue is None or delivery not in queue.waiting or delivery.state is not QUEUED:
                return False
            self._remove(queue, delivery)
            delivery.state = AWAITING_DUPLICATE
            return True

    def sent(self, delivery: Delivery) -> bool:
        """Note that a message is in flight; return whether others of its lane can follow at once."""
        lane = self._lane(delivery)
        if lane is None or self.strict or delivery.attempts:
            return False
        with self._lock:
            queue = self.queues.get(lane)
            if queue is None or queue.head is not delivery:
                return False
            queue.head = None
            return True

    def settled(self, delivery: Delivery, *, acknowledged: bool) -> Literal["free", "overtook", ""]:
        """Take a settled message out of its lane; return `free` when others of the lane can follow now.

        `overtook`: it was acknowledged while an earlier message of its lane still waits, so their order is broken.
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
            return "overtook" if acknowledged and self._earlier_waits(queue, delivery) else ""

    def following(self, delivery: Delivery) -> Delivery | None:
        """Return the next message of a settled message's lane, or None when the lane is empty or held again.

        Call it until it returns None. With `key` it returns all waiting messages, one after the other. With `strict`, and
        for a message that failed before, the returned message holds the lane again.
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
            following = self._pop_first(queue)
            if self.strict or following.attempts:
                queue.head = following
            if following.state is QUEUED:
                following.state = IN_CLIENT
            return following

    def put_back(self, delivery: Delivery) -> None:
        """Give a message the head of its lane again: the client had no room for it."""
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

    def _insert(self, queue: _LaneQueue, delivery: Delivery) -> None:
        bisect.insort(queue.waiting, delivery, key=_sequence)
        self.held += 1

    def _pop_first(self, queue: _LaneQueue) -> Delivery:
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
