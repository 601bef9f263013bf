"""Marks: up to where topics were audited, and the audits themselves, in a store.

A mark belongs to one incarnation of a topic: a topic that was deleted and made anew has none. It moves only with an
audit that finished. The ledger's topics have marks of their own beside the topic's: what a ledger tells later, of
offsets below the topic's mark, makes the next audit begin there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from producer_core.pipeline.integrity.report import AuditReport
from producer_core.store.queries import query

if TYPE_CHECKING:
    from producer_core.store import Store

Marks = Mapping[int, int]


def of_topic(topic: str, incarnation: str) -> str:
    """Under which name the marks of a topic are kept."""
    return f"{topic} {incarnation}"


def of_ledger(topic: str, incarnation: str, ledger: str) -> str:
    """Under which name it is kept how far audits of this topic have read a ledger (a topic's is `of_topic` of it)."""
    return f"{of_topic(topic, incarnation)} < {ledger}"


def read(store: Store, cluster: str, name: str) -> dict[int, int]:
    """By partition the first offset that was not audited yet."""
    found = store.rows("audit_marks_of", cluster=cluster, topic=name)
    return {row["partition"]: row["verified_until"] for row in found}


def others(store: Store, cluster: str, topic: str, incarnation: str) -> bool:
    """Whether an audit has moved marks of another topic of this name: of one that was deleted."""
    found = store.rows("audit_incarnations", cluster=cluster, topic=topic)
    return any(row["topic"] != of_topic(topic, incarnation) for row in found)


def waiting(store: Store, cluster: str, name: str) -> list[tuple[bytes, int]]:
    """Ids without a place that the last incremental audit could not judge, of the 10,000 that it told the store."""
    rows = store.rows("audit_waiting", cluster=cluster, topic=name)
    named = [row["message_id"].rpartition("-") for row in rows]
    return [(uuid.UUID(session).bytes, int(seq)) for session, _, seq in named]


def begin(store: Store, topic: str, cluster: str, *, isolation: str, now: float | None = None) -> str:
    """An audit begins: its id. It stays `running` in the store when it is killed, and moves no mark."""
    audit_id = str(uuid.uuid4())
    started = time.time() if now is None else now
    store.execute(
        "begin_audit", id=audit_id, topic=topic, cluster=cluster, started=started, isolation=isolation
    )
    return audit_id


def fail(store: Store, audit_id: str, now: float, text: str) -> None:
    store.execute("fail_audit", id=audit_id, now=now, sentence=text)


def finish(store: Store, report: AuditReport, moved: Mapping[str, Marks]) -> None:
    """The audit's numbers, the first findings of each kind and the moved marks, in one transaction."""
    numbers = ("records", "ours", "acknowledged", "lost", "duplicated", "reordered", "expired", "pending", "unledgered",
               "given_up", "given_up_found", "undecided", "ledger_gaps", "auditable", "sentence", "findings_path", "since", "until")  # fmt: skip
    values: dict[str, Any] = {name: getattr(report, name) for name in numbers}
    ranges = orjson.dumps(report.ranges).decode()
    with store.borrow(write=True, timeout=60) as connection:
        store.execute(
            "finish_audit", id=report.audit_id, finished=report.finished_at, ranges=ranges,
            foreign_records=report.foreign, **values,
        )  # fmt: skip
        rows = [
            [report.audit_id, row["kind"], row["message_id"], row["partition"], row["offset"], row["other_offset"], row["text"]]
            for row in report.rows()
        ]  # fmt: skip
        _insert(connection, rows)
        for name, marks in moved.items():
            for partition, offset in marks.items():
                store.execute(
                    "move_audit_mark", cluster=report.cluster_id, topic=name, partition=partition,
                    until=offset, audit=report.audit_id,
                )  # fmt: skip


def _insert(connection: Any, rows: Sequence[Sequence[Any]]) -> None:
    import pyarrow as pa

    if not rows:
        return
    names = ("audit_id", "kind", "message_id", "partition", "offset", "other_offset", "text")
    kinds = (pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string())
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    connection.register("new_findings", pa.table(dict(zip(names, columns, strict=True))))
    try:
        connection.execute(query("add_audit_findings").sql)
    finally:
        connection.unregister("new_findings")
