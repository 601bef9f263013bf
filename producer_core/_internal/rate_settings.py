"""Read the settings that limit the rate of sends."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from producer_core._internal.topic_names import TOPIC_RULE, is_topic_name
from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

RATE_SETTINGS = ("max_messages_per_second", "max_bytes_per_second", "rate_limit_burst_ms")
ALL_TOPICS = "*"
"""The key of the limit for all topics together."""

_FIX = "Write a number above 0, or one per topic: {'orders': 500, '*': 2000}. Leave the setting out for no limit."
_FIX_OF_TEXT = (
    "Write a number above 0, or one per topic: orders=500,*=2000. Leave the setting out for no limit."
)


@dataclass(frozen=True)
class RateLimits:
    """Limits per second by topic; `ALL_TOPICS` is the key of the limit for all topics together.

    An unused limit accumulates for `burst` seconds: messages may then follow each other without a delay.
    """

    messages: Mapping[str, float]
    bytes: Mapping[str, float]
    burst: float


def rate_limits(own: Mapping[str, Any]) -> RateLimits | None:
    """Return the limits that the settings give; None without any. Raise ConfigError for a value that is not valid."""
    messages, size, burst = (own.get(name) for name in RATE_SETTINGS)
    if messages is None and size is None:
        if burst is not None:
            raise ConfigError(
                "rate_limit_burst_ms is set without a rate limit.",
                fix="Set max_messages_per_second or max_bytes_per_second too.",
            )
        return None
    return RateLimits(
        _by_topic(RATE_SETTINGS[0], messages), _by_topic(RATE_SETTINGS[1], size), _burst_seconds(burst)
    )


def check_rate_text(name: str, value: str) -> None:
    """Raise ConfigError if the text of a setting that limits the rate is not valid. Other settings pass."""
    if name in RATE_SETTINGS[:2]:
        _by_topic(name, value)
    elif name == RATE_SETTINGS[2]:
        _burst_seconds(value)


def _by_topic(name: str, value: Any) -> dict[str, float]:
    if value is None:
        return {}
    fix = _FIX_OF_TEXT if isinstance(value, str) else _FIX
    if isinstance(value, str) and "=" in value:  # from a file or the environment: orders=500,*=2000
        value = _pairs(name, value)
    if not isinstance(value, Mapping):
        return {ALL_TOPICS: _rate(name, value, fix)}
    for topic in value:
        if topic != ALL_TOPICS and not is_topic_name(topic):
            raise ConfigError(
                f"{name}: {short_repr(topic)} is not a topic name.", fix=f"{TOPIC_RULE} '*' means all topics."
            )
    return {topic: _rate(name, rate, fix) for topic, rate in value.items()}


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        topic, _, rate = (piece.strip() for piece in part.partition("="))
        if not topic or not rate:
            raise ConfigError(f"{name}: {short_repr(part.strip())} is not topic=number.", fix=_FIX_OF_TEXT)
        if topic in pairs:
            raise ConfigError(f"{name} has two limits for {short_repr(topic)}.", fix="Remove one of them.")
        pairs[topic] = rate
    return pairs


def _rate(name: str, value: Any, fix: str) -> float:
    number = _number(value)
    if number is None or not 0 < number < math.inf:
        raise ConfigError(f"{name}={short_repr(value)} is not a rate.", fix=fix)
    return number


def _burst_seconds(value: Any) -> float:
    number = 1000.0 if value is None else _number(value)
    if number is None or not 0 <= number < math.inf:
        raise ConfigError(
            f"rate_limit_burst_ms={short_repr(value)} is not a number of milliseconds, 0 or more.",
            fix="With 0, messages follow each other at equal distances.",
        )
    return number / 1000


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
