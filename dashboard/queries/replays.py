"""Replays as a page shows them: what a click would begin, what is under way, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError, OtherCluster
from producer_core.replay import Inconclusive, Newer, Operation
from producer_core.replay.active_cause import still_active
from producer_core.replay.dry_run import DryRun, dry_run
from producer_core.store import Store

PACE_OVER = 10.0
"""Seconds over which the speed of a replay is measured."""
RECORDS = 50
"""So many records of a replay are listed at once."""
AT_ONCE = 1_000
"""Up to so many dead letters are replayed by the first click, where every verdict is safe."""


@dataclass(frozen=True)
class ReplayOffer:
    """What a click on Replay or Clear would be about now.

    `run` is what a replay would do as far as the store knows, None where there are too many dead letters to act at once.
    `held` are replays under way that have some of these dead letters to send, `refused` why nobody could carry one out, and
    `way_out` what to do about it; `active` says why the cause of the dead letters may still be there.
    """

    about: DeadLetterFilter
    count: int
    run: DryRun | None = None
    held: tuple[tuple[Operation, int], ...] = ()
    refused: str = ""
    way_out: Literal["", "hands", "cluster"] = ""
    active: str = ""

    @property
    def left_out(self) -> int:
        return self.run.quarantined + self.run.not_replayable + self.run.other_cluster if self.run else 0

    @property
    def doubtful(self) -> int:
        return self.run.doubtful.count if self.run else 0

    @property
    def elsewhere(self) -> int:
        """Of these, in the replay under way that has most of them."""
        return max((count for _, count in self.held), default=0)

    @property
    def at_once(self) -> bool:
        """One click may send: few, every verdict says that no broker has them, and nothing is left out or taken."""
        return bool(self.run and self.run.total) and not (self.left_out or self.doubtful or self.held)


@dataclass(frozen=True)
class ReplayRow:
    """One replay now. `owner` names the process that has it, `hands` counts the live ones that could carry it out,
    `pace` is how many records a second it settled lately, `behind` the replay that keeps all of them busy meanwhile.
    `later`: dead letters that match and died after those it is about, while it waits for a decision."""

    operation: Operation
    where: DeadLetterFilter | None
    owner: str = ""
    hands: int = 0
    pace: float | None = None
    behind: Operation | None = None
    later: int = 0


@dataclass(frozen=True)
class ReplaysPage:
    """Those under way, the oldest first; those that have ended, the latest first; what people did."""

    now: float
    under_way: tuple[ReplayRow, ...]
    ended: tuple[ReplayRow, ...]
    more: bool
    acts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class ReplayDetail:
    """One replay from all sides. `dead` has, by what it did with them, how many of its dead letters are dead letters still,
    and the first of their ids."""

    now: float
    replay: ReplayRow
    reasons: tuple[Mapping[str, Any], ...]
    doubtful: tuple[Mapping[str, Any], ...]
    dead: Mapping[str, tuple[int, tuple[str, ...]]]
    acts: tuple[Mapping[str, Any], ...]


def operations(store: Store, limit: int = 5) -> list[Operation]:
    """The latest replays."""
    return replay.list_operations(store, limit=limit)


def offer(store: Store, about: DeadLetterFilter, now: float) -> ReplayOffer:
    """What an act on the dead letters of this selection would be about: those that wait now, or are archived."""
    dead_letters = DeadLetters(store)
    if about.state not in ("dead", "archived", None):
        return ReplayOffer(about, 0)
    about = dead_letters.frozen(replace(about, state=about.state or "dead"))
    with store.borrow():
        count = dead_letters.count(about)
        if not count or about.state == "archived":
            return ReplayOffer(about, count)
        refused = replay.refusal(store, list(dead_letters.count_by(about, "cluster_id")), now)
        run = dry_run(store, about) if count <= AT_ONCE else None
        return ReplayOffer(
            about,
            count,
            run=run,
            held=tuple(replay.under_way(store, about)),
            refused=refused.what if refused else "",
            way_out="" if refused is None else "cluster" if isinstance(refused, OtherCluster) else "hands",
            active=run.active if run else still_active(store, about, now),
        )


def replays(store: Store, now: float, *, limit: int = 20) -> ReplaysPage:
    """What the page lists: all under way, and the latest of those that have ended."""
    with store.borrow():
        listed = replay.list_operations(store, limit=limit + 1)
        ending = [one for one in listed if one.state == "cancelled" and not one.ended]
        ended = [one for one in listed if one.ended]
        return ReplaysPage(
            now,
            tuple(_seen(store, one, now) for one in (*replay.live(store), *ending)),
            tuple(ReplayRow(one, where_of(one.selection)) for one in ended[:limit]),
            len(listed) > limit,
            tuple(store.rows("replay_acts", limit=10)),
        )


def one_replay(store: Store, operation_id: str, now: float) -> ReplayRow:
    """How one replay stands; ReplayError when there is none."""
    with store.borrow():
        return _seen(store, replay.get(store, operation_id), now)


def detail(store: Store, operation_id: str, now: float) -> ReplayDetail:
    """One replay from all sides; ReplayError when there is none."""
    with store.borrow():
        operation = replay.get(store, operation_id)
        dead = (
            store.rows("replay_still_dead", operation=operation_id, limit=RECORDS) if operation.ended else []
        )
        return ReplayDetail(
            now,
            _seen(store, operation, now),
            tuple(store.rows("replay_reasons", operation=operation_id)),
            tuple(replay.doubtful(store, operation_id, limit=RECORDS + 1)) if operation.ended else (),
            {row["state"]: (row["count"], tuple(row["ids"])) for row in dead},
            tuple(store.rows("replay_audit", operation=operation_id, limit=50)),
        )


def doubtful(store: Store, operation: Operation) -> tuple[Mapping[str, Any], ...]:
    """Of an ended replay, records of which nobody can say whether they are on their topic; one more than RECORDS."""
    if not operation.ended or operation.failed_again + operation.skipped == 0:
        return ()
    return tuple(replay.doubtful(store, operation.operation_id, limit=RECORDS + 1))


def planned(
    store: Store,
    operation: Operation,
    newer: Newer | None = None,
    inconclusive: Inconclusive | None = None,
) -> DryRun | None:
    """The dry run of one that waits for a decision, or is being looked ahead; with other choices than its own."""
    if operation.state not in ("checking", "ready"):
        return None
    return dry_run(store, DeadLetterFilter(), operation=operation, newer=newer, inconclusive=inconclusive)


def where_of(selection: str) -> DeadLetterFilter | None:
    """What was selected; None where a later version wrote what this one does not know."""
    try:
        return DeadLetterFilter.from_query(orjson.loads(selection))
    except (ConfigError, ValueError, TypeError, AttributeError):
        return None


def _seen(store: Store, operation: Operation, now: float) -> ReplayRow:
    if operation.ended:
        return ReplayRow(operation, where_of(operation.selection))
    having = (operation.owner or "").split("/")[0]
    alive = [one for one in replay.runners(store, now, cluster_id=operation.cluster_id) if one != having]
    expired = (operation.lease_until or now) < now
    others = len(alive) + (having != "" and not expired)
    return ReplayRow(
        operation,
        where_of(operation.selection),
        owner=_named(store.rows("replay_owner", producer=having), having),
        hands=others,
        pace=_pace(store, operation, now),
        behind=_behind(store, operation, len(alive)),
        later=_later(store, operation),
    )


def _later(store: Store, operation: Operation) -> int:
    """Letters of the same selection that died since it was made."""
    where = where_of(operation.selection)
    if operation.state not in ("checking", "ready") or where is None or where.ids or where.until is None:
        return 0
    dead_letters, last = DeadLetters(store), math.nextafter(where.until, -math.inf)
    if not dead_letters.count(
        replace(where, since=last, state=None)
    ):  # no page ended it there: it is the person's own end
        return 0
    return dead_letters.count(replace(where, since=where.until, until=None, state="dead"))


def _behind(store: Store, operation: Operation, hands: int) -> Operation | None:
    """The replay that is carried out first, where each process has one: it does them one after the other."""
    if operation.owner is not None or operation.state not in ("planned", "checking"):
        return None
    ahead = operation.state == "checking"  # looking ahead waits for another look ahead only
    busy = [
        one
        for one in replay.live(store)
        if one.owner is not None
        and one.cluster_id == operation.cluster_id
        and one.state != "paused"
        and (one.state == "checking") == ahead
    ]
    return busy[0] if busy and len(busy) >= hands else None


def _named(found: Sequence[Mapping[str, Any]], having: str) -> str:
    """A process by its client id, host and number, so that a person can find it."""
    if not having:
        return ""
    if not found:
        return having
    row = found[0]
    return f"{row['client_id'] or row['producer_id'][:8]} on {row['host']}, process {row['pid']}"


def _pace(store: Store, operation: Operation, now: float) -> float | None:
    if operation.state != "running" or operation.started_at is None:
        return None
    since = max(operation.started_at, now - PACE_OVER)
    settled = int(store.rows("replay_pace", operation=operation.operation_id, since=since)[0]["settled"])
    return settled / max(now - since, 1.0) if settled else None
