"""Write a time for messages, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_minute(at: float) -> str:
    """Return a time, in seconds since 1970, to the minute: 2026-01-31 12:00 UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
