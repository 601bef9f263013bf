"""Write a list of names in a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def join_names(names: Iterable[str], word: str = "and", *, most: int | None = None) -> str:
    """Return the names as text: `a`, `a and b`, `a, b and c`. With `most`, the others are counted: `a, b and 3 more`."""
    listed = list(names)
    if most is not None and len(listed) > most:
        listed[most:] = [f"{len(listed) - most:,} more"]
    *others, last = listed or [""]
    return f"{', '.join(others)} {word} {last}" if others else last
