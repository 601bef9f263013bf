"""Keep watermarks, the offsets up to which topics were audited, and the audits themselves in a store.

A watermark belongs to one incarnation of a topic: a re-created topic has none. Only a finished audit moves it. The
ledger topics have watermarks of their own: rows that a ledger gets later about offsets below the topic's watermark
make the next audit begin there.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.spans import OffsetSpan
from producer_core.store.queries import run

if TYPE_CHECKING:
    from producer_core.store import Store

Offsets = Mapping[int, int]
"""Offsets by partition."""


def topic_key(topic: str, incarnation: str) -> str:
    """Return a topic's name and id: a deleted and re-created topic has another key."""
    return f"{topic} {incarnation}"


@dataclass(frozen=True)
class AuditWatermarks:
    """Hold the watermarks of the incremental audits of one topic with the same isolation and the same ledgers.

    Audits with another isolation or other ledgers have judged other messages. Without a store there are no watermarks.
    """

    store: Store | None
    cluster: str
    topic: str
    incarnation: str
    isolation: str
    ledgers: tuple[str, ...]

    @property
    def name(self) -> str:
        ledgers = hashlib.sha256("\n".join(sorted(self.ledgers)).encode()).hexdigest()[:8]
        return f"{topic_key(self.topic, self.incarnation)} {self.isolation} {ledgers}"

    def verified(self) -> dict[int, int]:
        """Return per partition the first offset that is not audited yet."""
        return self._read(self.name)

    def judged(self) -> dict[int, int]:
        """Return per partition the log's end after the last audit's read.

        That audit has judged as lost the messages that its ledgers placed at these offsets or above.
        """
        return self._read(f"{self.name} < the end")

    def ledger_read_until(self, ledger: str) -> dict[int, int]:
        """Return per partition how far a ledger was read; for the store's own, a time in milliseconds."""
        return self._read(f"{self.name} < {ledger}")

    def waiting(self) -> list[tuple[bytes, int]]:
        """Return ids without an offset that the last audit could not judge, of the 10,000 that the store holds."""
        if self.store is None:
            return []
        rows = self.store.rows("audit_waiting", cluster=self.cluster, topic=self.name)
        named = [row["message_id"].rpartition("-") for row in rows]
        return [(uuid.UUID(session).bytes, int(seq)) for session, _, seq in named]

    def is_recreated(self) -> bool:
        """Return whether audits have moved watermarks of a deleted topic of this name."""
        if self.store is None:
            return False
        rows = self.store.rows("audit_incarnations", cluster=self.cluster, topic=self.topic)
        return any(row["topic"].split(" ")[1] != self.incarnation for row in rows)

    def moved(self, spans: Mapping[int, OffsetSpan], ledgers: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """Return the watermarks of an audit that read these spans and ledgers, by name."""
        own = {
            self.name: {number: span.end for number, span in spans.items()},
            f"{self.name} < the end": {number: span.after for number, span in spans.items()},
        }
        return own | {f"{self.name} < {ledger}": offsets for ledger, offsets in ledgers.items()}

    def _read(self, name: str) -> dict[int, int]:
        if self.store is None:
            return {}
        found = self.store.rows("audit_marks_of", cluster=self.cluster, topic=name)
        return {row["partition"]: row["verified_until"] for row in found}


def begin(store: Store, topic: str, cluster: str, *, isolation: str, now: float | None = None) -> str:
    """Record the start of an audit and return its id. A killed audit stays `running` and moves no watermark."""
    audit_id = str(uuid.uuid4())
    started = time.time() if now is None else now
    store.execute(
        "begin_audit", id=audit_id, topic=topic, cluster=cluster, started=started, isolation=isolation
    )
    return audit_id


def fail(store: Store, audit_id: str, now: float, text: str) -> None:
    store.execute("fail_audit", id=audit_id, now=now, sentence=text)


def finish(store: Store, report: AuditReport, moved: Mapping[str, Offsets]) -> None:
    """Record the audit's numbers, the first findings of each kind and the moved watermarks, in one transaction."""
    numbers = ("records", "ours", "acknowledged", "lost", "duplicated", "reordered", "expired", "pending", "unledgered",
               "given_up", "given_up_found", "undecided", "ledger_gaps", "ledger_lost", "strange", "sentence", "findings_path", "since", "until")  # fmt: skip
    values: dict[str, Any] = {name: getattr(report, name) for name in numbers}
    values |= {"auditable": not report.compacted, "notes": "\n".join(report.notes)}
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
        run(connection, "add_audit_findings")
    finally:
        connection.unregister("new_findings")
