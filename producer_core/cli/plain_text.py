"""Text from records as a terminal may have it: what would steer the terminal, or turn the reading order, is escaped."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_JOINERS = "\u200c\u200d"
"""They shape letters of some scripts, and many emoji; they turn nothing around."""


def plain(text: str) -> str:
    """The text with `\\x1b`, `\\u202e` and their like written out; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def in_json(text: str) -> str:
    """The same for JSON, where only strings can have such dead letters: it stays the same value."""
    return text if text.isascii() else "".join(_escaped(dead_letter) for dead_letter in text)


@lru_cache(4096)
def _shown(dead_letter: str) -> str:
    if not _steers(dead_letter):
        return dead_letter
    number = ord(dead_letter)
    return (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
    )


@lru_cache(4096)
def _escaped(dead_letter: str) -> str:
    if not _steers(dead_letter):
        return dead_letter
    units = dead_letter.encode("utf-16-be")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))


def _steers(dead_letter: str) -> bool:
    """A control character, or one of the invisible ones that change how others stand (category Cf), or half a pair."""
    if _CONTROLS.match(dead_letter):
        return True
    return dead_letter not in _JOINERS and unicodedata.category(dead_letter) in ("Cf", "Cs")
