"""Detect a fork through a page of memory that the kernel clears in the child, even for forks in C libraries."""

from __future__ import annotations

import mmap
import os
from typing import Protocol

_WIPE_ON_FORK = 18
"""MADV_WIPEONFORK, since Linux 4.14; Python's mmap does not define it."""


class ForkMark(Protocol):
    """`mark[0]` is true in the creating process and false in its children: one test, no system call."""

    def __getitem__(self, place: int, /) -> int: ...


def mark() -> ForkMark:
    """Return a mark for this process."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    page = mmap.mmap(-1, mmap.PAGESIZE, **private)
    try:
        page.madvise(_WIPE_ON_FORK)
    except (AttributeError, OSError, ValueError):  # not supported by this system
        page.close()
        return _Pid()
    page[0] = 1
    return page


class _Pid:
    """A mark for other systems, which compares process ids."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, place: int, /) -> int:
        return self._pid == os.getpid()
