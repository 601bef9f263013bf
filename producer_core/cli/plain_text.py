"""Escapes text from records for a terminal: characters that control the terminal or reverse the reading order."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_JOINERS = "\u200c\u200d"
"""Joining characters of some scripts and many emoji. They do not change the reading order."""


def plain(text: str) -> str:
    """Return the text with `\\x1b`, `\\u202e` and similar characters escaped. Line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_printable, text))


def in_json(text: str) -> str:
    """Return JSON with the same characters escaped inside its strings. The value of the JSON stays the same."""
    return text if text.isascii() else "".join(_json_escaped(character) for character in text)


@lru_cache(4096)
def _printable(character: str) -> str:
    if not _is_unsafe(character):
        return character
    number = ord(character)
    return (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
    )


@lru_cache(4096)
def _json_escaped(character: str) -> str:
    if not _is_unsafe(character):
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


def _is_unsafe(character: str) -> bool:
    """Return whether it is a control character, an invisible format character (category Cf), or half a surrogate pair."""
    if _CONTROLS.match(character):
        return True
    return character not in _JOINERS and unicodedata.category(character) in ("Cf", "Cs")
