"""Limit what a value of unknown origin may become when it is read with a schema of unknown origin."""

from __future__ import annotations

import math

MAX_DEPTH = 100
MAX_PARTS = 100_000
MAX_NAME = 256
"""Characters of the longest name of a field, enum symbol or message type."""
MAX_SCHEMA_TEXT = 2 << 20
"""Characters of a read value that come from its schema: a few bytes can repeat a long name many times."""


class NotReadable(ValueError):
    """The bytes do not fit the schema. The text has no content of the value."""


class UnusableSchema(Exception):
    """The schema cannot be used to read values. The text is a sentence."""


class ReadBudget:
    """Counts the parts of one value and the text that its schema adds. Each method raises NotReadable at a limit."""

    def __init__(self) -> None:
        self._parts = 0
        self._text = 0

    def part(self, depth: int) -> None:
        """Count a field, item or branch at this depth."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise NotReadable(f"it has more than {MAX_PARTS:,} parts")
        if depth > MAX_DEPTH:
            raise NotReadable(f"it is nested deeper than {MAX_DEPTH} levels")

    def name(self, text: str) -> str:
        """Count a name of the schema, and return it."""
        if len(text) > MAX_NAME:
            raise NotReadable(f"its schema has a name of more than {MAX_NAME:,} characters")
        return self.text(text)

    def text(self, text: str) -> str:
        """Count a text that the schema makes longer than its bytes, and return it."""
        self._text += len(text)
        if self._text > MAX_SCHEMA_TEXT:
            raise NotReadable(
                f"the names of its schema would fill more than {MAX_SCHEMA_TEXT >> 20} MiB of the result"
            )
        return text


def finite(value: float) -> float | str:
    """Return a number, or the text of one that JSON does not have."""
    return value if math.isfinite(value) else str(value)
