"""When something was, in the viewer's own time, and how old what is shown is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

CUSTOM = "Custom"
"""The name of a time range that a person chose by its beginning and end."""


class TimeStamp(NamedTuple):
    """A moment as it is shown, and what stands under the pointer: the same moment in UTC."""

    text: str
    more: str


def stamp(at: float, zone: str | None, now: float | None = None) -> TimeStamp:
    """A moment in the zone of the viewer (a name like Europe/Berlin; None or an unknown one: UTC).

    With `now` a moment of the same day is shown as its time alone, else with its date.
    """
    here = datetime.fromtimestamp(at, zone_of(zone))
    today = now is not None and here.date() == datetime.fromtimestamp(now, zone_of(zone)).date()
    shown = here.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
    return TimeStamp(shown, f"{moment(at)} UTC")


@cache
def zone_of(name: str | None) -> tzinfo:
    """The zone of that name; UTC where there is no such zone, or the machine knows none."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def zone_name(name: str | None, at: float) -> str:
    """How a zone is called at a moment: CET, or UTC+05:30 where it has no dead letters of its own."""
    here = datetime.fromtimestamp(at, zone_of(name))
    said = here.tzname() or "UTC"
    return said if said[:1].isalpha() else f"UTC{here.strftime('%z')[:3]}:{here.strftime('%z')[3:5]}"


def during(window: str, since: float, until: float, zone: str | None = None) -> str:
    """A time range as a part of a sentence: «in the last 15 min», «from 14:00 to 15:30 on 2026-11-20»."""
    if window != CUSTOM:
        return f"in {last(window)}"
    begin, end = (datetime.fromtimestamp(at, zone_of(zone)) for at in (since, until))
    clock = "%H:%M:%S" if begin.second or end.second else "%H:%M"
    if begin.date() == end.date():
        return f"from {begin.strftime(clock)} to {end.strftime(clock)} on {begin:%Y-%m-%d}"
    return f"from {begin.strftime(f'%Y-%m-%d {clock}')} to {end.strftime(f'%Y-%m-%d {clock}')}"


def last(window: str) -> str:
    """A time range that follows the clock, as people say it: «the last 15 min», «the last hour»."""
    return f"the last {window.removeprefix('1 ')}"


def age(seconds: float) -> str:
    """How long ago, roughly."""
    seconds = max(0.0, seconds)
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def when(
    since: float, until: float, now: float, *, lasted: float, ongoing: bool, zone: str | None = None
) -> str:
    """When something was found, to a person who asks: is it over, since when, and how long was it."""
    if not until:
        return ""
    begin, end = stamp(since, zone, now).text, stamp(until, zone, now).text
    name, again = zone_name(zone, until), lasted <= 0.8 * (until - since)
    if ongoing:
        parts = f"; again and again, for {age(lasted)} in all" if again else ""
        return f"It goes on: since {begin} {name}, {age(now - since)} ago{parts}."
    first = f"It ended {age(now - until)} ago"
    if again:
        return f"{first}: again and again from {begin} to {end} {name}, for {age(lasted)} in all."
    return f"{first}: from {begin} to {end} {name}, for {age(until - since)}."


def evidence(text: str, *, partly: bool) -> str:
    """The numbers of a finding: those of a part of the range are not those that the page shows of all of it."""
    return f"While it was so: {text[:1].lower()}{text[1:]}" if partly and re.search(r"\d", text) else text


_IN_UTC = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:Z| UTC)(?!\w)")


def local(text: str, zone: str | None, now: float) -> str:
    """A sentence that names moments in UTC, for a viewer in another zone: his own time comes first."""
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
    """A time to the second: in UTC, or in the zone of that name."""
    return datetime.fromtimestamp(at, zone_of(zone)).strftime("%Y-%m-%d %H:%M:%S")


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
    range_ = "this range" if window == CUSTOM else last(window)
    return (
        f"No producer said anything of its client in {range_}, so nothing can be said about it. "
        "Producers of this version do so once a second."
    )
