"""A mark on a process: memory that a fork empties, also one of a C library, of which Python does not hear."""

from __future__ import annotations

import mmap
import os
from typing import Protocol

_WIPE_ON_FORK = 18
"""MADV_WIPEONFORK, Linux 4.14; not among mmap's names."""


class ForkMark(Protocol):
    """`mark[0]` is true in the process that made it, and false in its children: one test, no system call."""

    def __getitem__(self, place: int, /) -> int: ...


def mark() -> ForkMark:
    """A mark on this process."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    page = mmap.mmap(-1, mmap.PAGESIZE, **private)
    try:
        page.madvise(_WIPE_ON_FORK)
    except (AttributeError, OSError, ValueError):  # another system
        page.close()
        return _Pid()
    page[0] = 1
    return page


class _Pid:
    """The same by asking for the process each time."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, place: int, /) -> int:
        return self._pid == os.getpid()
