"""A group: dead letters with one cause, known by the fingerprint of their error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from producer_core.errors import ConfigError
from producer_core.failures import lookup


@dataclass(frozen=True)
class Group:
    """`meaning` and `advice` are from the failures table; empty for a code it does not know."""

    fingerprint: str
    code: str
    count: int
    first_seen: float
    last_seen: float
    topics: tuple[str, ...]
    sample_text: str
    meaning: str
    advice: str
    verdicts: Mapping[str, int]


def read_group(row: Mapping[str, Any]) -> Group:
    """A group from its row, with what the failures table says of its code."""
    meaning, advice = explained(row["code"])
    return Group(
        **{
            name: row[name]
            for name in ("fingerprint", "code", "count", "first_seen", "last_seen", "sample_text")
        },
        topics=tuple(row["topics"]),
        meaning=meaning,
        advice=advice,
        verdicts=dict(row["verdicts"]),
    )


def explained(code: str) -> tuple[str, str]:
    """What an error code means, and what to do about it."""
    try:
        failure = lookup(code)
    except ConfigError:
        return "", ""
    return failure.meaning, failure.advice
