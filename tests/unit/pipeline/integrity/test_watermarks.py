"""The watermarks of audits in the store."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from producer_core.pipeline.integrity import watermarks
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.spans import OffsetSpan
from producer_core.pipeline.integrity.watermarks import AuditWatermarks
from producer_core.store import Store
from tests.fixtures.audit_reports import FINDINGS, findings, report


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


def test_a_finished_audit_moves_its_watermarks_and_a_failed_one_does_not(store):
    first = watermarks.begin(store, "orders", "c", isolation="read_committed", now=1.0)
    watermarks.fail(store, first, 2.0, "The broker went away.")
    marks = AuditWatermarks(store, "c", "orders", "x", "read_committed", ("telemetry",))
    assert marks.verified() == {}

    second = watermarks.begin(store, "orders", "c", isolation="read_committed", now=3.0)
    waits = findings(("pending", f"{uuid.UUID(int=5)}-7", 0, None, None, None))
    done = report(findings=pa.concat_tables([FINDINGS, waits.cast(FINDINGS.schema)]), lost=1, pending=1)
    done = AuditReport(
        **{**{name: getattr(done, name) for name in done.__dataclass_fields__}, "audit_id": second}
    )
    here = {0: OffsetSpan(0, 1_000, 0, 1_000, 1_000, after=1_003), 1: OffsetSpan(0, 4, 0, 4, 4, after=4)}
    watermarks.finish(store, done, marks.moved(here, {"telemetry y": {0: 7}}))

    assert (marks.verified(), marks.judged()) == ({0: 1_000, 1: 4}, {0: 1_003, 1: 4})
    assert (marks.ledger_read_until("telemetry y"), marks.ledger_read_until("telemetry z")) == ({0: 7}, {})
    assert marks.waiting() == [(uuid.UUID(int=5).bytes, 7)]
    for other in (
        {"incarnation": "y"},
        {"isolation": "read_uncommitted"},
        {"ledgers": ("more", "telemetry")},
    ):
        assert replace(marks, **other).verified() == {}
    assert [replace(marks, topic=name).is_recreated() for name in ("orders", "order")] == [False, False]
    assert replace(marks, incarnation="y").is_recreated()
    with store.borrow() as connection:
        rows = connection.execute(
            "SELECT state, lost, ours, sentence FROM audits ORDER BY started_at"
        ).fetchall()
        kinds = connection.execute(
            "SELECT kind, count(*) FROM audit_findings GROUP BY kind ORDER BY kind"
        ).fetchall()
    assert rows == [("failed", None, None, "The broker went away."), ("done", 1, 1_000, done.sentence)]
    assert kinds == [("duplicated", 2), ("lost", 1), ("pending", 1), ("reordered", 2), ("unledgered", 1)]
