"""The cost of a replay in function calls and store borrows, which `make check` can hold on any machine."""

from __future__ import annotations

import threading
import time
from math import inf

from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import settle_batch, wave_records
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.doubtful_records import DoubtfulRecord
from producer_core.replay.execution import ExecutionSettings, ReplayExecution
from producer_core.replay.guard import CanaryRule, ReplayGuard
from producer_core.replay.outcome import AcknowledgedBatch
from producer_core.store import Store
from tests.fixtures.operation_counts import counts_of
from tests.fixtures.replays import FakeClock, ScriptedSender, add_dead_letters, planned, probe_with, runner


def replay_of(path, count):
    """Return what a replay of this many dead letters does in the runner's thread."""
    store, clock, sender = Store.open(path), FakeClock(), ScriptedSender()
    add_dead_letters(store, count)
    operation = planned(store, clock)
    work = runner(store, sender, clock, probe=probe_with({}))
    counts = counts_of(lambda: work.run_one(operation.operation_id, 60))
    assert len(sender.sent) == count
    store.close()
    return counts


def test_the_borrows_of_a_replay_grow_with_its_batches_and_not_with_its_records(tmp_path):
    small, large = (replay_of(tmp_path / f"{count}.duckdb", count) for count in (500, 1_500))

    assert large.calls - small.calls <= 22 * 1_000  # it took 15 calls for each when this test was written
    # 500 records are claimed at once.
    assert large.writes - small.writes <= 6
    assert large.reads - small.reads <= 4


def waves_of(path, count):
    """Return what the claim and the settlement of this many dead letters do, in four waves."""
    store, clock = Store.open(path), FakeClock()
    add_dead_letters(store, count)
    claims = ReplayClaims(store, planned(store, clock).operation_id, "me", lease=60, clock=clock)
    assert claims.take()

    def replay():
        update, settled = claims.settle_and_claim([], want=10, busy=False, wave=count // 4), 0
        while not update.over:
            batch = update.dead_letters
            assert isinstance(batch, RecordBatch)
            sent = AcknowledgedBatch(batch, [0] * len(batch), range(settled, settled + len(batch)))
            settled += len(batch)
            update = claims.settle_and_claim([], acknowledged=[sent], want=10, busy=False, wave=count // 4)
        assert settled == count

    counts = counts_of(replay)
    store.close()
    return counts


def test_a_wave_is_claimed_and_settled_in_one_borrow_without_a_call_for_each_record(tmp_path):
    small, large = (waves_of(tmp_path / f"{count}.duckdb", count) for count in (400, 2_400))

    assert small.writes == large.writes == 5 and small.reads == large.reads == 0
    assert large.calls <= small.calls + 200  # no call for each record


def test_waves_stored_in_order_are_read_and_settled_without_a_join_and_without_python_values(
    tmp_path, monkeypatch
):
    joins, columns = [], []
    by_id, settle, column = wave_records._by_id, settle_batch.run, RecordBatch._column
    monkeypatch.setattr(wave_records, "_by_id", lambda *rows: joins.append("claim") or by_id(*rows))
    monkeypatch.setattr(
        settle_batch, "run", lambda *given, **named: joins.append(given[1]) or settle(*given, **named)
    )
    monkeypatch.setattr(RecordBatch, "_column", lambda self, name: columns.append(name) or column(self, name))

    waves_of(tmp_path / "store.duckdb", 2_400)  # the trigger would move the rows of fewer

    assert joins.count("claim") == 1  # the place of the first wave is not known
    assert set(joins) <= {
        "claim", "replay_wave_records", "replay_settle_batch_dead_letters", "replay_settle_wave_records",
    }  # fmt: skip
    assert columns == []


class WaveStrategy:
    """Acknowledges up to `most` of the records at a time, as one transaction does."""

    guarantee, by_wave, floors = "exactly_once", True, None

    def __init__(self, most):
        self.most, self.queue, self.transactions = most, [], 0

    @property
    def in_flight(self):
        return sum(map(len, self.queue))

    @property
    def bytes(self):
        return sum(batch.size for batch in self.queue)

    def begin(self, topics):
        assert topics == ["orders"]

    def after(self, orphans):
        return []

    def send(self, records):
        self.queue.append(records)
        return []

    def gather(self, seconds):
        if not self.queue:
            return []
        whole, self.queue = RecordBatch.joined(self.queue), []
        if len(whole) > self.most:
            self.queue = [whole[self.most :]]
        self.transactions += 1
        sent = whole[: self.most]
        return AcknowledgedBatch(sent, [0] * len(sent), range(len(sent)))

    def give_back(self):
        assert not self.queue
        return []

    def close(self):
        pass


def test_a_wave_that_needs_several_transactions_is_settled_once(tmp_path):
    store, clock, strategy = Store.open(tmp_path / "store.duckdb"), FakeClock(), WaveStrategy(100)
    add_dead_letters(store, 3_000)
    claims = ReplayClaims(store, planned(store, clock).operation_id, "me", lease=60, clock=clock)
    assert claims.take()
    execution = ReplayExecution(
        claims, lambda _: strategy, DoubtfulRecord(None), ReplayGuard(CanaryRule(canary=0)),
        preflight=lambda _: None, stopping=threading.Event(),
        settings=ExecutionSettings(lease=60, most=1_000, quiet=0, interval=0.01),
    )  # fmt: skip

    counts = counts_of(lambda: execution.run(until=inf, started=time.monotonic()))

    assert claims.get().acknowledged == 3_000 and strategy.transactions == 30
    # The beginning, four updates for three waves, and a lease that is released; it took 31 when each transaction was settled.
    assert counts.writes <= 6
    store.close()


def test_a_small_replay_borrows_the_store_a_bounded_number_of_times(tmp_path):
    counts = replay_of(tmp_path / "store.duckdb", 5)

    assert counts.writes <= 6 and counts.reads <= 11
