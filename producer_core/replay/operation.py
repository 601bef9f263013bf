"""A replay as a durable operation: what it is, and what an operator may do with it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from producer_core.errors import NobodyReplays, OtherCluster, ReplayError

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.store import Store

State = Literal["planned", "running", "paused", "done", "stopped", "cancelled", "failed"]

ALIVE = 15.0
"""Seconds since its last sign of life during which a process counts as one that runs replays."""

CANCELLED = "cancelled before it was sent"

_NOBODY = "Start a producer on this store, run the replay with `producer-core dlq replay`, or set PRODUCER_CORE_CONFIG."


@dataclass(frozen=True, slots=True)
class Operation:
    """One replay. `message` is the last thing worth saying of it, in a sentence.

    `failed_again` are dead letters again, `landed` were found on the topic and not sent, `skipped` were left
    as they were; the reasons are with the records.
    """

    operation_id: str
    cluster_id: str
    selection: str
    state: State
    who: str
    origin: str
    created_at: float
    started_at: float | None
    finished_at: float | None
    total: int
    acknowledged: int
    landed: int
    failed_again: int
    skipped: int
    rate: float | None
    owner: str | None
    lease_until: float | None
    message: str | None

    @property
    def ended(self) -> bool:
        return self.state in ("done", "stopped", "failed") or (
            self.state == "cancelled" and self.finished_at is not None
        )

    @property
    def left(self) -> int:
        """Records without an outcome."""
        return self.total - self.acknowledged - self.landed - self.failed_again - self.skipped


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
    clock: Callable[[], float] = time.time,
) -> Operation:
    """Freezes the ids of the dead letters that match now, oldest first, and writes the operation down.

    While a replay of the same selection has not ended, that one is returned: a second click changes nothing.
    Letters that must not be sent (malformed, quarantined, of another cluster) are its `skipped` records, each
    with the reason. `to_cluster` sends letters of whatever cluster there. `can_run` says that the caller runs
    it himself (True, or the cluster he writes to); otherwise NobodyReplays unless a live process does.
    """
    if rate is not None and rate <= 0:
        raise ReplayError(
            f"A rate of {rate} messages a second never ends.", fix="Give a rate above 0, or none."
        )
    now, asked = clock(), orjson.dumps(selection.to_query(), option=orjson.OPT_SORT_KEYS).decode()
    with store.borrow(write=True):
        if same := store.rows("replay_same", selection=asked):
            return _operation(same[0])
        cluster = _target(store, selection, to_cluster, can_run, now)
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
        )
        _freeze(store, operation_id, selection, None if to_cluster else cluster, limit, allow_quarantined)
        store.execute("replay_planned", operation=operation_id)
        planned = _end_if_empty(store, get(store, operation_id), now)
        outcome = planned.message if planned.ended else f"planned as {operation_id}"
        store.audit(
            who=who,
            origin=origin,
            action="replay",
            selection=selection.to_query(),
            count=planned.total,
            outcome=outcome or "",
        )
        return planned


def runners(store: Store, now: float, *, cluster_id: str | None = None) -> list[str]:
    """Ids of the live processes that run replays; with a cluster, those that write to it or do not know yet."""
    found = store.rows("replay_runners", alive_since=now - ALIVE)
    return [
        row["producer_id"] for row in found if cluster_id is None or row["cluster_id"] in ("", cluster_id)
    ]


def get(store: Store, operation_id: str) -> Operation:
    """The operation as it stands now; ReplayError when there is none."""
    found = store.rows("operations", operation=operation_id)
    if not found:
        raise ReplayError(f"There is no replay {operation_id}.", fix="See `producer-core replay status`.")
    return _operation(found[0])


def list_operations(store: Store, *, state: State | None = None, limit: int = 50) -> list[Operation]:
    """The latest first."""
    return [_operation(row) for row in store.rows("operations", state=state, limit=limit)]


def pause(store: Store, operation_id: str, *, who: str, origin: str) -> Operation:
    """Sends nothing more; what is in flight is settled. `resume` goes on with the rest."""
    return _switch(store, operation_id, "paused", ("planned", "running"), who, origin, "Paused")


def resume(store: Store, operation_id: str, *, who: str, origin: str) -> Operation:
    """Goes on with a paused replay."""
    return _switch(store, operation_id, "planned", ("paused",), who, origin, "Waits for a runner")


def cancel(
    store: Store, operation_id: str, *, who: str, origin: str, clock: Callable[[], float] = time.time
) -> Operation:
    """Ends it for good: what is in flight is settled, the rest stays dead letters."""
    with store.borrow(write=True):
        cancelled = _switch(
            store,
            operation_id,
            "cancelled",
            ("planned", "running", "paused"),
            who,
            origin,
            "Is being cancelled",
        )
        if cancelled.owner is None:
            end(store, operation_id, clock())
        return get(store, operation_id)


def end(store: Store, operation_id: str, now: float) -> Operation:
    """The end of an operation whose records all have an outcome, or that was cancelled; within a write block."""
    operation = get(store, operation_id)
    state: State = "cancelled" if operation.state == "cancelled" else "done"
    if state == "cancelled":
        rest = store.execute("replay_skip_rest", operation=operation_id, text=CANCELLED)
        store.execute(
            "replay_count", operation=operation_id, acknowledged=0, landed=0, failed=0, skipped=rest
        )
        operation = get(store, operation_id)
    message = sentence(operation, store.rows("replay_reasons", operation=operation_id))
    store.execute("replay_end", operation=operation_id, state=state, now=now, message=message)
    store.audit(
        who=operation.who,
        origin=operation.origin,
        action="replay_end",
        selection=orjson.loads(operation.selection),
        count=operation.acknowledged + operation.landed,
        outcome=message,
    )
    return get(store, operation_id)


def sentence(operation: Operation, reasons: Sequence[dict[str, Any]]) -> str:
    """The result in words: «Replayed 40 of 43; 3 failed again: Broker: Policy violation»."""
    if not operation.total:
        return "Nothing to replay"
    first = "Cancelled: replayed" if operation.state == "cancelled" else "Replayed"
    parts = [f"{first} {operation.acknowledged:,} of {operation.total:,}"]
    if operation.landed:
        parts.append(f"{operation.landed:,} had landed already and were not sent")
    if operation.failed_again:
        parts.append(f"{operation.failed_again:,} failed again: {_why(reasons, 'failed')}")
    if operation.skipped:
        parts.append(f"{operation.skipped:,} skipped: {_why(reasons, 'skipped')}")
    return "; ".join(parts)


def _why(reasons: Sequence[dict[str, Any]], state: str) -> str:
    """The most frequent reason, and how many others there are."""
    texts = [row["text"] or "no reason given" for row in reasons if row["state"] == state]
    if len(texts) < 2:
        return "".join(texts)
    return f"{texts[0]} (and {len(texts) - 1} other reason{'s' if len(texts) > 2 else ''})"


def _switch(
    store: Store,
    operation_id: str,
    state: State,
    allowed: tuple[State, ...],
    who: str,
    origin: str,
    message: str,
) -> Operation:
    with store.borrow(write=True):
        changed = store.execute(
            "replay_switch", operation=operation_id, state=state, allowed=list(allowed), message=message
        )
        operation = get(store, operation_id)
        if not changed:
            raise ReplayError(
                f"The replay {operation_id} is {operation.state}, so this cannot be done: {operation.message or ''}"
            )
        store.audit(
            who=who,
            origin=origin,
            action=f"replay_{'resume' if state == 'planned' else 'pause' if state == 'paused' else 'cancel'}",
            selection=orjson.loads(operation.selection),
            count=operation.left,
            outcome=f"{message.lower()} ({operation_id})",
        )
        return operation


def _end_if_empty(store: Store, operation: Operation, now: float) -> Operation:
    return operation if operation.left else end(store, operation.operation_id, now)


def _target(
    store: Store, selection: DeadLetterFilter, to_cluster: str | None, can_run: bool | str, now: float
) -> str:
    """The cluster this replay writes to: the one told, the caller's, or the one live processes write to."""
    live = [row["cluster_id"] for row in store.rows("replay_runners", alive_since=now - ALIVE)]
    if not live and not can_run:
        raise NobodyReplays(fix=_NOBODY)
    if to_cluster:
        if can_run is not True and to_cluster not in (can_run, *live):
            raise NobodyReplays(f"No live process writes to the cluster {to_cluster}.", fix=_NOBODY)
        return to_cluster
    own = _clusters(store, selection)
    known = [cluster for cluster in own if cluster]
    reachable = (
        [can_run] if isinstance(can_run, str) and can_run else [cluster for cluster in live if cluster]
    )
    for cluster in known:
        if cluster in reachable or can_run is True or (not reachable and "" in live):
            return cluster
    if known and reachable:
        raise OtherCluster(
            f"These dead letters come from the cluster {known[0]}, and {reachable[0]} is what can be reached.",
            fix="If they belong there, say so with --to (to_cluster=).",
        )
    return (reachable or known or [""])[0]


def _clusters(store: Store, selection: DeadLetterFilter) -> list[str]:
    """The clusters of the letters that match, most letters first."""
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


_FREEZE = """
INSERT INTO operation_records
SELECT ?, row_number() OVER (ORDER BY accepted_at, length(message_id), message_id), message_id,
       CASE WHEN reason IS NULL THEN 'pending' ELSE 'skipped' END, reason
FROM (SELECT message_id, accepted_at,
             CASE WHEN NOT replayable THEN 'it never became a message; edit it first'
                  WHEN quarantined AND NOT ? THEN
                      'quarantined: it failed again in ' || replay_count || ' replays; replay it by itself'
                  WHEN cluster_id NOT IN ('', coalesce(?, cluster_id)) THEN
                      'it comes from another cluster (' || cluster_id || ')'
             END AS reason
      FROM dead_letters WHERE ({where}) AND state = 'dead')
WHERE ? OR reason IS NULL
ORDER BY accepted_at, length(message_id), message_id
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
        connection.execute(sql, [operation_id, allow_quarantined, cluster, *parameters, limit is None])


def _operation(row: dict[str, Any]) -> Operation:
    return Operation(**row)
