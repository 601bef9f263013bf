"""Plan a replay: freeze the ids of the selected dead letters and choose the destination cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from producer_core.delivery.prober import QUIET_PERIOD_S
from producer_core.dlq import replay_waves
from producer_core.dlq.approvals import gate
from producer_core.dlq.approvals.requests import list_requests, open_request
from producer_core.dlq.codec import OLDEST_FIRST
from producer_core.dlq.revisions.revision import CURRENT_NUMBERS, NOT_REPLACED, any_current
from producer_core.errors import NoReplayRunner, OtherCluster, ReplayError
from producer_core.events import SAFE_VERDICTS
from producer_core.metrics.heartbeat import ALIVE
from producer_core.replay.guard import CANARY, STOP_LAST, STOP_PERCENT
from producer_core.replay.operation import (
    Inconclusive,
    Newer,
    Operation,
    check_rate,
    end,
    expire_undecided,
    get,
    go,
    live,
    operation_of,
)
from producer_core.replay.phrases import (
    NEVER_SENT,
    OTHER_CLUSTER,
    QUARANTINED,
    SENT_ANYWAY,
    UNKNOWN_CLUSTER,
)
from producer_core.replay.unknown_cluster import MAY_BE_ELSEWHERE
from producer_core.roles.role_check import check_operator

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.store import Store

_START_A_RUNNER = "Start a producer on this store, or send from here: `producer-core dlq replay --bootstrap-servers HOST:PORT`."


@dataclass(frozen=True, slots=True)
class RunnerReach:
    """The clusters that live runners write to; `anywhere`: a live runner has not named its cluster yet."""

    clusters: tuple[str, ...]
    anywhere: bool

    def has(self, cluster: str) -> bool:
        return self.anywhere or not cluster or cluster in self.clusters


def plan(
    store: Store,
    selection: DeadLetterFilter,
    *,
    who: str,
    origin: str,
    limit: int | None = None,
    rate: float | None = None,
    allow_quarantined: bool = False,
    to_cluster: str | None = None,
    can_run: bool | str = False,
    check_first: bool = False,
    go_by_itself: bool = False,
    canary: int | None = None,
    stop_percent: float | None = None,
    stop_last: int | None = None,
    newer: Newer = "auto",
    inconclusive: Inconclusive = "keep",
    reason: str | None = None,
    join: bool = False,
    clock: Callable[[], float] = time.time,
) -> Operation:
    """Freeze the ids of the dead letters that match now, oldest first, and store the operation.

    If an unfinished replay of the same selection exists, return it, so that a second click changes nothing. The
    exception is an undecided replay whose selection matches more dead letters by now: the selection is planned again.
    With `join`, an unfinished replay of another selection that includes all of these dead letters is returned too, so
    that two operators who act on the same dead letters share one replay.

    Dead letters that must not be sent (malformed, quarantined, of another cluster) become `skipped` records with the
    reason. `to_cluster` sends dead letters of every cluster there. `can_run` says that the caller runs the replay (True,
    or the cluster it writes to); otherwise NoReplayRunner is raised unless a live process can run it.

    With `check_first` a runner checks sizes, topics and the newer keys of every topic, and the replay waits for `go`;
    with `go_by_itself` it waits only if a decision is needed (see `DryRun.safe`). Without `check_first` it starts at
    once and looks up newer keys only on topics on which the plan depends.

    An undecided replay expires after DECIDE_WITHIN seconds; its records remain dead letters.

    `canary` records (10; 0 for none) are settled before the rest. The replay stops if more than `stop_percent` % (50) of
    them, or of the `stop_last` (50) latest outcomes, failed again. `newer` controls records whose key has a newer
    record, `inconclusive` controls records that may be on their topic and are not found there. `reason` is the
    operator's own note.

    Without `check_first`, raise ApprovalRequired if a second person must approve the replay first. It then waits for
    `go`, or for the same call after the approval. Raise NotPermitted if the policy does not let this person replay.
    """
    check_rate(rate)
    now, wanted = clock(), selection_text(selection)
    with store.borrow(write=True) as connection:
        replay_waves.begin_change(connection)
        check_operator(store, who=who, origin=origin, now=now)
        expire_undecided(store, now)
        reach = _reach(store, can_run, now)
        existing = _existing(store, selection, reach, now=now, limit=limit)
        if existing is None and join:
            existing = _superset(store, selection, allow_quarantined, reach)
        if existing is not None and (check_first or not _waits_for_approval(store, existing)):
            return existing
        if existing is None:
            cluster = _target(reach, _clusters(store, selection), to_cluster)
            operation_id = uuid.uuid4().hex[:12]
            store.execute(
                "replay_insert",
                operation_id=operation_id,
                cluster=cluster,
                selection=wanted,
                who=who,
                origin=origin,
                now=now,
                rate=rate,
                state="checking" if check_first else "planned",
                go_at_once=go_by_itself if check_first else None,
                canary=CANARY if canary is None else canary,
                stop_percent=STOP_PERCENT if stop_percent is None else stop_percent,
                stop_last=STOP_LAST if stop_last is None else stop_last,
                newer=newer,
                inconclusive=inconclusive,
                reason=reason,
            )
            if go_by_itself:
                gate.keep_requester(store, operation_id, who=who, origin=origin)
            _freeze(store, operation_id, selection, None if to_cluster else cluster, limit, allow_quarantined)
            store.execute("replay_planned", operation=operation_id)
            planned = _end_if_empty(store, get(store, operation_id), now)
            _audit_plan(store, planned, selection, who=who, origin=origin)
            if check_first or planned.ended:
                return planned
            if gate.admit_planned(store, operation_id, who=who, origin=origin, now=now):
                return planned
            store.execute(
                "replay_switch",
                operation=operation_id,
                state="ready",
                allowed=["planned"],
                message=gate.WAITING,
            )
        else:
            operation_id = existing.operation_id
    return go(store, operation_id, who=who, origin=origin, rate=rate, clock=clock)


def _audit_plan(
    store: Store, planned: Operation, selection: DeadLetterFilter, *, who: str, origin: str
) -> None:
    outcome = planned.message if planned.ended else f"planned as {planned.operation_id}"
    if planned.sends_inconclusive and not planned.ended:
        outcome = f"{SENT_ANYWAY}; {outcome}"  # the dashboard reads the id from the end of the text
    store.audit(
        who=who,
        origin=origin,
        action="replay",
        selection=selection.to_query(),
        count=planned.total,
        outcome=outcome or "",
    )


def _existing(
    store: Store, selection: DeadLetterFilter, reach: RunnerReach, *, now: float, limit: int | None
) -> Operation | None:
    """Return the unfinished replay of this selection; None if there is none, or an undecided one is outdated.

    A replay whose request is open is never outdated: the approval is for its dead letters.
    """
    for existing in map(operation_of, store.rows("replay_same", selection=selection_text(selection))):
        if not reach.has(existing.cluster_id):
            continue
        requested = open_request(store, existing.operation_id, now) is not None
        if requested or limit is not None or not _is_outdated(store, existing, selection):
            return existing
    return None


def _waits_for_approval(store: Store, operation: Operation) -> bool:
    """Return whether an undecided replay was requested before, so that an unattended call starts it or asks again."""
    return operation.state == "ready" and (
        operation.message == gate.WAITING
        or bool(list_requests(store, operation_id=operation.operation_id, limit=1))
    )


def selection_text(selection: DeadLetterFilter) -> str:
    """Return the selection as an operation stores it; equal texts mean the same replay."""
    return orjson.dumps(selection.to_query(), option=orjson.OPT_SORT_KEYS).decode()


def refusal(store: Store, clusters: Sequence[str], now: float) -> ReplayError | None:
    """Return why a replay of dead letters from these clusters (most frequent first) would be refused now, or None."""
    try:
        _target(_reach(store, False, now), clusters, None)
    except ReplayError as error:
        return error
    return None


def under_way(store: Store, selection: DeadLetterFilter) -> list[tuple[Operation, int]]:
    """Return unfinished replays with dead letters of this selection still to send, and how many; largest first."""
    with store.borrow() as connection:
        open_ones = {operation.operation_id: operation for operation in live(store)}
        if not open_ones:
            return []
        where, parameters = selection.where()
        found = connection.execute(_HELD.format(where=where), [list(open_ones), *parameters]).fetchall()
    return [(open_ones[operation_id], count) for operation_id, count in found]


_HELD = """
SELECT records.operation_id, count(*) AS n FROM operation_records AS records
WHERE list_contains(?, records.operation_id) AND records.state IN ('pending', 'claimed')
  AND records.message_id IN (SELECT message_id FROM dead_letters WHERE {where})
GROUP BY records.operation_id ORDER BY n DESC, records.operation_id
"""
_TO_SEND = "SELECT count(*) FROM dead_letters WHERE ({where}) AND state = 'dead' AND replayable AND (? OR NOT quarantined)"


_NOT_IN_IT = """
SELECT 1 FROM dead_letters WHERE ({where}) AND state = 'dead'
  AND message_id NOT IN (SELECT message_id FROM operation_records WHERE operation_id = ?) LIMIT 1
"""


def _is_outdated(store: Store, operation: Operation, selection: DeadLetterFilter) -> bool:
    """Return whether an undecided operation lacks dead letters that its selection matches by now."""
    if not (operation.state == "ready" or (operation.state == "checking" and not operation.go_at_once)):
        return False
    where, parameters = selection.where()
    with store.borrow() as connection:
        sql = _NOT_IN_IT.format(where=where)
        return connection.execute(sql, [*parameters, operation.operation_id]).fetchone() is not None


def _superset(
    store: Store, selection: DeadLetterFilter, allow_quarantined: bool, reach: RunnerReach
) -> Operation | None:
    """Return an unfinished, reachable replay that still has to send every dead letter that this selection would send."""
    held = under_way(store, selection)
    if not held:
        return None
    where, parameters = selection.where()
    with store.borrow() as connection:
        found = connection.execute(_TO_SEND.format(where=where), [*parameters, allow_quarantined]).fetchone()
    wanted = found[0] if found else 0
    found_one = next((operation for operation, count in held if count >= wanted > 0), None)
    return found_one if found_one is not None and reach.has(found_one.cluster_id) else None


def runners(store: Store, now: float, *, cluster_id: str | None = None) -> list[str]:
    """Return the ids of live replay runners; with a cluster, those that write to it or do not know theirs yet."""
    found = store.rows("replay_runners", alive_since=now - ALIVE)
    return [
        row["producer_id"] for row in found if cluster_id is None or row["cluster_id"] in ("", cluster_id)
    ]


def _end_if_empty(store: Store, operation: Operation, now: float) -> Operation:
    return operation if operation.left else end(store, operation.operation_id, now)


def _reach(store: Store, can_run: bool | str, now: float) -> RunnerReach:
    live = [row["cluster_id"] for row in store.rows("replay_runners", alive_since=now - ALIVE)]
    if isinstance(can_run, str) and can_run:
        return RunnerReach((can_run,), anywhere=False)
    if not live and not can_run:
        raise NoReplayRunner(fix=_START_A_RUNNER)
    return RunnerReach(tuple(filter(None, live)), anywhere=can_run is True or not any(live))


def _target(reach: RunnerReach, own: Sequence[str], to_cluster: str | None) -> str:
    """Return the destination: `to_cluster`, else the first reachable one of the dead letters' clusters `own`."""
    if to_cluster:
        if not reach.has(to_cluster):
            raise NoReplayRunner(f"No live process writes to the cluster {to_cluster}.", fix=_START_A_RUNNER)
        return to_cluster
    known = list(filter(None, own))
    for cluster in known:
        if reach.has(cluster):
            return cluster
    if known:
        raise OtherCluster(
            f"These dead letters come from the cluster {known[0]}, but only {reach.clusters[0]} can be reached.",
            fix=(
                f"If they belong there, specify the cluster: `producer-core dlq replay --to {reach.clusters[0]}`, "
                f"or to_cluster={reach.clusters[0]!r} in Python."
            ),
        )
    return next(iter(reach.clusters), "")


def _clusters(store: Store, selection: DeadLetterFilter) -> list[str]:
    """Return the clusters of the matching dead letters, most frequent first."""
    where, parameters = selection.where()
    with store.borrow() as connection:
        return [
            row[0]
            for row in connection.execute(
                f"SELECT cluster_id, count(*) FROM dead_letters WHERE ({where}) AND state = 'dead' "
                "GROUP BY cluster_id ORDER BY count(*) DESC, cluster_id",
                parameters,
            ).fetchall()
        ]


# The rows are sorted once and numbered in that order. A window with its own order would sort all columns in twice the time.
_FREEZE = f"""
INSERT INTO operation_records (operation_id, ord, message_id, state, text, size, not_before, revision)
SELECT ?, row_number() OVER (), message_id,
       CASE WHEN reason IS NULL THEN 'pending' ELSE 'skipped' END, reason, size, not_before, revision
FROM (SELECT message_id, {{size}} AS size, not_before, reason, {{revision}} AS revision
      FROM (SELECT message_id, accepted_at, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size,
                   CASE WHEN NOT list_contains(?, verdict) THEN failed_at + ? END AS not_before,
                   CASE WHEN NOT replayable THEN '{NEVER_SENT}'
                        WHEN quarantined AND NOT ? THEN
                            '{QUARANTINED} in ' || replay_count || ' replays; replay it by itself'
                        WHEN cluster_id NOT IN ('', coalesce(?, cluster_id)) THEN
                            '{OTHER_CLUSTER} (' || cluster_id || ')'
                        WHEN {MAY_BE_ELSEWHERE} THEN '{UNKNOWN_CLUSTER}'
                   END AS reason
            FROM dead_letters WHERE ({{where}}) AND state = 'dead'{{only}}) AS chosen{{revised}}
      WHERE ? OR reason IS NULL
      ORDER BY {OLDEST_FIRST}{{limit}})
"""
_UNEDITED = {"size": "size", "revision": "NULL", "only": "", "revised": ""}
_EDITED = {
    "size": "coalesce(revised.size, chosen.size)",
    "revision": "revised.number",
    "only": f" AND {NOT_REPLACED}",  # an earlier version may have written such an original again
    "revised": f" LEFT JOIN ({CURRENT_NUMBERS}) AS revised USING (message_id)",
}
"""The parts of _FREEZE for a store without edits, and for one with edits."""


def _freeze(
    store: Store,
    operation_id: str,
    selection: DeadLetterFilter,
    cluster: str | None,
    limit: int | None,
    allow_quarantined: bool,
) -> None:
    """Insert the operation's records to send, and (without a limit) those left out, each with its reason.

    The order is that of acceptance; within a session, ids of equal length sort by their sequence.
    """
    where, parameters = selection.where()
    with store.borrow(write=True) as connection:
        parts = _EDITED if any_current(connection) else _UNEDITED
        sql = _FREEZE.format(where=where, limit="" if limit is None else f" LIMIT {int(limit)}", **parts)
        connection.execute(
            sql,
            [
                operation_id, list(SAFE_VERDICTS), QUIET_PERIOD_S, allow_quarantined, cluster, cluster,
                *parameters, limit is None,
            ],
        )  # fmt: skip
