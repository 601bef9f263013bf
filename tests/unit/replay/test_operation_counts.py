"""The cost of a replay in function calls and store borrows, which `make check` can hold on any machine."""

from __future__ import annotations

from producer_core.delivery.record_batch import RecordBatch
from producer_core.replay.claims import ReplayClaims
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
