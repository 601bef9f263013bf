"""What a replay would send and what it would leave out, counted in the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core.replay.broker_check import ListedRecord

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.operation import Operation
    from producer_core.store import Store


class SelectionRow(NamedTuple):
    """Records that have these in common; `left_out` is why they are not sent, None when they are."""

    topic: str
    partition: int | None
    verdict: str
    left_out: str | None
    records: int
    bytes: int


Counted = tuple[list[SelectionRow], Counter[str]]
"""What would be sent, and how many are left out, by why."""

_ROWS = """
SELECT topic, partition, verdict, left_out, count(*) AS records, sum(size)::BIGINT AS bytes FROM (
    SELECT topic, partition, verdict, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size,
           CASE WHEN NOT replayable THEN 'not_replayable'
                WHEN quarantined AND NOT ? THEN 'quarantined'
                WHEN cluster_id NOT IN ('', coalesce(?, cluster_id)) THEN 'other_cluster' END AS left_out
    FROM ({dead_letters}))
GROUP BY ALL"""
_SELECTED = "SELECT * FROM dead_letters WHERE ({where}) AND state = 'dead'"
_OLDEST = """
SELECT * FROM ({selected}) WHERE replayable AND (? OR NOT quarantined) AND cluster_id IN ('', coalesce(?, cluster_id))
ORDER BY {order} LIMIT ?"""
_CLUSTER = """
SELECT cluster_id FROM ({selected}) WHERE cluster_id <> ''
GROUP BY cluster_id ORDER BY count(*) DESC, cluster_id LIMIT 1"""
_SLICE = """
SELECT rowid, message_id, topic, partition, key, value_size, accepted_at, failed_at FROM dead_letters
WHERE rowid > ? AND ({where}) AND state = 'dead' AND replayable AND (? OR NOT quarantined)
    AND cluster_id IN ('', coalesce(?, cluster_id)) ORDER BY {order} LIMIT ?"""
_BY_AGE = "accepted_at, length(message_id), message_id"
_AT_ONCE = 50_000
_OPERATION = """
SELECT letters.topic, letters.partition, letters.verdict,
       CASE WHEN records.state = 'pending' AND letters.state <> 'dead' THEN 'changed'
            WHEN records.state <> 'skipped' THEN NULL
            WHEN NOT letters.replayable THEN 'not_replayable'
            WHEN letters.quarantined THEN 'quarantined'
            WHEN letters.cluster_id NOT IN ('', ?) THEN 'other_cluster' ELSE 'skipped' END AS left_out,
       count(*) AS records, sum(coalesce(records.size, 0))::BIGINT AS bytes
FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = ? AND records.state IN ('pending', 'claimed', 'skipped')
GROUP BY ALL"""


def of_selection(
    store: Store,
    selection: DeadLetterFilter,
    limit: int | None,
    allow_quarantined: bool,
    cluster: str | None,
    *,
    anywhere: bool = False,
) -> Counted:
    """Dead letters that match now. Those of other clusters than this one (None: the one most of them come from) are
    left out, unless they go `anywhere`."""
    where, given = selection.where()
    selected = _SELECTED.format(where=where)
    with store.borrow() as connection:
        if not cluster and not anywhere:
            cluster = main_cluster(store, selection) or None
        chosen = [allow_quarantined, None if anywhere else cluster]
        counted = _counted(connection, _ROWS.format(dead_letters=selected), [*chosen, *given])
        if limit is None:
            return counted
        oldest = _ROWS.format(dead_letters=_OLDEST.format(selected=selected, order=_BY_AGE))
        sent, _ = _counted(connection, oldest, [*chosen, *given, *chosen, limit])
        return sent, counted[1]


def main_cluster(store: Store, selection: DeadLetterFilter) -> str:
    """The cluster that most of the dead letters come from which match now; empty where none says it."""
    where, given = selection.where()
    with store.borrow() as connection:
        found = connection.execute(_CLUSTER.format(selected=_SELECTED.format(where=where)), given).fetchone()
    return found[0] if found else ""


def listed(
    store: Store,
    selection: DeadLetterFilter,
    *,
    allow_quarantined: bool = False,
    cluster: str | None = None,
    limit: int | None = None,
) -> Iterator[ListedRecord]:
    """What would be sent to this cluster (None: to any), as a check must know it; in slices, so that they may be many.

    With a limit the oldest so many, at once.
    """
    where, given = selection.where()
    sql = _SLICE.format(where=where, order="rowid" if limit is None else _BY_AGE)
    after = -1
    while True:
        with store.borrow() as connection:
            chosen = [after, *given, allow_quarantined, cluster, _AT_ONCE if limit is None else limit]
            rows = connection.execute(sql, chosen).fetchall()
        yield from (ListedRecord(*row[1:]) for row in rows)
        if limit is not None or len(rows) < _AT_ONCE:
            return
        after = rows[-1][0]


def of_operation(store: Store, operation: Operation) -> Counted:
    """What the operation has still to send, and what it left out."""
    with store.borrow() as connection:
        return _counted(connection, _OPERATION, [operation.cluster_id, operation.operation_id])


def _counted(connection: Any, sql: str, parameters: list[Any]) -> Counted:
    rows = [SelectionRow(*row) for row in connection.execute(sql, parameters).fetchall()]
    left: Counter[str] = Counter()
    for row in rows:
        if row.left_out:
            left[row.left_out] += row.records
    return [row for row in rows if row.left_out is None], left
