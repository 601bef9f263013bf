"""Helpers of the audit and job tests: rows as the pipeline writes them into a store."""

from __future__ import annotations

import orjson

WHOLE = {"0": [0, 400, 0, 400], "1": [0, 600, 0, 600]}


def audited(
    store,
    audit_id,
    *,
    topic="orders",
    at,
    ranges=WHOLE,
    findings=(),
    path=None,
    sentence="All is well.",
    **numbers,
):
    """Write a finished audit with its findings as (kind, message id, partition, offset, text)."""
    known = dict.fromkeys(
        ("lost", "duplicated", "reordered", "expired", "pending", "unledgered", "given_up", "given_up_found",
         "undecided", "ledger_gaps", "ledger_lost", "strange", "foreign_records"),
        0,
    )  # fmt: skip
    known |= {
        "records": 1000,
        "ours": 1000,
        "acknowledged": 1000,
        "auditable": True,
        "notes": "",
        "since": None,
        "until": None,
    }
    store.execute(
        "begin_audit", id=audit_id, topic=topic, cluster="c", started=at, isolation="read_committed"
    )
    store.execute(
        "finish_audit", id=audit_id, finished=at + 7, ranges=orjson.dumps(ranges).decode(), sentence=sentence,
        findings_path=path, **(known | numbers),
    )  # fmt: skip
    with store.borrow(write=True) as connection:
        for finding in findings:
            kind, message_id, partition, offset, text = finding
            connection.execute(
                "INSERT INTO audit_findings VALUES (?, ?, ?, ?, ?, NULL, ?)",
                [audit_id, kind, message_id, partition, offset, text],
            )


def job(store, name="telemetry telemetry", kind="telemetry", *, began, seen, **progress):
    """Write a running job with its last progress report."""
    identity = {"name": name, "pid": 7, "started": began}
    unknown = dict.fromkeys(("records_done", "records_total", "lag", "last_success_at", "message", "details"))
    store.execute("begin_job", **identity, kind=kind, host="host", now=began)
    store.execute("tell_job", **identity, now=seen, **(unknown | progress))


def job_ended(store, name, state, *, began, ended, **progress):
    unknown = dict.fromkeys(("records_done", "records_total", "lag", "last_success_at", "message", "details"))
    store.execute("end_job", name=name, pid=7, started=began, now=ended, state=state, **(unknown | progress))
