"""What C libraries in this process hold of memory, as glibc counts it: DuckDB, librdkafka, Python's larger blocks."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_NAMES = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _NAMES]


@dataclass(frozen=True)
class Native:
    """Bytes: given out and not got back; and got back, but kept for the next who asks."""

    in_use: int
    kept: int


def native() -> Native | None:
    """None without glibc, and before 2.33."""
    try:
        asked = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    asked.restype = _Info
    info = asked()
    return Native(info.uordblks + info.hblkhd, info.fordblks)
