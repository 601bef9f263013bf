"""Test the server's alert worker."""

from __future__ import annotations

import threading

import pytest

from producer_core.dashboard.server import alert_worker
from producer_core.store import Store
from tests.fixtures.alert_pages import page
from tests.support import eventually


@pytest.fixture
def worker():
    yield alert_worker
    alert_worker.stop_all()


def threads():
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith(("alerts", "dashboard-alerts"))]


def test_the_server_evaluates_alerts_once_for_all_sessions_and_stops_cleanly(store, worker):
    before = sorted(threads())
    for _ in range(5):
        worker.start(store.path)
    evaluator = eventually(lambda: page(store).evaluator)

    assert evaluator.here
    assert threads().count("dashboard-alerts") == 1
    assert threads().count("alerts") <= 1 + before.count("alerts")
    worker.stop_all()
    assert sorted(threads()) == before
    assert store.rows("lease_holder", name="alerts") == []


def test_the_worker_waits_for_a_store_that_does_not_exist_yet(tmp_path, worker, monkeypatch):
    monkeypatch.setattr(alert_worker, "_RETRY_EVERY", 0.05)
    path = tmp_path / "later.duckdb"
    worker.start(path)
    assert not path.exists()

    store = Store.open(path)
    eventually(lambda: page(store).evaluator)
    worker.stop_all()
    store.close()


def test_a_store_that_cannot_be_opened_is_logged_once_with_the_reason(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(alert_worker, "_RETRY_EVERY", 0.01)
    path = tmp_path / "store.duckdb"
    path.write_bytes(b"not a store" * 10_000)
    stopping = threading.Event()
    waiting = threading.Thread(target=alert_worker.wait_for_store, args=(path, stopping))
    waiting.start()
    try:
        eventually(lambda: caplog.messages)
    finally:
        stopping.set()
        waiting.join(30)

    (line,) = caplog.messages
    assert line.startswith(
        f"dashboard server cannot open the store: error=The file {path} is not a DuckDB file"
    )
