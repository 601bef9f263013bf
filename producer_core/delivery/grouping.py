"""Group messages that are claimed, journaled and synced in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

TOGETHER = 500
"""The maximum number of messages of a group: claimed in one round trip, and written to the journal or read from it in one step."""

_MAX_BYTES = 4 << 20
"""The size at which a group is complete."""

_MAX_WAIT = 0.05
"""Seconds that the first message of a group waits for others, for an input that is slow."""


class HasValue(Protocol):
    """A delivery, or the journal's record of one."""

    @property
    def value(self) -> bytes | None: ...


T = TypeVar("T", bound=HasValue)


def groups(messages: Iterable[T], *, clock: Callable[[], float] = time.monotonic) -> Iterator[list[T]]:
    """Yield groups that are limited by count, size and time; if the input fails, yield the messages before it first.

    The time limit is checked only when a message arrives, so an input that blocks delays the messages before it.
    """
    group: list[T] = []
    size, deadline = 0, 0.0
    try:
        for message in messages:
            if not group:
                size, deadline = 0, clock() + _MAX_WAIT
            group.append(message)
            size += len(message.value or b"")
            if len(group) == TOGETHER or size >= _MAX_BYTES or clock() >= deadline:
                complete, group = group, []
                yield complete
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group
