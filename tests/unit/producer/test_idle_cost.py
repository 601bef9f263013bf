"""The cost of an idle minute in borrows of the store, which `make check` can hold on any machine."""

from __future__ import annotations

import os

import pytest

from producer_core._internal import read_activity
from producer_core.alerts import AlertEvaluator
from producer_core.dlq import DeadLetters
from producer_core.dlq.limits import DeadLetterLimits, LimitWatch
from producer_core.replay.candidates import Candidates
from producer_core.store import Store
from tests.fixtures.operation_counts import OperationCounts, counted
from tests.fixtures.recording import RecordingRig, row


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def test_an_idle_minute_borrows_the_store_about_twenty_times(store):
    """Each borrow attaches the file, which takes 3 ms of processor time; one that writes takes 10 ms."""
    seconds = [0.0]
    moment = lambda: seconds[0]  # noqa: E731
    rig = RecordingRig(
        store=store,
        dead_letters=DeadLetters(store),
        describe=lambda _: row(moment())._replace(producer_id="p"),
    )
    evaluator = AlertEvaluator(store, owner="p", clock=moment, monotonic=moment)
    candidates = Candidates(store, by_spark=False, monotonic=moment)
    limits = LimitWatch(DeadLetterLimits(), timer=moment)
    os.utime(store.path.with_name("store.duckdb.gate"), (0, 0))
    parts = {name: OperationCounts() for name in ("recorder", "alerts", "replay", "limits")}

    def second():
        seconds[0] += 1
        with counted(parts["recorder"]):
            rig.recorder._tick(write=False)
        with counted(parts["limits"]):
            limits.check(store, moment())
        with counted(parts["replay"]):
            candidates.of("cluster")
        if seconds[0] % 5 == 0:
            with counted(parts["alerts"]):
                assert evaluator.tick() == ()

    with read_activity.unattended():
        for _ in range(16):  # the first writes are news
            second()
        for name in parts:
            parts[name] = OperationCounts()
        for _ in range(60):
            second()

    # It took 8 writes, 12 reads and 10,000 calls when this test was written.
    assert parts["recorder"].writes <= 8 and parts["recorder"].reads == 0
    assert parts["alerts"].writes <= 2 and parts["alerts"].reads <= 6
    assert parts["replay"].writes == 0 and parts["replay"].reads <= 5
    assert parts["limits"].writes == 0 and parts["limits"].reads <= 5
    assert sum(counts.calls for counts in parts.values()) <= 20_000
