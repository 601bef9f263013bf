"""Send the messages that wait in a lane once the message before them is settled."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery
from producer_core.delivery.transport import ClientQueueFull
from producer_core.events import Notice

_QUEUE_FULL_DELAY = 0.05
"""Seconds until a message that found the client's queue full is sent again."""
_REPORT_INTERVAL = 60.0
"""Seconds between two notices about the order of the same topic."""


class LaneDispatcher:
    """Sends messages with `produce`. A message for which `produce` raises ClientQueueFull keeps its turn and is sent later."""

    def __init__(self, context: DeliveryContext, produce: Callable[[Delivery], None]) -> None:
        self._produce = produce
        self._lanes = context.lanes
        self._duplicates = context.duplicates
        self._retries = context.retries
        self._hooks = context.hooks
        self._clock = context.settings.clock
        self._following = threading.local()
        self._reported: dict[str, float] = {}  # by topic: when broken order was last reported
        self.ended = False  # closing: nothing new is sent

    def due(self, delivery: Delivery) -> None:
        """Send a message whose retry time has come, unless an earlier message of its lane comes first."""
        if not self._lanes.take_turn(delivery) or (self._send(delivery) and self._lanes.sent(delivery)):
            self._follow(delivery)

    def yield_turn(self, delivery: Delivery) -> None:
        """Send earlier messages of the lane while this one waits for its original, which may be among them."""
        if self._lanes.yield_turn(delivery):
            self._follow(delivery)

    def settled(self, delivery: Delivery, *, acknowledged: bool) -> None:
        """Send what follows a settled message in its lane."""
        match self._lanes.settled(delivery, acknowledged=acknowledged):
            case "free":
                self._follow(delivery)
            case "overtook":
                self._count_order_break(delivery.topic)

    def _follow(self, delivery: Delivery) -> None:
        """Send the messages that waited for this one. Messages that settle during the loop are queued, to avoid recursion."""
        todo: list[Delivery] | None = getattr(self._following, "todo", None)
        if todo is not None:
            todo.append(delivery)
            return
        self._following.todo = todo = [delivery]
        try:
            while todo:
                self._advance(todo.pop())
        finally:
            self._following.todo = None

    def _advance(self, delivery: Delivery) -> None:
        """Send the messages of a lane in order, up to one that is not ready, for example because it is probed."""
        while not self.ended and (following := self._lanes.following(delivery)) is not None:
            if following.state is not IN_CLIENT:
                return
            if self._duplicates.is_redundant(following):
                self._await_original(following)
            elif not self._send(following):
                return

    def _await_original(self, delivery: Delivery) -> None:
        """Take a message whose original was acknowledged out of its lane; it is settled as a held duplicate."""
        delivery.state = AWAITING_DUPLICATE
        self._lanes.settled(delivery, acknowledged=False)
        self._duplicates.hold(delivery)

    def _send(self, delivery: Delivery) -> bool:
        try:
            self._produce(delivery)
        except ClientQueueFull:
            self._send_later(delivery)
            return False
        except BaseException:  # an interrupt of the user's thread
            if delivery.state is QUEUED:
                self._send_later(delivery)
            raise
        return True

    def _send_later(self, delivery: Delivery) -> None:
        self._lanes.put_back(delivery)
        self._retries.schedule(delivery, _QUEUE_FULL_DELAY, counted=False)

    def _count_order_break(self, topic: str) -> None:
        """Count a message that overtook a failed one, and report it once a minute for each topic."""
        self._hooks.counted(topic, "order_breaks")
        now = time.monotonic()
        if now - self._reported.get(topic, -math.inf) >= _REPORT_INTERVAL:
            self._reported[topic] = now
            self._hooks.notice(order_break(topic, self._clock()))


def order_break(topic: str, at: float) -> Notice:
    """Return the notice that a message overtook an earlier one of its key."""
    text = f"On {topic} a message was acknowledged before an earlier one with the same key was retried."
    return Notice("order_break", "warning", text, at, {"subject": topic})
