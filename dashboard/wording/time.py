"""Format times in the viewer's time zone, and ages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

CUSTOM = "Custom"
"""The name of a time range with a fixed beginning and end."""


class TimeStamp(NamedTuple):
    """Holds a time for display, and the same time in UTC for its tooltip."""

    text: str
    more: str


def stamp(at: float, zone: str | None, now: float | None = None, *, milliseconds: bool = False) -> TimeStamp:
    """Return a time in the viewer's zone, a name like Europe/Berlin; None and unknown zones mean UTC.

    With `now`, times of the same day have no date.
    """
    here = datetime.fromtimestamp(at, zone_of(zone))
    today = now is not None and here.date() == datetime.fromtimestamp(now, zone_of(zone)).date()
    shown = here.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
    rest = f".{here.microsecond // 1000:03}" if milliseconds else ""
    return TimeStamp(f"{shown}{rest}", f"{moment(at)}{rest} UTC")


@cache
def zone_of(name: str | None) -> tzinfo:
    """Return the zone of that name; UTC where the zone or the time zone database is missing."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def zone_name(name: str | None, at: float) -> str:
    """Return the abbreviation of a zone at a time: CET, or UTC+05:30 where the zone has none."""
    here = datetime.fromtimestamp(at, zone_of(name))
    abbreviation = here.tzname() or "UTC"
    return (
        abbreviation
        if abbreviation[:1].isalpha()
        else f"UTC{here.strftime('%z')[:3]}:{here.strftime('%z')[3:5]}"
    )


def during(window: str, since: float, until: float, zone: str | None = None) -> str:
    """Return a time range as a phrase, such as "in the last 15 min" or "from 14:00 to 15:30 on 2026-11-20"."""
    if window != CUSTOM:
        return f"in {last(window)}"
    begin, end = (datetime.fromtimestamp(at, zone_of(zone)) for at in (since, until))
    clock = "%H:%M:%S" if begin.second or end.second else "%H:%M"
    if begin.date() == end.date():
        return f"from {begin.strftime(clock)} to {end.strftime(clock)} on {begin:%Y-%m-%d}"
    return f"from {begin.strftime(f'%Y-%m-%d {clock}')} to {end.strftime(f'%Y-%m-%d {clock}')}"


def last(window: str) -> str:
    """Return a relative time range as a phrase, such as "the last 15 min" or "the last hour"."""
    return f"the last {window.removeprefix('1 ')}"


def age(seconds: float) -> str:
    """Return a duration in its largest unit."""
    seconds = max(0.0, seconds)
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def when(
    since: float, until: float, now: float, *, lasted: float, ongoing: bool, zone: str | None = None
) -> str:
    """Return whether a finding is over, when it began, and how long it lasted."""
    if not until:
        return ""
    begin, end = stamp(since, zone, now).text, stamp(until, zone, now).text
    name, intermittent = zone_name(zone, until), lasted <= 0.8 * (until - since)
    if ongoing:
        total = f", intermittent: {age(lasted)} in total" if intermittent else ""
        return f"Ongoing since {begin} {name} ({age(now - since)} ago){total}."
    ended = f"Ended {age(now - until)} ago"
    if intermittent:
        return f"{ended}: intermittent from {begin} to {end} {name}, {age(lasted)} in total."
    return f"{ended}: from {begin} to {end} {name}, for {age(until - since)}."


def evidence(text: str, *, partly: bool) -> str:
    """Return the numbers of a finding, marked where they cover only the time of the finding and not the whole range."""
    return f"During that time: {text[:1].lower()}{text[1:]}" if partly and re.search(r"\d", text) else text


_IN_UTC = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:Z| UTC)(?!\w)")


def local(text: str, zone: str | None, now: float) -> str:
    """Put the viewer's local time before each UTC time in a sentence."""
    if zone_name(zone, now) == "UTC":
        return text

    def both(found: re.Match[str]) -> str:
        year, month, day, hour, minute, second = (int(part) for part in found.groups())
        try:
            at = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
        except ValueError:
            return found[0]
        return f"{stamp(at, zone, now).text} {zone_name(zone, at)} ({found[0]})"

    return _IN_UTC.sub(both, text)


def moment(at: float, zone: str | None = None) -> str:
    """Return a time to the second, in UTC or in the zone of that name."""
    return datetime.fromtimestamp(at, zone_of(zone)).strftime("%Y-%m-%d %H:%M:%S")


def live(seen_at: float | None, now: float) -> bool:
    """Return whether a producer reported within the last five seconds."""
    return seen_at is not None and now - seen_at < 5


def data_age(seen_at: float | None, now: float) -> str:
    """Return the age of the newest data."""
    if seen_at is None:
        return "no data yet"
    return "data is live" if live(seen_at, now) else f"data is {age(now - seen_at)} old"


def no_client_stats(window: str) -> str:
    """Return the text shown in place of a diagnosis where the range has no client statistics."""
    range_ = "this range" if window == CUSTOM else last(window)
    return (
        f"No client statistics in {range_}, so no diagnosis is available. Producers that run this version of producer-core "
        "or a newer one report them once a second."
    )
