"""The turns: messages that waited in a lane are sent when the one before them is out of the way."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.ordering import Lanes
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.transport import ClientQueueFull
from producer_core.events import Notice

logger = logging.getLogger(__name__)

_NO_ROOM = 0.05
"""Seconds until a message that had its turn, but found the client's queue full, tries again."""
_MINUTE = 60.0


class LaneDispatcher:
    """Sends with `produce`, which raises Full; what finds no room keeps its turn on the retry manager's heap."""

    def __init__(
        self,
        lanes: Lanes,
        *,
        produce: Callable[[Delivery], None],
        copies: DuplicateGuard,
        retries: RetryManager,
        audience: HookDispatcher,
        clock: Callable[[], float],
    ) -> None:
        self._lanes = lanes
        self._produce = produce
        self._copies = copies
        self._retries = retries
        self._audience = audience
        self._clock = clock
        self._following = threading.local()
        self._told: dict[str, float] = {}
        self.ended = False  # closing: nothing new leaves us

    def due(self, delivery: Delivery) -> None:
        """A message that waited for its own time is sent, unless an earlier one of its lane comes first."""
        if not self._lanes.turn(delivery) or (self._send_on(delivery) and self._lanes.sent(delivery)):
            self._follow(delivery)

    def gives_way(self, delivery: Delivery) -> None:
        """It waits for its twin, which may stand behind it in the lane."""
        if self._lanes.gives_way(delivery):
            self._follow(delivery)

    def settled(self, delivery: Delivery, *, acknowledged: bool) -> None:
        """A message no longer stands in its lane: those behind it may follow."""
        match self._lanes.settled(delivery, acknowledged=acknowledged):
            case "free":
                self._follow(delivery)
            case "break":
                self._broken(delivery.topic)

    def _follow(self, delivery: Delivery) -> None:
        """Send what waited for this one. What settles on the way is taken up here, not in a call inside a call."""
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
        """One after the other of a lane; one whose look has not answered holds it."""
        while not self.ended and (following := self._lanes.following(delivery)) is not None:
            if following.place is not IN_CLIENT:
                return
            if self._copies.needless(following):
                self._behind(following)
            elif not self._send_on(following):
                return

    def _behind(self, delivery: Delivery) -> None:
        """While it waited its twin was acknowledged: it is settled as a held copy is, and stands in nobody's way."""
        delivery.place = AWAITING_DUPLICATE
        self._lanes.settled(delivery, acknowledged=False)
        self._copies.hold(delivery)

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
        """It was in flight behind one that failed: counted each time, told once a minute."""
        self._audience.tell("counted", topic, "order_breaks")
        now = time.monotonic()
        if now - self._told.get(topic, -math.inf) >= _MINUTE:
            self._told[topic] = now
            text = (
                f"On {topic} a message was acknowledged while an earlier one of its key waited for its retry."
            )
            notice = Notice("order_break", "warning", text, self._clock(), {"subject": topic})
            self._audience.tell("notice", notice)
