"""Queries for the dead letters page: groups, one page of the list, one dead letter, and the scope of an action."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from producer_core.dlq import DeadLetterFilter, DeadLetters, Group, PageCursor, SearchResult
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, LimitExcess, exceeded_limits, measure
from producer_core.dlq.timeline import TimelineEvent, timeline
from producer_core.dlq.trace_link import RecordTrace, trace_of
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.store import Store
from producer_core.store.removed_clusters import cluster_states, removed_clusters
from producer_core.store.resolved_causes import CauseStatus, cause_statuses

LISTED = 100
GROUPS = 20
SEARCHED = 500
"""The number of dead letters after which a body search stops."""

NOTHING = ("",)
"""The ids of an empty search result: no message has this id, while an empty tuple would match everything."""


@dataclass(frozen=True)
class DeadLetterPage:
    """Holds one page of the dead letters that a filter matches, as of one moment.

    `where` selects them for actions; for a complete body search it holds the ids found. `newest` is the failure time of
    the latest dead letter on any page. `over` is set where the filter's own end had passed.
    """

    where: DeadLetterFilter
    total: int
    dead_letters: tuple[DeadLetter, ...]
    verdicts: Mapping[str, int]
    next: PageCursor | None = None
    newest: float | None = None
    over: bool = False

    @property
    def seen(self) -> DeadLetterFilter:
        """Return the filter limited to what the page shows, so that an action skips messages that failed later."""
        if self.newest is None or self.over:
            return self.where
        until = math.nextafter(self.newest, math.inf)
        return replace(self.where, until=until if self.where.until is None else min(until, self.where.until))


@dataclass(frozen=True)
class Neighbors:
    """Holds the ids of the dead letters before and after one in the list, and its `place`, counted from 1.

    `place` is 0 for a dead letter that the list no longer contains.
    """

    previous: str | None = None
    next: str | None = None
    place: int = 0


@dataclass(frozen=True)
class ActionScope:
    """Counts the dead letters that an action would affect now, by verdict."""

    about: DeadLetterFilter
    verdicts: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    @property
    def safe(self) -> bool:
        """Return whether no verdict allows a second copy after a resend."""
        return all(verdict in SAFE_VERDICTS for verdict in self.verdicts)


@dataclass(frozen=True)
class CauseGroups:
    """Holds the largest groups, the selected group `one`, which may be small, and the `total` of all groups.

    `statuses` are those of the causes that were ever marked as resolved, by fingerprint.
    """

    groups: tuple[Group, ...]
    one: Group | None
    total: int
    statuses: Mapping[str, CauseStatus] = field(default_factory=dict)

    @property
    def others(self) -> int:
        """Return the number of dead letters in groups that are not listed."""
        return max(0, self.total - sum(group.count for group in self.groups))


@dataclass(frozen=True)
class PendingCounts:
    """Holds the pending dead letters, their limits, the exceeded limits, and the number of archived ones.

    `removed` are the clusters that no longer exist, with their number of pending dead letters.
    """

    load: DeadLetterLoad
    bounds: DeadLetterLimits
    excess: tuple[LimitExcess, ...]
    archived: int
    removed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DeadLettersSnapshot:
    """Holds everything the page shows for a filter, from one consistent read, so that the numbers agree."""

    page: DeadLetterPage
    causes: CauseGroups
    waiting: PendingCounts


@dataclass(frozen=True)
class BodySearch:
    """Holds the result of consecutive body searches, each of which resumes where the previous one ended."""

    where: DeadLetterFilter
    dead_letters: tuple[DeadLetter, ...]
    looked_at: int
    of: int
    complete: bool
    next: PageCursor | None
    began: float

    @property
    def frozen(self) -> DeadLetterFilter | None:
        """Return the dead letters found as a filter; None while the search is incomplete or has found nothing."""
        if not self.complete or not self.dead_letters:
            return None
        return replace(self.where, body=None, ids=self.ids)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.message_id for one in self.dead_letters)


def dead_letters(store: Store, where: DeadLetterFilter, *, after: PageCursor | None = None) -> DeadLetterPage:
    """Return a page of LISTED dead letters, latest first, starting after a cursor."""
    dead_letters = DeadLetters(store)
    over = where.until is not None and where.until <= time.time()
    with store.borrow():
        page = dead_letters.page(where, limit=LISTED, after=after)
        latest = page.dead_letters if after is None else dead_letters.find(where, limit=1)
        verdicts = dead_letters.count_by(where, "verdict")
        return DeadLetterPage(
            where=where,
            total=sum(verdicts.values()),
            dead_letters=page.dead_letters,
            verdicts=verdicts,
            next=page.next,
            newest=latest[0].failed_at if latest else None,
            over=over,
        )


def snapshot(
    store: Store, where: DeadLetterFilter, now: float, *, after: PageCursor | None = None
) -> DeadLettersSnapshot:
    """Read everything the page shows from one consistent view of the store."""
    with store.borrow():
        return DeadLettersSnapshot(
            dead_letters(store, where, after=after), causes(store, where), waiting(store, now)
        )


def neighbors(listed: Sequence[DeadLetter], message_id: str, failed_at: float) -> Neighbors:
    """Return the neighbors of a dead letter in a list, latest first.

    One that has left the list, such as a cleared one, keeps the neighbors that it had by its time.
    """
    ids = [one.message_id for one in listed]
    if message_id in ids:
        at = ids.index(message_id)
        return Neighbors(ids[at - 1] if at else None, next(iter(ids[at + 1 :]), None), at + 1)
    later = [one.message_id for one in listed if one.failed_at > failed_at]
    earlier = [one.message_id for one in listed if one.failed_at <= failed_at]
    return Neighbors(later[-1] if later else None, earlier[0] if earlier else None)


def causes(store: Store, where: DeadLetterFilter) -> CauseGroups:
    """Return the groups of a filter, ignoring the group it selects."""
    dead_letters, every = DeadLetters(store), replace(where, group=None)
    with store.borrow():
        groups = tuple(dead_letters.groups(every, limit=GROUPS))
        one = next((group for group in groups if group.fingerprint == where.group), None)
        if one is None and where.group is not None:
            one = next(iter(dead_letters.groups(where, limit=1)), None)
        return CauseGroups(groups, one, dead_letters.count(every), cause_statuses(store))


def search_bodies(
    store: Store, where: DeadLetterFilter, now: float, before: BodySearch | None = None, seconds: float = 5.0
) -> BodySearch:
    """Search bodies for at most `seconds`; resume where the search `before` ended."""
    found: SearchResult = DeadLetters(store).search(
        where, limit=SEARCHED, after=before.next if before else None, seconds=seconds
    )
    if before is None:
        return BodySearch(
            where, found.dead_letters, found.looked_at, found.of, found.complete, found.next, now
        )
    return replace(
        before,
        dead_letters=before.dead_letters + found.dead_letters,
        looked_at=before.looked_at + found.looked_at,
        of=max(before.of, before.looked_at + found.looked_at),
        complete=found.complete,
        next=found.next,
    )


def found_page(store: Store, search: BodySearch) -> DeadLetterPage:
    """Return the result of a search as a page, without dead letters that no longer match."""
    where = replace(search.where, body=None, ids=search.ids or NOTHING)
    dead_letters = DeadLetters(store)
    with store.borrow():
        verdicts = dead_letters.count_by(where, "verdict")
        listed = tuple(dead_letters.find(where, limit=len(where.ids)))
        return DeadLetterPage(where, sum(verdicts.values()), listed, verdicts)


def scope(store: Store, about: DeadLetterFilter) -> ActionScope:
    """Count by verdict the dead letters that still match a selection."""
    return ActionScope(about, DeadLetters(store).count_by(about, "verdict"))


def states(store: Store, ids: Sequence[str]) -> dict[str, int]:
    """Count these dead letters by state."""
    return DeadLetters(store).count_by(DeadLetterFilter(state=None, ids=tuple(ids)), "state") if ids else {}


def choices(store: Store, state: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the topics and error codes of a state, by name; ordering by count would move the options while clicking."""
    dead_letters, whole = DeadLetters(store), DeadLetterFilter(state=state)
    with store.borrow():
        topics, codes = dead_letters.count_by(whole, "topic"), dead_letters.count_by(whole, "code")
    return tuple(sorted(topics)), tuple(sorted(codes))


def clusters(store: Store) -> tuple[str, ...]:
    """Return the clusters of all dead letters, by name."""
    return tuple(sorted(DeadLetters(store).count_by(DeadLetterFilter(state=None), "cluster_id")))


def applications(store: Store) -> tuple[str, ...]:
    """Return the applications of all dead letters, by name; those without one have an empty name."""
    return tuple(sorted(DeadLetters(store).count_by(DeadLetterFilter(state=None), "application")))


def waiting(store: Store, now: float) -> PendingCounts:
    """Return the pending dead letters against the limits of this store."""
    bounds = DeadLetterLimits().overridden_by(store.settings())
    with store.borrow():
        load = measure(store, now)
        archived = DeadLetters(store).count(DeadLetterFilter(state="archived"))
        pending = {one.cluster_id: one.pending for one in cluster_states(store, now)}
        removed = {cluster: pending.get(cluster, 0) for cluster in removed_clusters(store, now)}
    return PendingCounts(load, bounds, exceeded_limits(load, bounds, now), archived, removed)


# one dead letter


def dead_letter(store: Store, message_id: str) -> DeadLetter | None:
    """Return one dead letter with its body."""
    return DeadLetters(store).get(message_id)


def producer_of(store: Store, dead_letter: DeadLetter) -> str:
    """Return the producer's name and process; empty where the store no longer has the producer."""
    rows = store.rows("letter_producer", producer=dead_letter.producer_id)
    return f"{rows[0]['client_id'] or 'producer'} (process {rows[0]['pid']})" if rows else ""


def change_stamp(store: Store, message_id: str) -> tuple[str, float, int] | None:
    """Return the state of a dead letter, its time, and the replay count; None where the dead letter is gone.

    Any change to the dead letter changes this value. Reading it is cheap, so that a body of ten megabytes is not read
    again every second.
    """
    rows = store.rows("letter_stamp", message_id=message_id)
    return (rows[0]["state"], rows[0]["state_at"], rows[0]["replay_count"]) if rows else None


def trace(store: Store, dead_letter: DeadLetter) -> RecordTrace | None:
    """Return the trace that created the record of a dead letter; None for a record without one."""
    return trace_of(store, dead_letter)


def dead_letter_timeline(store: Store, message_id: str) -> tuple[TimelineEvent, ...]:
    """Return every event of a dead letter, in order."""
    return timeline(store, message_id)
