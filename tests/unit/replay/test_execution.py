"""The execution of a replay: pace, batch size, pause, cancel, and a locked store."""

from __future__ import annotations

import re
import threading
import time

import pytest

from producer_core import replay
from producer_core.errors import StoreLocked, StoreTooNew
from producer_core.replay.batch_sizer import BatchSizer
from producer_core.replay.claims import LeaseState, ReplayClaims
from producer_core.replay.pace import ReplayPace
from tests.fixtures.replays import (
    BY,
    ScriptedSender,
    add_dead_letters,
    counts,
    planned,
    probe_with,
    runner,
    states,
)
from tests.support import eventually


@pytest.mark.slow
def test_the_number_of_records_in_flight_is_bounded(store, clock):
    add_dead_letters(store, 12)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=5)
    running.start()

    eventually(lambda: len(sender.sent) == 5)
    assert list(states(store).values()).count("replaying") == 5

    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).acknowledged == 12)
    running.stop()


def test_a_rate_limits_the_records_per_second():
    pace = ReplayPace(10.0, now=0.0)

    first = pace.room(0.0, 500)
    pace.spend(first)
    soon = pace.room(0.25, 500)
    pace.spend(soon)

    assert (first, soon) == (1, 2)
    assert pace.room(100.0, 500) == 10
    assert ReplayPace(None, 0.0).room(0.0, 500) == 500


@pytest.mark.slow
def test_pause_settles_records_in_flight_and_resume_continues(store, clock):
    ids = add_dead_letters(store, 10)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=4)
    running.start()
    eventually(lambda: len(sender.sent) == 4)

    replay.pause(store, operation.operation_id, **BY)
    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).owner is None)
    paused = replay.get(store, operation.operation_id)
    assert (paused.state, paused.acknowledged, len(sender.sent)) == ("paused", 4, 4)
    assert list(states(store).values()).count("dead") == 6

    replay.resume(store, operation.operation_id, **BY)
    eventually(lambda: replay.get(store, operation.operation_id).state == "done")
    running.stop()
    assert sorted(sender.sent_ids) == sorted(ids)


@pytest.mark.slow
def test_cancel_leaves_the_rest_dead_and_settles_records_in_flight(store, clock):
    add_dead_letters(store, 10)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=4)
    running.start()
    eventually(lambda: len(sender.sent) == 4)

    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()

    done = replay.get(store, operation.operation_id)
    assert done.message == "Cancelled: replayed 4 of 10; 6 skipped: cancelled before being sent"
    assert sorted(states(store).values()) == ["dead"] * 6 + ["replayed"] * 4


@pytest.mark.slow
def test_stop_releases_the_operation_at_once(store, clock):
    add_dead_letters(store, 4)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=2)
    running.start()
    eventually(lambda: len(sender.sent) == 2)

    stopping = threading.Thread(target=running.stop)
    stopping.start()
    sender.release()
    stopping.join()

    left = replay.get(store, operation.operation_id)
    assert (left.state, left.owner, left.acknowledged) == ("running", None, 2)
    next_one = ScriptedSender("sender-2")
    assert runner(store, next_one, clock).run_one(operation.operation_id, 60).message == "Replayed 4 of 4"
    assert len(next_one.sent) == 2


def test_a_batch_grows_while_store_transactions_are_short():
    portion = BatchSizer(40_000)
    sizes = [portion.now]
    for seconds, claimed in (
        (0.1, 500),
        (0.1, 2000),
        (0.4, 4000),
        (0.4, 8000),
        (0.4, 16_000),
        (0.4, 32_000),
        (0.7, 40_000),
        (1.5, 40_000),
        (3.0, 20_000),
        (3.0, 10_000),
        (3.0, 8000),
    ):
        portion.took(seconds, claimed)
        sizes.append(portion.now)

    assert sizes == [2000, 2000, 4000, 8000, 16_000, 32_000, 40_000, 40_000, 20_000, 10_000, 8000, 8000]
    small = BatchSizer(500)
    small.took(9.0, 500)
    assert small.now == 500


def test_a_batch_grows_again_after_slow_store_transactions():
    size = BatchSizer(20_000)
    for _ in range(20):
        size.took(9.0, size.now)
    assert size.now == BatchSizer.LEAST

    for _ in range(4):
        size.took(0.1, size.now)
    assert size.now == 20_000


def test_slow_updates_do_not_keep_a_batch_below_its_least_size():
    size = BatchSizer(40_000)
    for _ in range(9):
        size.took(3.0, size.now)

    assert size.now == BatchSizer.LEAST


def test_a_client_that_is_shared_with_the_application_keeps_the_first_size():
    size = BatchSizer(20_000)
    size.stop_growing()
    for seconds in (0.1, 9.0):
        size.took(seconds, size.now)
        assert size.now == BatchSizer.FIRST


@pytest.mark.slow
def test_the_wait_for_a_store_that_is_in_use_does_not_count_as_a_slow_update(store, clock):
    add_dead_letters(store, 4)
    claims = ReplayClaims(store, planned(store, clock).operation_id, "me", lease=60, clock=clock)
    assert claims.take()
    in_use = threading.Event()

    def use_the_store():
        with store.borrow(write=True):
            in_use.set()
            threading.Event().wait(1.5)

    other = threading.Thread(target=use_the_store)
    other.start()
    in_use.wait(5)
    began = time.monotonic()
    update = claims.settle_and_claim([], want=4, busy=False)
    waited = time.monotonic() - began
    other.join()

    assert waited > 1.0
    assert 0 < update.seconds < waited - 1.0


@pytest.mark.slow
def test_a_runner_that_lost_its_lease_sends_nothing_more(store, clock):
    add_dead_letters(store, 5)
    operation = planned(store, clock)

    class Robbed(ScriptedSender):
        def resend(self, one, settled):
            super().resend(one, settled)
            now = replay.get(store, operation.operation_id)
            thief = ReplayClaims(store, operation.operation_id, "thief", lease=15, clock=clock)
            assert thief.take(LeaseState(operation.operation_id, now.owner, now.lease_until))
            eventually(lambda: "replay-lease" not in {thread.name for thread in threading.enumerate()})

    sender = Robbed()
    runner(store, sender, clock, lease=3).poll()

    assert len(sender.sent) == 1
    assert replay.get(store, operation.operation_id).owner == "thief"
    assert counts(replay.get(store, operation.operation_id)) == (0, 0, 0, 0)


@pytest.mark.slow
def test_a_replay_that_waits_for_old_attempts_reports_it_and_then_clears_the_message(store, clock):
    add_dead_letters(store, 3, verdict="possibly_persisted", failed_at=clock())
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock, inconclusive="send")
    running = runner(store, sender, clock, quiet=20.0, probe=probe_with({}))
    running.start()

    def said():
        return replay.get(store, operation.operation_id).message or ""

    eventually(lambda: re.match(r"Waiting up to \d+ s: an earlier request with the next records may", said()))
    assert sender.sent == []
    eventually(lambda: len(sender.sent) == 3)
    eventually(lambda: said() == "")
    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()
    assert said() == "Replayed 3 of 3"


@pytest.mark.slow
def test_outcomes_wait_in_memory_while_the_store_is_locked(store, clock, tmp_path, monkeypatch):

    add_dead_letters(store, 6)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=3)
    running.start()
    eventually(lambda: len(sender.sent) == 3)

    away, borrow, refused = threading.Event(), store.borrow, threading.Event()

    def refusing(**choices):
        if away.is_set():
            refused.set()
            raise StoreLocked
        return borrow(**choices)

    monkeypatch.setattr(store, "borrow", refusing)
    away.set()
    sender.release()
    assert refused.wait(5)
    away.clear()

    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()
    assert replay.get(store, operation.operation_id).message == "Replayed 6 of 6"
    assert len(sender.sent) == 6


def test_a_pace_may_accumulate_up_to_its_burst():
    pace = ReplayPace(100.0, 0.0, burst=5.0)
    assert pace.room(60.0, 10_000) == 500
    assert ReplayPace(100.0, 0.0).room(0.0, 10_000) == 1


def test_a_replay_ends_with_the_refusal_when_a_later_version_adds_a_feature(store, clock):
    """Regression: it retried forever, and none of its acknowledgements was settled."""
    ids = add_dead_letters(store, 4)
    operation = planned(store, clock)
    sender = ScriptedSender(hold=True)
    running = runner(store, sender, clock, in_flight=2)
    refusals = []

    def run():
        with pytest.raises(StoreTooNew, match="time_travel") as refusal:
            running.run_one(operation.operation_id, 60)
        refusals.append(refusal.value)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: len(sender.sent) == 2)
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO required_features VALUES ('time_travel', 0)")
    sender.release()
    thread.join(20)

    assert not thread.is_alive() and len(refusals) == 1
    assert [states(store)[one] for one in ids] == ["replayed"] * 2 + ["dead"] * 2
    left = replay.get(store, operation.operation_id)
    assert (left.state, left.owner, left.acknowledged) == ("running", None, 2)


def test_a_wave_grows_to_the_size_whose_update_is_still_short():
    def after(*updates):
        size = BatchSizer(120_000)
        size.use_waves()
        for seconds in updates:
            size.took(seconds, size.now)
        return size.now

    assert [after(0.1), after(0.4), after(0.9), after(1.9), after(3.0)] == [
        120_000,
        40_000,
        16_000,
        16_000,
        8_000,
    ]
    assert [after(0.1, 0.9), after(0.1, 5.0)] == [120_000, 60_000]
