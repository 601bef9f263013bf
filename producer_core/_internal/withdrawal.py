"""Withdraw a message whose `send_async` was cancelled, while its thread waits for a rate limit or for room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_CURRENT: ContextVar[Withdrawal | None] = ContextVar("withdrawal", default=None)


class Withdrawal:
    """Ends the waits of one call that runs on another thread. A message that was accepted is not withdrawn."""

    def __init__(self) -> None:
        self._requested = False

    def request(self) -> None:
        """Withdraw the message, if it is not accepted yet. Returns at once."""
        self._requested = True

    def run(self, function: Callable[[], T]) -> T:
        """Call a function whose waits `request` ends."""
        _CURRENT.set(self)
        self.check()
        return function()

    def check(self) -> None:
        if self._requested:
            raise asyncio.CancelledError


def check_withdrawn() -> None:
    """Raise CancelledError if the caller of this thread's message was cancelled. Called between two steps of a wait."""
    if (current := _CURRENT.get()) is not None:
        current.check()
