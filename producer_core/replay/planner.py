"""The plan of a replay: which dead letters, frozen by their ids, to which cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from producer_core.delivery.prober import QUIET_PERIOD_S
from producer_core.dlq.codec import OLDEST_FIRST
from producer_core.errors import NoReplayRunner, OtherCluster, ReplayError
from producer_core.events import SAFE_VERDICTS
from producer_core.replay.guard import CANARY, STOP_LAST, STOP_PERCENT
from producer_core.replay.operation import (
    SENT_ANYWAY,
    Inconclusive,
    Newer,
    Operation,
    check_rate,
    end,
    get,
    live,
    operation_of,
)

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.store import Store

ALIVE = 15.0
"""Seconds since its last sign of life during which a process counts as one that runs replays."""

_NOBODY = "Start a producer on this store, or send from here: `producer-core dlq replay --bootstrap-servers HOST:PORT`."


@dataclass(frozen=True, slots=True)
class RunnerReach:
    """The clusters that somebody can send to now; `anywhere`: somebody who does not say which."""

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
    """Freezes the ids of the dead letters that match now, oldest first, and writes the operation down.

    While a replay of the same selection has not ended, that one is returned: a second click changes nothing. Unless
    nobody has decided it yet and more wait by now: then they are planned anew, all of them.
    With `join` so is one of another selection that has all of these dead letters yet to send: two people who click on
    the same dead letters, each on a page of his own, mean one replay.
    Dead letters that must not be sent (malformed, quarantined, of another cluster) are its `skipped` records, each
    with the reason. `to_cluster` sends dead letters of whatever cluster there. `can_run` says that the caller runs
    it himself (True, or the cluster he writes to); otherwise NoReplayRunner unless a live process does.

    `check_first`: a runner looks ahead (sizes, topics, newer keys of every topic), and it waits for `go`; with
    `go_by_itself` it waits only where there is something to ask (`DryRun.safe` says when not). Without `check_first`
    nobody is asked: it looks for newer keys only where the plan depends on it. `canary` records (10;
    0 for none) are settled before the rest; it stops itself when more than `stop_percent` % (50) of them, or of the
    `stop_last` (50) latest outcomes, failed again. `newer` says what becomes of a record for whose key a newer one
    was acknowledged since, `inconclusive` what becomes of one that may be on its topic and is not found there. `reason` is kept with it, in the operator's words.
    """
    check_rate(rate)
    now, asked = clock(), selection_text(selection)
    with store.borrow(write=True):
        reach = _reach(store, can_run, now)
        for same in map(operation_of, store.rows("replay_same", selection=asked)):
            if reach.has(same.cluster_id) and not (limit is None and _outgrown(store, same, selection)):
                return same
        if join and (found := _wider(store, selection, allow_quarantined)) and reach.has(found.cluster_id):
            return found
        cluster = _target(reach, _clusters(store, selection), to_cluster)
        operation_id = uuid.uuid4().hex[:12]
        store.execute(
            "replay_insert",
            operation_id=operation_id,
            cluster=cluster,
            selection=asked,
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
        _freeze(store, operation_id, selection, None if to_cluster else cluster, limit, allow_quarantined)
        store.execute("replay_planned", operation=operation_id)
        planned = _end_if_empty(store, get(store, operation_id), now)
        outcome = planned.message if planned.ended else f"planned as {operation_id}"
        if planned.sends_inconclusive and not planned.ended:
            outcome = f"{SENT_ANYWAY}; {outcome}"  # its id stays last: the pages find it there
        store.audit(
            who=who,
            origin=origin,
            action="replay",
            selection=selection.to_query(),
            count=planned.total,
            outcome=outcome or "",
        )
        return planned


def selection_text(selection: DeadLetterFilter) -> str:
    """How an operation writes its selection down; equal texts ask for the same replay."""
    return orjson.dumps(selection.to_query(), option=orjson.OPT_SORT_KEYS).decode()


def refusal(store: Store, clusters: Sequence[str], now: float) -> ReplayError | None:
    """Why a replay of dead letters from these clusters (most dead letters first) would be refused now; None: it would not."""
    try:
        _target(_reach(store, False, now), clusters, None)
    except ReplayError as error:
        return error
    return None


def under_way(store: Store, selection: DeadLetterFilter) -> list[tuple[Operation, int]]:
    """Replays that have not ended and have dead letters of this selection yet to send, each with how many; most first."""
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


def _outgrown(store: Store, operation: Operation, selection: DeadLetterFilter) -> bool:
    """Whether it waits for a decision, and dead letters of its selection wait that it is not about."""
    if not (operation.state == "ready" or (operation.state == "checking" and not operation.go_at_once)):
        return False
    where, parameters = selection.where()
    with store.borrow() as connection:
        sql = _NOT_IN_IT.format(where=where)
        return connection.execute(sql, [*parameters, operation.operation_id]).fetchone() is not None


def _wider(store: Store, selection: DeadLetterFilter, allow_quarantined: bool) -> Operation | None:
    """A replay under way that has every dead letter yet to send that this selection would send."""
    held = under_way(store, selection)
    if not held:
        return None
    where, parameters = selection.where()
    with store.borrow() as connection:
        found = connection.execute(_TO_SEND.format(where=where), [*parameters, allow_quarantined]).fetchone()
    wanted = found[0] if found else 0
    return next((operation for operation, count in held if count >= wanted > 0), None)


def runners(store: Store, now: float, *, cluster_id: str | None = None) -> list[str]:
    """Ids of the live processes that run replays; with a cluster, those that write to it or do not know yet."""
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
        raise NoReplayRunner(fix=_NOBODY)
    return RunnerReach(tuple(filter(None, live)), anywhere=can_run is True or not any(live))


def _target(reach: RunnerReach, own: Sequence[str], to_cluster: str | None) -> str:
    """The cluster to write to: the one told, else the dead letters' own (`own`, most dead letters first) that is in reach."""
    if to_cluster:
        if not reach.has(to_cluster):
            raise NoReplayRunner(f"No live process writes to the cluster {to_cluster}.", fix=_NOBODY)
        return to_cluster
    known = list(filter(None, own))
    for cluster in known:
        if reach.has(cluster):
            return cluster
    if known:
        raise OtherCluster(
            f"These dead letters come from the cluster {known[0]}, and {reach.clusters[0]} is what can be reached.",
            fix=(
                f"If they belong there, name it: `producer-core dlq replay --to {reach.clusters[0]}`, "
                f"or to_cluster={reach.clusters[0]!r} in Python."
            ),
        )
    return next(iter(reach.clusters), "")


def _clusters(store: Store, selection: DeadLetterFilter) -> list[str]:
    """The clusters of the dead letters that match, most dead letters first."""
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


_FREEZE = f"""
INSERT INTO operation_records (operation_id, ord, message_id, state, text, size, not_before)
SELECT ?, row_number() OVER (ORDER BY {OLDEST_FIRST}), message_id,
       CASE WHEN reason IS NULL THEN 'pending' ELSE 'skipped' END, reason, size, not_before
FROM (SELECT message_id, accepted_at, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size,
             CASE WHEN NOT list_contains(?, verdict) THEN failed_at + ? END AS not_before,
             CASE WHEN NOT replayable THEN 'it never became a message; mend the line at its source'
                  WHEN quarantined AND NOT ? THEN
                      'quarantined: it failed again in ' || replay_count || ' replays; replay it by itself'
                  WHEN cluster_id NOT IN ('', coalesce(?, cluster_id)) THEN
                      'it comes from another cluster (' || cluster_id || ')'
                  WHEN cluster_id = '' AND coalesce(?, '') <> '' AND NOT list_contains(?, verdict) THEN
                      'nobody knows on which cluster it may be, so it is not sent to this one'
             END AS reason
      FROM dead_letters WHERE ({{where}}) AND state = 'dead')
WHERE ? OR reason IS NULL
ORDER BY {OLDEST_FIRST}
"""


def _freeze(
    store: Store,
    operation_id: str,
    selection: DeadLetterFilter,
    cluster: str | None,
    limit: int | None,
    allow_quarantined: bool,
) -> None:
    """The records of the operation: what will be sent, and (without a limit) what is left out with its reason.

    The order is that of acceptance; of one session, ids of one length sort by their sequence.
    """
    where, parameters = selection.where()
    sql = _FREEZE.format(where=where) + ("" if limit is None else f"LIMIT {int(limit)}")
    with store.borrow(write=True) as connection:
        connection.execute(
            sql,
            [
                operation_id, list(SAFE_VERDICTS), QUIET_PERIOD_S, allow_quarantined, cluster, cluster, list(SAFE_VERDICTS),
                *parameters, limit is None,
            ],
        )  # fmt: skip
