"""Queries for replays: the scope of a click, the replays in progress, and their outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from producer_core import replay
from producer_core.dashboard.queries.replay_course import ReplayCourse, replay_course
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.approvals.requests import ApprovalRequest, list_requests
from producer_core.errors import ConfigError, OtherCluster
from producer_core.replay import Inconclusive, Newer, Operation
from producer_core.replay.active_cause import still_active
from producer_core.replay.dry_run import DryRun, dry_run
from producer_core.replay.schema_versions import NO_SCHEMAS, SchemaVersions
from producer_core.store import Store

PACE_OVER = 10.0
"""Seconds over which the rate of a replay is measured."""
REQUESTS = 20
"""The number of requests that the page lists."""
RECORDS = 50
"""The number of records of a replay that are listed at once."""
AT_ONCE = 1_000
"""The largest number of dead letters that one click replays without a dry run, where every verdict is safe."""


@dataclass(frozen=True)
class ReplayOffer:
    """Describes what a click on Replay or Clear would affect now.

    `run` is the dry run from the store, and None where there are too many dead letters for one click. `held` lists the
    replays in progress that include some of these dead letters. `refused` is the reason why no process can run a
    replay, and `remedy` what to do about it. `active` is the reason why the cause of the failures may persist.
    """

    about: DeadLetterFilter
    count: int
    run: DryRun | None = None
    held: tuple[tuple[Operation, int], ...] = ()
    refused: str = ""
    remedy: Literal["", "no_runner", "cluster"] = ""
    active: str = ""

    @property
    def left_out(self) -> int:
        run = self.run
        return run.quarantined + run.not_replayable + run.other_cluster + run.unknown_cluster if run else 0

    @property
    def doubtful(self) -> int:
        return self.run.doubtful.count if self.run else 0

    @property
    def elsewhere(self) -> int:
        """Return the number of these dead letters in the replay in progress that includes most of them."""
        return max((count for _, count in self.held), default=0)

    @property
    def at_once(self) -> bool:
        """Return whether one click may send: few records with safe verdicts, none skipped and none in another replay."""
        return bool(self.run and self.run.total) and not (self.left_out or self.doubtful or self.held)


@dataclass(frozen=True)
class ReplayRow:
    """Holds the current state of a replay.

    `owner` names the process that runs it, `runners` counts the live processes that could, `pace` is the recent rate in
    records per second, and `blocked_by` is the replay that occupies all runners. `later` counts matching dead letters
    that failed after the selection, while the replay awaits a decision. `course` is read for the Replays page only.
    """

    operation: Operation
    where: DeadLetterFilter | None
    owner: str = ""
    runners: int = 0
    pace: float | None = None
    blocked_by: Operation | None = None
    later: int = 0
    course: ReplayCourse | None = None
    request: ApprovalRequest | None = None
    """The latest request for its approval."""


@dataclass(frozen=True)
class ReplaysPage:
    """Holds the replays in progress, oldest first, the ended ones, latest first, and the audit log.

    `requests` are the latest requests of the whole store.
    """

    now: float
    under_way: tuple[ReplayRow, ...]
    ended: tuple[ReplayRow, ...]
    more: bool
    acts: tuple[Mapping[str, Any], ...]
    requests: tuple[ApprovalRequest, ...] = ()


@dataclass(frozen=True)
class ReplayDetail:
    """Holds one replay; `dead` has the number and the first ids of records that are still dead letters, by outcome."""

    now: float
    replay: ReplayRow
    reasons: tuple[Mapping[str, Any], ...]
    doubtful: tuple[Mapping[str, Any], ...]
    dead: Mapping[str, tuple[int, tuple[str, ...]]]
    acts: tuple[Mapping[str, Any], ...]


def operations(store: Store, limit: int = 5) -> list[Operation]:
    """Return the latest replays."""
    return replay.list_operations(store, limit=limit)


def offer(store: Store, about: DeadLetterFilter, now: float) -> ReplayOffer:
    """Return what an action on this selection would affect: the pending dead letters, or the archived ones."""
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
            remedy="" if refused is None else "cluster" if isinstance(refused, OtherCluster) else "no_runner",
            active=run.active if run else still_active(store, about, now),
        )


def replays(
    store: Store, now: float, *, limit: int = 20, application: str | None = None, cluster: str | None = None
) -> ReplaysPage:
    """Read the replays page: the replays in progress, and the latest that ended, of an application and a cluster.

    The audit log is that of the whole store.
    """
    with store.borrow():
        listed = replay.list_operations(store, limit=limit + 1, application=application, cluster=cluster)
        live = replay.live(store, application=application, cluster=cluster)
        ending = [one for one in listed if one.state == "cancelled" and not one.ended]
        ended = [one for one in listed if one.ended]
        return ReplaysPage(
            now,
            tuple(_with_course(store, one, now) for one in (*live, *ending)),
            tuple(ReplayRow(one, where_of(one.selection)) for one in ended[:limit]),
            len(listed) > limit,
            tuple(store.rows("replay_acts", limit=10)),
            tuple(list_requests(store, limit=REQUESTS)),
        )


def _with_course(store: Store, operation: Operation, now: float) -> ReplayRow:
    return replace(_current(store, operation, now), course=replay_course(store, operation, now))


def one_replay(store: Store, operation_id: str, now: float) -> ReplayRow:
    """Return the current state of one replay; raise ReplayError where it does not exist."""
    with store.borrow():
        return _current(store, replay.get(store, operation_id), now)


def detail(store: Store, operation_id: str, now: float) -> ReplayDetail:
    """Return one replay with its records and audit log; raise ReplayError where it does not exist."""
    with store.borrow():
        operation = replay.get(store, operation_id)
        dead = (
            store.rows("replay_still_dead", operation=operation_id, limit=RECORDS) if operation.ended else []
        )
        return ReplayDetail(
            now,
            _with_course(store, operation, now),
            tuple(store.rows("replay_reasons", operation=operation_id)),
            tuple(replay.doubtful(store, operation_id, limit=RECORDS + 1)) if operation.ended else (),
            {row["state"]: (row["count"], tuple(row["ids"])) for row in dead},
            tuple(store.rows("replay_audit", operation=operation_id, limit=50)),
        )


def doubtful(store: Store, operation: Operation) -> tuple[Mapping[str, Any], ...]:
    """Return the records of an ended replay that may be on their topic; at most RECORDS + 1."""
    if not operation.ended or operation.failed_again + operation.skipped == 0:
        return ()
    return tuple(replay.doubtful(store, operation.operation_id, limit=RECORDS + 1))


def planned(
    store: Store,
    operation: Operation,
    newer: Newer | None = None,
    inconclusive: Inconclusive | None = None,
    schemas: SchemaVersions = NO_SCHEMAS,
) -> DryRun | None:
    """Return the dry run of a replay that is being checked or awaits a decision; None for other states.

    `newer` and `inconclusive` override the choices of the replay.
    """
    if operation.state not in ("checking", "ready"):
        return None
    return dry_run(
        store,
        DeadLetterFilter(),
        operation=operation,
        newer=newer,
        inconclusive=inconclusive,
        schemas=schemas,
    )


def where_of(selection: str) -> DeadLetterFilter | None:
    """Parse a selection; return None where a newer version wrote an unknown form."""
    try:
        return DeadLetterFilter.from_query(orjson.loads(selection))
    except (ConfigError, ValueError, TypeError, AttributeError):
        return None


def _current(store: Store, operation: Operation, now: float) -> ReplayRow:
    if operation.ended:
        return ReplayRow(operation, where_of(operation.selection))
    requests = list_requests(store, operation_id=operation.operation_id, limit=1)
    owner = (operation.owner or "").split("/")[0]
    others = [one for one in replay.runners(store, now, cluster_id=operation.cluster_id) if one != owner]
    expired = (operation.lease_until or now) < now
    return ReplayRow(
        operation,
        where_of(operation.selection),
        owner=_process_name(store.rows("replay_owner", producer=owner), owner),
        runners=len(others) + (owner != "" and not expired),
        pace=_pace(store, operation, now),
        blocked_by=_blocked_by(store, operation, len(others)),
        later=_later(store, operation),
        request=requests[0] if requests else None,
    )


def _later(store: Store, operation: Operation) -> int:
    """Count the dead letters of the same selection that failed since it was made."""
    where = where_of(operation.selection)
    if operation.state not in ("checking", "ready") or where is None or where.ids or where.until is None:
        return 0
    dead_letters, last = DeadLetters(store), math.nextafter(where.until, -math.inf)
    # The page ends a selection right after its last dead letter; any other end was chosen by the operator.
    if not dead_letters.count(replace(where, since=last, state=None)):
        return 0
    return dead_letters.count(replace(where, since=where.until, until=None, state="dead"))


def _blocked_by(store: Store, operation: Operation, runners: int) -> Operation | None:
    """Return the replay that runs first where every runner has one; a runner processes replays one at a time."""
    if operation.owner is not None or operation.state not in ("planned", "checking"):
        return None
    checking = operation.state == "checking"  # a preflight check waits only for another preflight check
    busy = [
        one
        for one in replay.live(store)
        if one.owner is not None
        and one.cluster_id == operation.cluster_id
        and one.state != "paused"
        and (one.state == "checking") == checking
    ]
    return busy[0] if busy and len(busy) >= runners else None


def _process_name(found: Sequence[Mapping[str, Any]], owner: str) -> str:
    """Return the client id, host and process id of an owner."""
    if not owner:
        return ""
    if not found:
        return owner
    row = found[0]
    return f"{row['client_id'] or row['producer_id'][:8]} on {row['host']}, process {row['pid']}"


def _pace(store: Store, operation: Operation, now: float) -> float | None:
    if operation.state != "running" or operation.started_at is None:
        return None
    since = max(operation.started_at, now - PACE_OVER)
    settled = int(store.rows("replay_pace", operation=operation.operation_id, since=since)[0]["settled"])
    return settled / max(now - since, 1.0) if settled else None
