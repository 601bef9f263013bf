"""When something was, and how old what is shown is."""

from __future__ import annotations

from datetime import UTC, datetime


def age(seconds: float) -> str:
    """How long ago, roughly."""
    seconds = max(0.0, seconds)
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def when(since: float, until: float, now: float, *, lasted: float, ongoing: bool) -> str:
    """When something was found: since when it goes on, or from when to when it was, and for how long in all."""
    if not until:
        return ""
    parts = "" if lasted > 0.8 * (until - since) else f", {age(lasted)} in all"
    if ongoing:
        return f"Since {age(now - since)}{parts}."
    return f"It is over: {moment(since)[11:]} to {moment(until)[11:]} UTC{parts}, {age(now - until)} ago."


def moment(at: float) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def live(seen_at: float | None, now: float) -> bool:
    """Whether a producer was heard within the last seconds."""
    return seen_at is not None and now - seen_at < 5


def data_age(seen_at: float | None, now: float) -> str:
    """How old the newest data is."""
    if seen_at is None:
        return "no data yet"
    return "data is live" if live(seen_at, now) else f"data is {age(now - seen_at)} old"


def nothing_known(window: str) -> str:
    """What stands where a diagnosis would: without numbers there is none."""
    return (
        f"No producer said anything of its client in the last {window}, so nothing can be said about it. "
        "Producers of this version do so once a second."
    )
