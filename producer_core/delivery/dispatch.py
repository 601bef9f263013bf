"""Send the messages that waited in a lane once the message before them is settled."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery
from producer_core.delivery.transport import ClientQueueFull
from producer_core.events import Notice

logger = logging.getLogger(__name__)

_NO_ROOM = 0.05
"""Seconds until a message that found the client's queue full is tried again."""
_MINUTE = 60.0


class LaneDispatcher:
    """Sends with `produce`, which raises ClientQueueFull; a message that finds no room keeps its turn and is tried again."""

    def __init__(self, context: DeliveryContext, produce: Callable[[Delivery], None]) -> None:
        self._produce = produce
        self._lanes = context.lanes
        self._duplicates = context.duplicates
        self._retries = context.retries
        self._hooks = context.hooks
        self._clock = context.settings.clock
        self._following = threading.local()
        self._reported: dict[str, float] = {}  # by topic: when a break of its order was reported
        self.ended = False  # closing: nothing new is sent

    def due(self, delivery: Delivery) -> None:
        """Send a message whose retry time has come, unless an earlier message of its lane comes first."""
        if not self._lanes.turn(delivery) or (self._send_on(delivery) and self._lanes.sent(delivery)):
            self._follow(delivery)

    def gives_way(self, delivery: Delivery) -> None:
        """Let the lane go on while this message waits for its original, which may be behind it in the lane."""
        if self._lanes.gives_way(delivery):
            self._follow(delivery)

    def settled(self, delivery: Delivery, *, acknowledged: bool) -> None:
        """Send what follows a settled message in its lane."""
        match self._lanes.settled(delivery, acknowledged=acknowledged):
            case "free":
                self._follow(delivery)
            case "break":
                self._broken(delivery.topic)

    def _follow(self, delivery: Delivery) -> None:
        """Send the messages that waited for this one. Messages that settle during the loop are queued, not handled recursively."""
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
        """Send the messages of a lane in order, up to one that is still being probed."""
        while not self.ended and (following := self._lanes.following(delivery)) is not None:
            if following.place is not IN_CLIENT:
                return
            if self._duplicates.is_redundant(following):
                self._wait_for_original(following)
            elif not self._send_on(following):
                return

    def _wait_for_original(self, delivery: Delivery) -> None:
        """Its original was acknowledged while it waited: take it out of the lane, and settle it as a held duplicate."""
        delivery.place = AWAITING_DUPLICATE
        self._lanes.settled(delivery, acknowledged=False)
        self._duplicates.hold(delivery)

    def _send_on(self, delivery: Delivery) -> bool:
        try:
            self._produce(delivery)
        except ClientQueueFull:
            self._later(delivery)
            return False
        except BaseException:  # an interrupt of the user's thread
            if delivery.place is QUEUED:
                self._later(delivery)
            raise
        return True

    def _later(self, delivery: Delivery) -> None:
        self._lanes.put_back(delivery)
        self._retries.schedule(delivery, _NO_ROOM, counted=False)

    def _broken(self, topic: str) -> None:
        """Count a message that overtook a failed one; report it once a minute by topic."""
        self._hooks.counted(topic, "order_breaks")
        now = time.monotonic()
        if now - self._reported.get(topic, -math.inf) >= _MINUTE:
            self._reported[topic] = now
            text = (
                f"On {topic} a message was acknowledged while an earlier one of its key waited for its retry."
            )
            notice = Notice("order_break", "warning", text, self._clock(), {"subject": topic})
            self._hooks.notice(notice)
