"""A process that polls a store queries only what has changed: heartbeats without news do not count."""

from __future__ import annotations

import pytest

from producer_core.store import Store, merge
from producer_core.store.lease import Lease
from tests.fixtures.store_batches import batch, heartbeat


@pytest.fixture
def path(store):
    return store.path


def changed_by(store, write):
    before = store.changes()
    write()
    return store.changes() != before


def test_every_write_counts_but_a_read_does_not(store, path):
    other = Store.open(path)

    assert changed_by(store, lambda: store.set_setting("x", 1))
    assert changed_by(store, lambda: store.append(batch("p", 0)))
    assert changed_by(store, lambda: other.append(batch("q", 0)))
    assert not changed_by(store, store.settings)


def test_a_heartbeat_counts_only_for_other_objects_and_other_processes(store, path):
    other = Store.open(path)
    store.append(heartbeat("p", 0))
    before, others_before = store.changes(), other.changes()

    store.append(heartbeat("p", 1))

    assert (store.changes(), other.changes()) == (before, others_before + 1)


def test_a_count_in_the_middle_of_a_heartbeat_does_not_count_it(store, monkeypatch):
    """Regression: a thread that polled during the write made the evaluation and the replay runner read the store."""
    store.append(heartbeat("p", 0))
    before, during, merge_batches = store.changes(), [], merge.merge

    def merging(*arguments, **options):
        merged = merge_batches(*arguments, **options)
        store.path.touch()
        during.append(store.changes())
        return merged

    monkeypatch.setattr(merge, "merge", merging)
    store.append(heartbeat("p", 1))

    assert (during, store.changes()) == ([before], before)


@pytest.mark.parametrize(
    "news",
    [{"connected": False}, {"pending": 1}, {"waiting_retry": 1}, {"queue_messages": 1}, {"closed_at": 5.0}],
)
def test_a_heartbeat_with_news_counts(store, news):
    store.append(heartbeat("p", 0))

    assert changed_by(store, lambda: store.append(heartbeat("p", 1, **news)))


def test_the_first_heartbeat_of_a_producer_counts(store):
    assert changed_by(store, lambda: store.append(heartbeat("p", 0)))


def test_a_write_of_another_process_before_a_heartbeat_counts(store, path):
    store.append(heartbeat("p", 0))
    before = store.changes()

    Store.open(path).set_setting("x", 1)
    store.append(heartbeat("p", 1))

    assert store.changes() > before


def test_a_renewed_lease_does_not_count(store):
    times = [100.0]
    lease = Lease(store, "alerts", "me", seconds=16.0, monotonic=lambda: times[0])
    assert changed_by(store, lambda: lease.hold(100.0))
    times[0] = 109.0

    assert not changed_by(store, lambda: lease.hold(109.0))
    assert store.rows("lease_holder", name="alerts") == [{"owner": "me", "lease_until": 125.0}]


def test_a_failed_heartbeat_does_not_hide_the_write_of_another_process(store, path, monkeypatch):
    store.append(heartbeat("p", 0))
    before = store.changes()
    Store.open(path).set_setting("x", 1)
    monkeypatch.setattr("producer_core.store.merge.merge", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        store.append(heartbeat("p", 1))

    assert store.changes() > before
