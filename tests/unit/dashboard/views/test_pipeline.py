"""Test the jobs and audits on the fleet page."""

from __future__ import annotations

from producer_core.store import Batch
from tests.fixtures.audits import audited, job
from tests.fixtures.pages import links, opened, producer, rows_of, text_of

JOBS = "Pipeline jobs, dead ones first"
AUDITS = "The last audit of each topic, faults first"


def test_the_page_shows_jobs_and_marks_dead_ones(path, store, now, monkeypatch):
    job(store, began=now - 600, seen=now, records_done=312, lag=0, last_success_at=now - 1, message="merged")
    job(store, "integrity orders", "integrity", began=now - 600, seen=now - 200, message="token=hunter2")
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    dead, runs = rows_of(page, JOBS)
    assert "dead: never finished, last seen" in dead[1] and dead[0].startswith("Audit integrity orders")
    assert "hunter2" not in text_of(page)
    assert runs[2:4] == ["312 batches", "none"] and "running for 10 min" in runs[1]
    assert "1 job is dead" in text_of(page) and "No telemetry job is running" not in text_of(page)
    assert not any("telemetry collect" in code.value for code in page.code)


def test_a_stopped_telemetry_job_is_reported_before_silent_producers(path, store, now, monkeypatch):
    store.append(Batch("web", 0, producer=producer("web", now, seen_at=now - 400)))
    job(store, began=now - 900, seen=now - 400)
    text = text_of(opened("fleet", path, monkeypatch))
    cause, effect = "No telemetry job is running; the last one was seen 7 min ago.", "1 is not reporting"
    assert 0 <= text.find(cause) < text.find(effect)


def test_an_empty_store_shows_the_audit_command(path, store, monkeypatch):
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    assert "No topic has been audited yet" in text_of(page)
    assert any(f"pipeline integrity --topic TOPIC --ledger-topic telemetry -b BROKER:9092 --store {path}" in code.value
               for code in page.code)  # fmt: skip


def test_the_fleet_page_links_to_the_audit(path, store, now, monkeypatch):
    audited(store, "a-1", at=now - 90, lost=3, expired=2, sentence="orders: of 1,000 messages 3 are lost.")
    audited(store, "a-2", at=now - 80, topic="compact", auditable=False, sentence="compact is compacted.")
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    orders, compact = rows_of(page, AUDITS)
    assert orders[:5] == [
        "orders",
        "orders: of 1,000 messages 3 are lost. Also 2 expired.",
        "3",
        "none",
        "none",
    ]
    assert orders[6] == "whole topic, 2 partitions"
    assert compact[0] == "compact unauditable" and compact[2] == "?"
    assert "fleet?audit=a-1" in links(page)
    assert "orders (3 lost)" in text_of(page)
