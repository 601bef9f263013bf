"""Write a number with its noun."""

from __future__ import annotations


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun: `1 message`, `2,000 messages`. `many` is an irregular plural: `1 is`, `2 are`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def them(number: int) -> str:
    """Return the pronoun for that many things: `it` or `them`."""
    return "it" if number == 1 else "them"
