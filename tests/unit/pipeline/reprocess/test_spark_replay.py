"""A replay in Spark: seals, outcomes, lost batches, pauses and messages."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import PipelineError
from producer_core.events import Attempt
from producer_core.pipeline.reprocess import Slicing, batches, spark_replay
from producer_core.pipeline.reprocess.slice_task import _row_of
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.operation import PIPELINE
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome
from producer_core.replay.strategy import Interrupted
from tests.factories import replay_runner
from tests.fixtures.replays import CLUSTER, ScriptedSender, add_dead_letters, replay_record
from tests.fixtures.reprocess import all_acknowledged, of_session, outcome_row, spark_replay_of


def encoded(death):
    """Return a failure as a task encodes it."""
    return _row_of(0, RecordOutcome("any", "failed", death=death))["death"]


def endings(outcomes):
    return Counter(one.ending for one in outcomes)


def test_every_slice_is_sealed_before_anything_is_sent(log):
    strategy = spark_replay_of(log, count=5)
    strategy.begin(["orders"])

    assert log.sealed[0] == ((0, 1, 2, 3, 4), (1 << 32) + 1)


def test_a_batch_with_all_outcomes_needs_no_lookup(log):
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.answers.append(all_acknowledged)
    strategy.send([replay_record(number) for number in range(10)])

    assert endings(strategy.gather(0)) == {"acknowledged": 10}
    assert len(log.sealed) == 2
    assert strategy.floors == {"orders": {0: 99}}
    assert strategy.in_flight == 0


def test_records_without_an_outcome_are_sealed_and_looked_up(log):
    dead_letters = [replay_record(number) for number in range(6)]
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.answers += [lambda rows: all_acknowledged(rows[:3]), all_acknowledged]
    log.on_topic = {dead_letters[3].message_id: 3}
    strategy.send(dead_letters)

    first = strategy.gather(0)
    second = strategy.gather(0)

    assert endings(first) == {"acknowledged": 4}
    assert log.sealed[-1] == ((Slicing(2).of(dead_letters[0]),), log.batches[0][1] + 1)
    assert log.batches[1] == ([dead_letters[4].message_id, dead_letters[5].message_id], log.sealed[-1][1] + 1)
    assert endings(second) == {"acknowledged": 2}


def test_a_failure_counts_only_when_no_other_attempt_succeeded(log):
    dead_letters = [replay_record(number) for number in range(3)]
    death = FailedReplay("permanent", "X", "no", "f", "rejected", "r", 9.0, (Attempt(9.0, "X", "no"),))
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.answers.append(
        lambda rows: [outcome_row(row, "failed", text="no", death=encoded(death)) for row in rows]
    )
    log.on_topic = {dead_letters[1].message_id: 7}
    strategy.send(dead_letters)

    outcomes = {one.message_id: one for one in strategy.gather(0)}

    assert outcomes[dead_letters[1].message_id].ending == "acknowledged"
    assert outcomes[dead_letters[0].message_id].ending == "failed"
    assert outcomes[dead_letters[0].message_id].death == death


def lost(_):
    raise batches.BatchLost(PipelineError("workers were lost"))


def test_a_lost_batch_is_sent_again_and_the_third_in_a_row_ends_the_job_with_its_records_claimed(log):
    dead_letters = [replay_record(number) for number in range(4)]
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.on_topic = {dead_letters[0].message_id: 3}
    log.answers += [lost, all_acknowledged]
    strategy.send(dead_letters)
    assert endings(strategy.gather(0)) == {"acknowledged": 1}
    assert endings(strategy.gather(0)) == {"acknowledged": 3}
    assert strategy._lost == 0

    log.answers += [lost, lost, lost]
    strategy.send([replay_record(number) for number in range(10, 14)])
    strategy.gather(0)
    before = dict(strategy.floors)
    strategy.gather(0)
    with pytest.raises(PipelineError, match="workers were lost"):
        strategy.gather(0)

    assert strategy.in_flight == 4
    assert strategy.floors == before


NEVER = None


def test_a_pause_during_a_batch_settles_it_and_releases_the_rest(log):
    dead_letters = [replay_record(number) for number in range(4)]
    strategy = spark_replay_of(log, interrupt=lambda: True)
    strategy.begin(["orders"])
    log.answers.append(NEVER)
    log.on_topic = {dead_letters[0].message_id: 3}
    strategy.send(dead_letters)

    assert endings(strategy.gather(0)) == {"acknowledged": 1, "pending": 3}
    assert (log.cancelled, len(log.batches), strategy.in_flight) == (1, 1, 0)


def test_a_pause_is_remembered_until_the_batch_ends(log, monkeypatch):
    monkeypatch.setattr(spark_replay, "_GRACE", 60.0)
    answers = iter([True, False, False])
    strategy = spark_replay_of(log, interrupt=lambda: next(answers), wave=2)
    strategy.begin(["orders"])
    log.answers.append(NEVER)
    strategy.send([replay_record(number) for number in range(4)])
    assert [strategy.gather(0), strategy.gather(0)] == [[], []]

    monkeypatch.setattr(spark_replay, "_GRACE", 0.0)
    strategy._leave_at = 0.0

    assert endings(strategy.gather(0)) == {"pending": 4}
    assert (log.cancelled, len(log.batches)) == (1, 1)


def test_a_driver_that_lost_the_lease_during_a_batch_leaves_it_unsettled(log):
    strategy = spark_replay_of(log, holds=lambda: False)
    strategy.begin(["orders"])
    before = {topic: dict(parts) for topic, parts in strategy.floors.items()}
    log.answers.append(NEVER)
    strategy.send([replay_record(1)])
    with pytest.raises(Interrupted):
        strategy.gather(0)

    assert strategy.in_flight == 1
    assert strategy.floors == before
    assert strategy.give_back() == []


def test_the_next_batch_starts_before_the_last_one_is_stored(log):
    strategy = spark_replay_of(log, wave=10)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged, all_acknowledged, all_acknowledged]
    strategy.send([replay_record(number) for number in range(25)])

    found = [len(strategy.gather(0)) for _ in range(3)]

    assert found == [10, 10, 5]
    assert [len(ids) for ids, _ in log.batches] == [10, 10, 5]
    assert sorted(number for _, number in log.batches) == [number for _, number in log.batches]


def test_the_driver_sends_small_batches_itself(log, monkeypatch):
    driver_batches = []

    class OnDriver(spark_replay.SparkBatch):
        sender = "The driver"

        def __init__(self, table, task, clients, holds):
            super().__init__(None, table, task)
            driver_batches.append(task.dead_letters)

    monkeypatch.setattr(spark_replay, "DriverBatch", OnDriver)
    monkeypatch.setattr(spark_replay, "DRIVER_LIMIT", 20)
    strategy = spark_replay_of(log, wave=30)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged] * 4
    for count in (10, 20, 30):
        strategy.send([replay_record(number) for number in range(count)])
        strategy.gather(0)
    assert driver_batches == [10]

    strategy = spark_replay_of(log, wave=15)
    strategy.begin(["orders"])
    strategy.send([replay_record(number) for number in range(15)])
    strategy.gather(0)
    assert (driver_batches, len(log.batches)) == ([10], 4)


def test_after_a_failure_no_batch_starts_before_the_stop_rule_has_decided(log):
    strategy = spark_replay_of(log, wave=10)
    strategy.begin(["orders"])
    log.answers += [lambda rows: [outcome_row(row, "failed", text="no") for row in rows], all_acknowledged]
    strategy.send([replay_record(number) for number in range(20)])

    assert endings(strategy.gather(0)) == {"failed": 10}
    assert len(log.batches) == 1
    assert endings(strategy.give_back()) == {"pending": 10}


def test_a_batch_has_the_rate_of_the_replay(log):
    strategy = spark_replay_of(log, rate=100.0, count=5)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged, all_acknowledged]
    strategy.send([replay_record(1)])
    strategy.gather(0)
    strategy.send(
        [replay_record(number, message_id=of_session(number, number).message_id) for number in range(40)]
    )
    strategy.gather(0)

    assert log.rates == [100.0, 100.0]


def test_a_batch_that_cannot_start_does_not_lose_the_outcomes_of_the_last_one(log):
    strategy = spark_replay_of(log, wave=5)
    strategy.begin(["orders"])
    log.answers.append(all_acknowledged)
    strategy.send([replay_record(number) for number in range(10)])

    assert endings(strategy.gather(0)) == {"acknowledged": 5}
    assert strategy.in_flight == 5
    with pytest.raises(IndexError):  # there is no answer for a second batch
        strategy.gather(0)
    assert endings(strategy.give_back()) == {"pending": 5}


@pytest.fixture
def stopped_clock(monkeypatch):
    """A batch lasts exactly as long as `log.durations` says, on a machine of any speed."""
    monkeypatch.setattr(spark_replay, "time", SimpleNamespace(monotonic=lambda: 1000.0))


def test_the_message_of_a_slow_batch_is_replaced(log, stopped_clock):
    messages = []
    strategy = spark_replay_of(log, wave=2, report=messages.append)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged] * 3
    log.durations = [63.0, 1.0, 1.0]
    strategy.send([replay_record(number) for number in range(6)])
    strategy.gather(0)
    strategy.gather(0)
    strategy._slow_until = 0.0
    strategy.gather(0)

    assert messages == ["Spark sent 2 records in 63.0 s", "Spark sent 2 records in 1.0 s"]


@pytest.mark.slow
def test_the_message_of_a_running_batch_is_replaced_when_it_is_settled(
    store, log, stopped_clock, monkeypatch
):
    """Even when the second message follows at once, the store gets one message in two seconds."""
    add_dead_letters(store, 4)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    messages = []
    monkeypatch.setattr(ReplayClaims, "say", lambda self, text: messages.append(text))
    log.answers.append(all_acknowledged)
    log.durations.append(63.0)

    class Slow(spark_replay.SparkBatch):
        def start(self):
            waits = iter([False])  # then it is done
            self.done = SimpleNamespace(wait=lambda seconds: next(waits, True))

    monkeypatch.setattr(spark_replay, "SparkBatch", Slow)
    runner = replay_runner(
        store,
        ScriptedSender(),
        make_spark_strategy=lambda execution, claims, operation: spark_replay_of(log, report=execution.say),
    )

    assert runner.run_one(planned.operation_id, 60).acknowledged == 4
    assert messages == ["Spark has been sending 4 records for 63 s", "Spark sent 4 records in 63.0 s"]


def test_a_batch_of_a_slow_replay_takes_five_seconds_of_its_rate(log):
    strategy = spark_replay_of(log, rate=2.0)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged] * 3
    strategy.send([replay_record(number) for number in range(25)])

    assert [len(strategy.gather(0)) for _ in range(3)] == [10, 10, 5]


def test_orphans_of_a_dead_driver_are_looked_up_above_the_floors(log):
    dead_letters = [replay_record(1), replay_record(2)]
    log.on_topic = {dead_letters[0].message_id: 4}
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])

    assert endings(strategy.after([OrphanedRecord(one, 0.0) for one in dead_letters])) == {
        "landed": 1,
        "pending": 1,
    }
