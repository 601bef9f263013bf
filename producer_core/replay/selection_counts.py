"""Count in the store which records a replay would send and which it would leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core.dlq.replay_waves import NOT_IN_WAVE
from producer_core.dlq.revisions.revision import SENT_VALUES, any_current
from producer_core.replay.open_records import ListedRecord
from producer_core.replay.phrases import UNKNOWN_CLUSTER
from producer_core.replay.unknown_cluster import MAY_BE_ELSEWHERE

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.operation import Operation
    from producer_core.store import Store


class SelectionRow(NamedTuple):
    """One group of records; `left_out` is the reason why they are not sent, None if they are.

    `flag` is the finding of the preflight check on the records of an operation.
    """

    topic: str
    partition: int | None
    verdict: str
    left_out: str | None
    records: int
    bytes: int
    flag: str | None = None


class SchemaIdCount(NamedTuple):
    """The records of a topic whose values begin with one schema id."""

    topic: str
    schema_id: int
    records: int


SelectionCounts = tuple[list[SelectionRow], Counter[str]]
"""The groups to send, and the number of records left out by reason."""

_ROWS = f"""
SELECT topic, partition, verdict, left_out, count(*) AS records, sum(size)::BIGINT AS bytes FROM (
    SELECT topic, partition, verdict, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size,
           CASE WHEN NOT replayable THEN 'not_replayable'
                WHEN quarantined AND NOT ? THEN 'quarantined'
                WHEN cluster_id NOT IN ('', coalesce(?, cluster_id)) THEN 'other_cluster'
                WHEN {MAY_BE_ELSEWHERE} THEN 'unknown_cluster' END AS left_out
    FROM ({{dead_letters}}))
GROUP BY ALL"""
_SELECTED = f"SELECT * FROM dead_letters WHERE ({{where}}) AND state = 'dead' AND {NOT_IN_WAVE}"
_SENT = f"""replayable AND (? OR NOT quarantined) AND cluster_id IN ('', coalesce(?, cluster_id))
    AND NOT {MAY_BE_ELSEWHERE}"""
_OLDEST = f"SELECT * FROM ({{selected}}) WHERE {_SENT} ORDER BY {{order}} LIMIT ?"
_CLUSTER = """
SELECT cluster_id FROM ({selected}) WHERE cluster_id <> ''
GROUP BY cluster_id ORDER BY count(*) DESC, cluster_id LIMIT 1"""
_SLICE = f"""
SELECT rowid, message_id, topic, partition, key, value_size, accepted_at, failed_at FROM dead_letters
WHERE {{after}} ({{where}}) AND state = 'dead' AND {NOT_IN_WAVE} AND {_SENT} ORDER BY {{order}} LIMIT ?"""
_BY_AGE = "accepted_at, length(message_id), message_id"
_PAGE_SIZE = 50_000
_SENT_RECORDS = f"SELECT * FROM ({{selected}}) WHERE {_SENT}"
_SENT_BY_OPERATION = """
SELECT dead.* FROM operation_records AS records JOIN dead_letters AS dead USING (message_id)
WHERE records.operation_id = ? AND records.state IN ('pending', 'claimed') AND dead.state IN ('dead', 'replaying')"""
_SCHEMA_IDS = """
SELECT topic, bodies.value[2:5] AS schema_id, count(*) AS records
FROM ({sent}) AS sent JOIN {bodies} AS bodies USING (message_id)
WHERE {long_enough} AND bodies.value[1:1] = '\\x00'::BLOB
GROUP BY ALL ORDER BY records DESC, topic, schema_id LIMIT 1000"""
_UNEDITED = {"bodies": "dead_letter_bodies", "long_enough": "sent.value_size >= 5"}
_EDITED = {"bodies": f"({SENT_VALUES})", "long_enough": "octet_length(bodies.value) >= 5"}
"""The parts of _SCHEMA_IDS for a store without edits, and for one with edits."""
_OPERATION = """
SELECT dead.topic, dead.partition, dead.verdict,
       CASE WHEN records.state = 'pending' AND dead.state <> 'dead' THEN 'changed'
            WHEN records.state <> 'skipped' THEN NULL
            WHEN records.text = ? THEN 'unknown_cluster'
            WHEN NOT dead.replayable THEN 'not_replayable'
            WHEN dead.quarantined THEN 'quarantined'
            WHEN dead.cluster_id NOT IN ('', ?) THEN 'other_cluster' ELSE 'skipped' END AS left_out,
       count(*) AS records, sum(coalesce(records.size, 0))::BIGINT AS bytes, records.flag
FROM operation_records AS records JOIN dead_letters AS dead USING (message_id)
WHERE records.operation_id = ? AND records.state IN ('pending', 'claimed', 'skipped')
GROUP BY ALL"""


def count_selection(
    store: Store,
    selection: DeadLetterFilter,
    limit: int | None,
    allow_quarantined: bool,
    cluster: str | None,
    *,
    anywhere: bool = False,
) -> SelectionCounts:
    """Count the dead letters that match now.

    Dead letters of clusters other than `cluster` (None: the most frequent one) are left out unless `anywhere` is set.
    """
    where, given = selection.where()
    selected = _SELECTED.format(where=where)
    with store.borrow() as connection:
        if not cluster and not anywhere:
            cluster = main_cluster(store, selection) or None
        destination = None if anywhere else cluster
        options = [allow_quarantined, destination, destination]
        counts = _count(connection, _ROWS.format(dead_letters=selected), [*options, *given])
        if limit is None:
            return counts
        oldest = _ROWS.format(dead_letters=_OLDEST.format(selected=selected, order=_BY_AGE))
        sent, _ = _count(connection, oldest, [*options, *given, *options, limit])
        return sent, counts[1]


def count_schema_ids(
    store: Store,
    selection: DeadLetterFilter,
    operation: Operation | None = None,
    *,
    limit: int | None = None,
    allow_quarantined: bool = False,
    cluster: str | None = None,
    anywhere: bool = False,
) -> list[SchemaIdCount]:
    """Count the records to send by topic and schema id, the most frequent first.

    Schema ids in headers are not counted. A value that begins with a zero byte by chance counts, too.
    """
    parameters: list[Any]
    with store.borrow() as connection:
        if operation is not None:
            sql, parameters = _SENT_BY_OPERATION, [operation.operation_id]
        else:
            where, given = selection.where()
            if not cluster and not anywhere:
                cluster = main_cluster(store, selection) or None
            destination = None if anywhere else cluster
            options: list[Any] = [allow_quarantined, destination, destination]
            selected = _SELECTED.format(where=where)
            sql, parameters = _SENT_RECORDS.format(selected=selected), [*given, *options]
            if limit is not None:
                sql = _OLDEST.format(selected=selected, order=_BY_AGE)
                parameters.append(limit)
        sources = _EDITED if any_current(connection) else _UNEDITED
        rows = connection.execute(_SCHEMA_IDS.format(sent=sql, **sources), parameters).fetchall()
    found = [SchemaIdCount(topic, int.from_bytes(data, "big"), count) for topic, data, count in rows]
    return [one for one in found if one.schema_id]


def main_cluster(store: Store, selection: DeadLetterFilter) -> str:
    """Return the most frequent cluster of the matching dead letters; empty if none has a cluster."""
    where, given = selection.where()
    with store.borrow() as connection:
        found = connection.execute(_CLUSTER.format(selected=_SELECTED.format(where=where)), given).fetchone()
    return found[0] if found else ""


def iter_selection(
    store: Store,
    selection: DeadLetterFilter,
    *,
    allow_quarantined: bool = False,
    cluster: str | None = None,
    limit: int | None = None,
) -> Iterator[ListedRecord]:
    """Yield the records that would be sent to this cluster (None: any), read page by page to bound memory.

    With a limit, yield the oldest records up to the limit in one page.
    """
    where, given = selection.where()
    # DuckDB 2.0 fails on a filter by rowid with another order and a limit of 50 or less.
    paging = ("rowid > ? AND", "rowid") if limit is None else ("", _BY_AGE)
    sql = _SLICE.format(where=where, after=paging[0], order=paging[1])
    page_size = _PAGE_SIZE if limit is None else limit
    after = -1
    while True:
        with store.borrow() as connection:
            first = [after] if limit is None else []
            parameters = [*first, *given, allow_quarantined, cluster, cluster, page_size]
            rows = connection.execute(sql, parameters).fetchall()
        yield from (ListedRecord(*row[1:]) for row in rows)
        if limit is not None or len(rows) < _PAGE_SIZE:
            return
        after = rows[-1][0]


def count_operation(store: Store, operation: Operation) -> SelectionCounts:
    """Count the records that the operation has still to send and those it left out."""
    with store.borrow() as connection:
        return _count(connection, _OPERATION, [UNKNOWN_CLUSTER, operation.cluster_id, operation.operation_id])


def _count(connection: Any, sql: str, parameters: list[Any]) -> SelectionCounts:
    rows = [SelectionRow(*row) for row in connection.execute(sql, parameters).fetchall()]
    left: Counter[str] = Counter()
    for row in rows:
        if row.left_out:
            left[row.left_out] += row.records
    return [row for row in rows if row.left_out is None], left
