"""One process evaluates the rules of a store, and detects a producer that is gone."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertEvaluator, AlertLog
from producer_core.store import Batch, ProducerRow, Store
from producer_core.store.connection_pool import ConnectionPool
from tests.fixtures.alerts import kinds

JOURNAL = '{"journal_dir": "/var/lib/shop/journal"}'


def heartbeat(
    store,
    seen_at,
    *,
    closed_at=None,
    producer_id="p-1",
    pending=12,
    started_at=0.0,
    host="host-7",
    settings="{}",
):
    row = ProducerRow(
        producer_id, "c", "shop", host, 4711, "0", started_at, seen_at, closed_at, True, None, pending, 0, 0, 0, 0, None,
        True, "at_least_once", settings,
    )  # fmt: skip
    store.append(Batch(producer_id, time.monotonic_ns(), producer=row))


class Watcher:
    """Runs an evaluator and returns the changes about dead producers. Both of its clocks run together."""

    def __init__(self, store, owner="watcher"):
        self._now = 0.0
        self._evaluator = AlertEvaluator(
            store, owner=owner, clock=lambda: self._now, monotonic=lambda: self._now
        )

    def at(self, now):
        self._now = now
        changes = self._evaluator.tick()
        return [
            (kind, rule) for kind, rule in kinds(changes) if rule == "producer_gone" and kind != "decided"
        ]


@pytest.mark.slow
def test_another_process_detects_a_dead_producer_once(store):
    heartbeat(store, 1000.0)
    watcher = Watcher(store)

    assert watcher.at(1030.0) == []
    changes = [watcher.at(now) for now in (1041.0, 1042.0, 1100.0)]

    assert changes == [[("fired", "producer_gone")], [], []]
    (item,) = AlertLog(store).list()
    assert "shop (host-7, process 4711)" in item.text
    assert item.severity == "critical"


def test_producer_gone_resolves_with_the_next_heartbeat(store):
    heartbeat(store, 1000.0)
    watcher = Watcher(store)
    watcher.at(1041.0)

    heartbeat(store, 1050.0)

    assert watcher.at(1051.0) == [("resolved", "producer_gone")]


def test_a_closed_producer_is_not_gone(store):
    heartbeat(store, 1000.0, closed_at=1000.0)

    assert Watcher(store).at(2000.0) == []


@pytest.mark.parametrize(
    ("later", "gone"),
    [
        ({"settings": JOURNAL}, False),
        ({"settings": JOURNAL, "closed_at": 1010.0}, False),
        ({"settings": '{"journal_dir": "/other"}'}, True),
        ({"settings": JOURNAL, "host": "host-8"}, True),
        ({"settings": "{}"}, True),
        ({"settings": "not JSON"}, True),
    ],
    ids=["running", "closed", "another journal", "another host", "no journal", "of an older version"],
)
def test_a_killed_producer_is_not_gone_once_its_journal_has_a_later_producer(store, later, gone):
    heartbeat(store, 1000.0, settings=JOURNAL)
    heartbeat(store, 5990.0, producer_id="p-2", started_at=1005.0, **{"closed_at": 5990.0, **later})

    changes = Watcher(store).at(6000.0)

    assert changes == ([("fired", "producer_gone")] if gone else [])


@pytest.mark.slow
def test_one_process_evaluates_and_another_takes_over_when_it_dies(store):
    heartbeat(store, 1000.0)
    first, second = Watcher(store, "first"), Watcher(store, "second")
    first.at(1001.0)

    assert second.at(1010.0) == []
    assert second.at(1041.0) == [("fired", "producer_gone")]
    assert first.at(1042.0) == []


@pytest.fixture
def attached(monkeypatch):
    """The borrows of all stores: True for one that writes."""
    made, attach = [], ConnectionPool._attach

    def counting(pool, *args, write, **kwargs):
        made.append(write)
        return attach(pool, *args, write=write, **kwargs)

    monkeypatch.setattr(ConnectionPool, "_attach", counting)
    return made


def test_an_evaluation_attaches_the_file_once_while_the_lease_is_fresh(store, attached):
    watcher = Watcher(store)
    watcher.at(1000.0)
    heartbeat(store, 1000.0, pending=0)
    attached.clear()

    watcher.at(1001.0)

    assert attached == [False]


def test_an_unchanged_store_is_read_every_15_seconds_and_its_lease_is_renewed(store, attached):
    watcher = Watcher(store)
    watcher.at(1000.0)
    attached.clear()

    for now in (1001.0, 1005.0, 1007.0):
        watcher.at(now)
    assert attached == []

    watcher.at(1008.0)
    assert attached == [True]  # the renewal
    watcher.at(1015.0)
    assert attached == [True, False]
    assert store.rows("lease_holder", name="alerts")[0]["lease_until"] == 1023.0


def test_the_heartbeats_of_the_same_process_renew_the_lease_and_need_no_evaluation(store, attached):
    heartbeat(store, 1000.0, pending=0)
    watcher = Watcher(store)
    watcher.at(1000.0)
    attached.clear()

    for now in range(1001, 1015):
        if now % 5 == 0:
            heartbeat(store, float(now), pending=0)
        watcher.at(float(now))
    assert attached == [True, True]  # the heartbeats

    watcher.at(1015.0)
    assert attached == [True, True, False]


def test_a_producer_that_dies_is_found_in_time_although_nothing_else_is_written(store, attached):
    heartbeat(store, 1000.0, pending=0)
    watcher = Watcher(store)
    watcher.at(1027.0)
    watcher.at(1035.0)
    attached.clear()

    assert watcher.at(1039.0) == []
    assert attached == []
    assert watcher.at(1041.0) == [("fired", "producer_gone")]


def test_a_write_of_another_process_is_evaluated_at_once(store):
    heartbeat(store, 1000.0)
    watcher = Watcher(store)
    assert watcher.at(1041.0) == [("fired", "producer_gone")]
    assert watcher.at(1042.0) == []

    heartbeat(Store.open(store.path), 1043.0)

    assert watcher.at(1043.0) == [("resolved", "producer_gone")]


def test_an_evaluator_that_lost_its_lease_does_not_evaluate(store):
    heartbeat(store, 1000.0)
    first = Watcher(store, "first")
    first.at(1036.0)
    store.drop_lease("alerts", "first")
    assert store.take_lease("alerts", "second", 15.0, now=1036.0)

    assert first.at(1041.0) == []
    assert store.drop_lease("alerts", "second")
    assert first.at(1042.0) == [("fired", "producer_gone")]
