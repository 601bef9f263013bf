"""Queries for the groups of dead letters on the errors page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetterFilter, DeadLetters, Group
from producer_core.store import Store
from producer_core.store.resolved_causes import CauseStatus, cause_statuses

GROUPS = 20
"""The number of groups shown, largest first."""


@dataclass(frozen=True)
class GroupLine:
    """Holds a group in the range; `waiting` counts its pending dead letters of any age, `new` marks a first occurrence."""

    group: Group
    before: int
    waiting: int
    new: bool
    status: CauseStatus | None = None


@dataclass(frozen=True)
class GroupPage:
    """Holds one group: `inside` covers the range (None: no failures in it), `ever` the whole store."""

    ever: Group
    inside: Group | None
    before: int
    states: Mapping[str, int]
    new: bool


def groups_of(store: Store, view: View, since: int, until: int | None, before: int) -> tuple[GroupLine, ...]:
    dead_letters = DeadLetters(store)
    found = dead_letters.groups(failed_between(view, since, until), limit=GROUPS)
    earlier = dead_letters.count_by(failed_between(view, before, since), "fingerprint")
    waiting = dead_letters.count_by(view.dead_letters(), "fingerprint")
    known = dead_letters.count_by(
        view.dead_letters(producer_id=None, state=None, until=float(since)), "fingerprint"
    )
    fresh = [group.fingerprint for group in found if group.fingerprint not in known]
    if fresh:
        again = {row["fingerprint"] for row in store.rows("groups_that_died_again", since=since, marks=fresh)}
        fresh = [mark for mark in fresh if mark not in again]
    statuses = cause_statuses(store)
    return tuple(
        GroupLine(
            group,
            earlier.get(group.fingerprint, 0),
            waiting.get(group.fingerprint, 0),
            group.fingerprint in fresh,
            statuses.get(group.fingerprint),
        )
        for group in found
    )


def error_group(store: Store, fingerprint: str, view: View, now: float) -> GroupPage | None:
    """Return one group over all topics and producers of the view's application and cluster; None without a dead letter."""
    since, until = view.since(now), view.until(now)
    before, _ = view.before(now)
    ever = view.dead_letters(topic=None, producer_id=None, group=fingerprint, state=None)
    dead_letters = DeadLetters(store)
    with store.borrow():
        found = dead_letters.groups(ever, limit=1)
        if not found:
            return None
        begins = store.rows("statistics_begin")[0]["begins"]
        inside = dead_letters.groups(replace(ever, since=float(since), until=as_float(until)), limit=1)
        earlier = dead_letters.count(replace(ever, since=float(before), until=float(since)))
        again = store.rows("groups_that_died_again", since=since, marks=[fingerprint])
        states = dead_letters.count_by(ever, "state")
    new = found[0].first_seen >= since and not again and begins is not None and begins < since
    return GroupPage(found[0], inside[0] if inside else None, earlier, states, new)


def failed_between(view: View, since: float | None, until: float | None) -> DeadLetterFilter:
    """Return a filter for the messages that failed in a period, in any state."""
    return view.dead_letters(state=None, since=as_float(since), until=as_float(until))


def as_float(moment: float | None) -> float | None:
    return None if moment is None else float(moment)
