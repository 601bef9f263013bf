"""Group messages that are claimed, journaled and synced in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

TOGETHER = 500
"""Messages that are claimed in one round trip, and written into the journal, or read back from it, in one step."""

_LARGE = 4 << 20
"""Bytes of a group from which on nothing more is put to it."""

_MOMENT = 0.05
"""Seconds that the first of a group waits for others, where making them is slow."""


class HasValue(Protocol):
    """A delivery, or the journal's record of one."""

    @property
    def value(self) -> bytes | None: ...


T = TypeVar("T", bound=HasValue)


def groups(messages: Iterable[T], *, clock: Callable[[], float] = time.monotonic) -> Iterator[list[T]]:
    """Of so many, of so many bytes, or of what came in a moment; also what came before the input failed.

    The input is at hand: one that has to be waited for would keep back what came before.
    """
    group: list[T] = []
    size, until = 0, 0.0
    try:
        for message in messages:
            if not group:
                size, until = 0, clock() + _MOMENT
            group.append(message)
            size += len(message.value or b"")
            if len(group) == TOGETHER or size >= _LARGE or clock() >= until:
                whole, group = group, []
                yield whole
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group
