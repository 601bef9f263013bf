"""Measure the native memory of this process as glibc counts it: DuckDB, librdkafka, and Python's larger blocks."""

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
    """Bytes that are allocated, and bytes that are freed but kept by glibc for later allocations."""

    in_use: int
    kept: int


def native() -> Native | None:
    """Return the current numbers, or None without glibc 2.33 or newer."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    mallinfo.restype = _Info
    info = mallinfo()
    return Native(info.uordblks + info.hblkhd, info.fordblks)
