"""Alerts in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.words.moments import age

TONES: Mapping[str, str] = {"critical": "bad", "warning": "warning", "info": "quiet"}
"""How loud an alert of a severity is said."""


def alert(found: Mapping[str, Any], now: float) -> str:
    """An alert in a line: how bad, what, since when, what to do."""
    since = age(now - found["started_at"])
    return f"{found['severity'].capitalize()} for {since}: {found['text'].rstrip('.')}. {found['advice']}"
