"""Marks: up to where topics were audited, and the audits themselves, in a store.

A mark belongs to one incarnation of a topic: a topic that was deleted and made anew has none. It moves only with an
audit that finished. The ledger's topics have marks of their own beside the topic's: what a ledger tells later, of
offsets below the topic's mark, makes the next audit begin there.
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
"""By partition."""


def incarnated(topic: str, incarnation: str) -> str:
    """A topic by name and id: one that was deleted and made anew is another."""
    return f"{topic} {incarnation}"


@dataclass(frozen=True)
class AuditWatermarks:
    """How far the incremental audits of one topic have come that read as the same reader and heard the same ledgers: what
    others have read, these have not judged. Without a store there are none."""

    store: Store | None
    cluster: str
    topic: str
    incarnation: str
    isolation: str
    ledgers: tuple[str, ...]

    @property
    def name(self) -> str:
        heard = hashlib.sha256("\n".join(sorted(self.ledgers)).encode()).hexdigest()[:8]
        return f"{incarnated(self.topic, self.incarnation)} {self.isolation} {heard}"

    def verified(self) -> dict[int, int]:
        """By partition the first offset that was not audited yet."""
        return self._read(self.name)

    def judged(self) -> dict[int, int]:
        """By partition the end of the log, asked for when the last audit had read it: what its ledgers told of offsets from
        there on it has judged as lost."""
        return self._read(f"{self.name} < the end")

    def heard(self, ledger: str) -> dict[int, int]:
        """By partition how far a ledger was read; of the store's own, a moment in milliseconds."""
        return self._read(f"{self.name} < {ledger}")

    def waiting(self) -> list[tuple[bytes, int]]:
        """Ids without a place that the last audit could not judge, of the 10,000 that it told the store."""
        if self.store is None:
            return []
        rows = self.store.rows("audit_waiting", cluster=self.cluster, topic=self.name)
        named = [row["message_id"].rpartition("-") for row in rows]
        return [(uuid.UUID(session).bytes, int(seq)) for session, _, seq in named]

    def made_anew(self) -> bool:
        """Whether audits have moved marks of another topic of this name: of one that was deleted."""
        if self.store is None:
            return False
        rows = self.store.rows("audit_incarnations", cluster=self.cluster, topic=self.topic)
        return any(row["topic"].split(" ")[1] != self.incarnation for row in rows)

    def moved(self, spans: Mapping[int, OffsetSpan], heard: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """The marks of an audit that came so far, under their names."""
        own = {
            self.name: {number: span.end for number, span in spans.items()},
            f"{self.name} < the end": {number: span.after for number, span in spans.items()},
        }
        return own | {f"{self.name} < {ledger}": offsets for ledger, offsets in heard.items()}

    def _read(self, name: str) -> dict[int, int]:
        if self.store is None:
            return {}
        found = self.store.rows("audit_marks_of", cluster=self.cluster, topic=name)
        return {row["partition"]: row["verified_until"] for row in found}


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


def finish(store: Store, report: AuditReport, moved: Mapping[str, Offsets]) -> None:
    """The audit's numbers, the first findings of each kind and the moved marks, in one transaction."""
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
