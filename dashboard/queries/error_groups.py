"""Groups of dead letters as the errors page shows them: what died in the range, what waits, and what is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetterFilter, DeadLetters, Group
from producer_core.store import Store

GROUPS = 20
"""Groups shown; the largest."""


@dataclass(frozen=True)
class GroupLine:
    """A group of dead letters as of the range; `waiting` at any time, `new`: no dead letter of it died before."""

    group: Group
    before: int
    waiting: int
    new: bool


@dataclass(frozen=True)
class GroupPage:
    """One group: `inside` as of the range (None: nothing of it died there), `ever` since the store began."""

    ever: Group
    inside: Group | None
    before: int
    states: Mapping[str, int]
    new: bool


def groups_of(store: Store, view: View, since: int, until: int | None, before: int) -> tuple[GroupLine, ...]:
    dead_letters = DeadLetters(store)
    found = dead_letters.groups(died(view, since, until), limit=GROUPS)
    earlier = dead_letters.count_by(died(view, before, since), "fingerprint")
    waiting = dead_letters.count_by(
        DeadLetterFilter(topic=view.topic, producer_id=view.producer), "fingerprint"
    )
    known = dead_letters.count_by(
        DeadLetterFilter(topic=view.topic, state=None, until=float(since)), "fingerprint"
    )
    fresh = [group.fingerprint for group in found if group.fingerprint not in known]
    if fresh:
        again = {row["fingerprint"] for row in store.rows("groups_that_died_again", since=since, marks=fresh)}
        fresh = [mark for mark in fresh if mark not in again]
    return tuple(
        GroupLine(
            group,
            earlier.get(group.fingerprint, 0),
            waiting.get(group.fingerprint, 0),
            group.fingerprint in fresh,
        )
        for group in found
    )


def error_group(store: Store, fingerprint: str, view: View, now: float) -> GroupPage | None:
    """One group, whatever topic it is on; None where no dead letter of it is in the store."""
    since, until = view.since(now), view.until(now)
    before, _ = view.before(now)
    ever = DeadLetterFilter(group=fingerprint, state=None)
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


def died(view: View, since: float | None, until: float | None) -> DeadLetterFilter:
    """What died in a time, whatever became of it since."""
    return DeadLetterFilter(
        topic=view.topic, producer_id=view.producer, state=None, since=as_float(since), until=as_float(until)
    )


def as_float(moment: float | None) -> float | None:
    return None if moment is None else float(moment)
