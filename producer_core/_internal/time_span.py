"""Return a length of time as text."""

from __future__ import annotations

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def span(seconds: float) -> str:
    """Return a length of time as text: `90 s`, `5 min`, `6 h`, `3 d`."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size and (seconds % size == 0 or seconds >= 3 * size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def exact_span(seconds: float) -> str:
    """Return a length of time in the largest unit in which it is whole: `90 s`, `270 min`, `4 h`."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:g} s"
