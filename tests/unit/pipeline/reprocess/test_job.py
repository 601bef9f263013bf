"""Reprocess without Spark and Kafka: slices, the outcomes of a batch, sources, and the owner of an operation."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from types import SimpleNamespace

import pytest

from producer_core import replay
from producer_core.cli.lazy_group import Failed
from producer_core.cli.pipeline.reprocess import ReprocessRun, _refuse_changes
from producer_core.delivery.exactly_once.read_back import ReadBackResult
from producer_core.dlq import DeadLetterFilter, DeadLetters, files
from producer_core.errors import BrokerError, ConfigError, OtherCluster, PipelineError, ReplayError
from producer_core.events import Attempt
from producer_core.kafka.acls import Permission
from producer_core.messages import id_bytes, id_text
from producer_core.pipeline.job_status import track_job
from producer_core.pipeline.reprocess import (
    ReprocessOptions,
    Slicing,
    batches,
    from_sources,
    job,
    offset_floors,
    progress_topic,
    spark_replay,
)
from producer_core.pipeline.reprocess.packing import unpacked
from producer_core.pipeline.reprocess.slice_task import _row_of
from producer_core.pipeline.reprocess.slicing import SliceEpoch, begin_epoch
from producer_core.pipeline.reprocess.spark_replay import BatchProgress, SparkReplay
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.execution import ReplayPace
from producer_core.replay.guard import CanaryRule
from producer_core.replay.operation import PIPELINE
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome
from producer_core.replay.strategy import Interrupted
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import CLUSTER, ScriptedSender, alive, buried, dead_letter, in_hand

HOLDS_ALL = {"orders": {0: 9}}


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


def of_session(number, session):
    return in_hand(number, message_id=id_text(id_bytes(uuid.UUID(int=session), number)))


# slices


def test_a_session_is_in_one_slice():
    slicing = Slicing(8)
    for session in range(20):
        assert len({slicing.of(of_session(number, session)) for number in range(50)}) == 1


def test_slices_by_key_spread_a_session_and_keep_a_key_together():
    slicing = Slicing(8, "key")
    found = {key: {slicing.of(in_hand(n, key=b"k%d" % key)) for n in range(10)} for key in range(100)}

    assert all(len(one) == 1 for one in found.values())
    assert {min(one) for one in found.values()} == set(range(8))
    assert slicing.of(in_hand(1, key=None)) == Slicing(8).of(in_hand(2))


@pytest.mark.parametrize(("count", "by"), [(0, "session"), (257, "session"), (4, "partition")])
def test_an_invalid_slicing_is_rejected(count, by):
    with pytest.raises(ConfigError):
        Slicing(count, by)


def started(store, *, count=None, by=None, topic=None, size=16, cores=4, holds=lambda: True):
    return begin_epoch(
        store, "op", count=count, by=by, otherwise=Slicing(2 * cores), topic=topic, partitions=lambda _: size,
        holds=holds,
    )  # fmt: skip


def test_an_operation_keeps_its_slicing_and_its_numbers_rise(store):
    first = started(store, count=4, by="key", topic="seals")
    again, grown = started(store), started(store, size=32)

    assert (first.slicing, again.slicing) == (Slicing(4, "key"), Slicing(4, "key"))
    assert (first.topic, again.topic, grown.topic, grown.partitions) == ("seals", "seals", "seals", 16)
    assert again.first > first.first + 1_000_000
    with pytest.raises(ReplayError, match="started with 4 slices by key"):
        started(store, count=5)
    with pytest.raises(ReplayError, match="started with the progress topic seals"):
        started(store, topic="others")


def test_an_omitted_slice_count_is_not_compared_later(store):
    """The number of slices came from one machine's cores; the same command runs on another machine."""
    first = started(store, by="key", cores=2)

    assert started(store, by="key", cores=16).slicing == first.slicing == Slicing(4, "key")


def test_a_driver_that_lost_its_lease_during_a_broker_request_decides_nothing(store):
    with pytest.raises(ReplayError, match="taken over"):
        started(store, count=4, holds=lambda: False)

    assert started(store, count=5).slicing == Slicing(5)


def test_large_slices_go_to_different_tasks():
    """Spark cuts the rows of a small table into even consecutive parts."""
    dead_letters = [of_session(number, session) for session in range(30) for number in range(1 + session)]
    rows = [
        (row["slice"], len(unpacked(row["dead_letters"])))
        for row in batches.slice_table(dead_letters, Slicing(6), 3).to_pylist()
    ]
    counts = Counter(Slicing(6).of(dead_letter) for dead_letter in dead_letters)

    assert dict(rows) == counts
    assert {slice_ for slice_, _ in rows[:: len(rows) // 3]} == {
        slice_ for slice_, _ in counts.most_common(3)
    }


def test_packing_keeps_the_order_and_every_byte_of_dead_letters():
    dead_letters = [
        in_hand(number, key=None if number % 2 else b"", value=None if number == 3 else b"\x00\xff")
        for number in range(6)
    ]
    table = batches.slice_table(dead_letters, Slicing(3))
    (content,) = table["dead_letters"].to_pylist()
    back = unpacked(content)

    for before, after in zip(dead_letters, back, strict=True):
        for name in (
            "message_id",
            "topic",
            "partition",
            "key",
            "value",
            "headers",
            "timestamp_ms",
            "accepted_at",
            "verdict",
        ):
            assert getattr(after, name) == getattr(before, name)
    assert [one.message_id for one in back] == [one.message_id for one in dead_letters]


# outcomes of a batch


class Log:
    """Simulates a topic: the records a batch wrote, and the seals."""

    def __init__(self):
        self.on_topic, self.sealed, self.answers, self.batches, self.cancelled = {}, [], [], [], 0
        self.rates, self.durations = [], []


@pytest.fixture
def log(monkeypatch):
    found = Log()

    class Lookup:
        floors = HOLDS_ALL

        def __init__(self, settings, operation_id, **_):
            pass

        def begin(self, topics):
            if topics:
                found.sealed.append("begun")

        def after(self, orphans):
            return [
                RecordOutcome(
                    one.dead_letter.message_id,
                    "landed",
                    "there",
                    0,
                    found.on_topic[one.dead_letter.message_id],
                )
                if one.dead_letter.message_id in found.on_topic
                else RecordOutcome(one.dead_letter.message_id, "pending")
                for one in orphans
            ]

        def close(self):
            pass

    def seal(settings, progress, operation_id, slices, number, **_):
        found.sealed.append((tuple(slices), number))
        return dict.fromkeys(slices, 0)

    class Batch:
        """A batch that ends at once, except one without an answer."""

        sender = "Spark"

        def __init__(self, session, table, task):
            self._answer = found.answers.pop(0)
            self._rows = [
                {"slice": row["slice"], "message_id": one.message_id, "ord": ord_}
                for row in table.to_pylist()
                for ord_, one in enumerate(unpacked(row["dead_letters"]))
            ]
            found.batches.append(([row["message_id"] for row in self._rows], task.number))
            found.rates.append(task.rate)
            self.began = spark_replay.time.monotonic() - (found.durations.pop(0) if found.durations else 0.0)
            self.done = threading.Event()

        def start(self):
            if self._answer is not None:
                self.done.set()

        def cancel(self):
            found.cancelled += 1

        def outcomes(self):
            return self._answer(self._rows)

    monkeypatch.setattr(spark_replay, "TransactionalReplay", Lookup)
    monkeypatch.setattr(spark_replay, "seal", seal)
    monkeypatch.setattr(spark_replay, "SparkBatch", Batch)
    monkeypatch.setattr(spark_replay, "_GRACE", 0.0)
    monkeypatch.setattr(spark_replay, "DRIVER_LIMIT", 0)
    monkeypatch.setattr(offset_floors, "REFRESH_INTERVAL", 0.0)
    monkeypatch.setattr(
        spark_replay, "ReadBack", lambda *_: lambda starts, _: ReadBackResult(ends=dict.fromkeys(starts, 100))
    )
    return found


class Session:
    class sparkContext:
        applicationId = "app-1"
        defaultParallelism = 2


def spark_replay_of(
    log,
    *,
    rate=None,
    interrupt=lambda: False,
    holds=lambda: True,
    count=2,
    wave=100,
    report=lambda text: None,
):
    epoch = SliceEpoch(Slicing(count), 1 << 32, "progress", 16)
    progress = BatchProgress("op", {}, epoch, wave, 2, CanaryRule(), rate=lambda: rate)
    return SparkReplay(
        lambda: Session,
        progress,
        floors={},
        interrupt=interrupt,
        holds=holds,
        ending=lambda: False,
        report=report,
        clock=time.time,
    )


def outcome_row(row, ending="acknowledged", **more):
    return {
        "slice": row["slice"], "message_id": row["message_id"], "ending": ending, "text": None, "partition": 0,
        "offset": row["ord"], "verdict": None, "death": None, **more,
    }  # fmt: skip


def encoded(death):
    """Return a failure as a task encodes it."""
    return _row_of(0, RecordOutcome("any", "failed", death=death))["death"]


def all_acknowledged(rows):
    return [outcome_row(row) for row in rows]


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
    strategy.send([in_hand(number) for number in range(10)])

    assert endings(strategy.gather(0)) == {"acknowledged": 10}
    assert len(log.sealed) == 2
    assert strategy.floors == {"orders": {0: 99}}
    assert strategy.in_flight == 0


def test_records_without_an_outcome_are_sealed_and_looked_up(log):
    dead_letters = [in_hand(number) for number in range(6)]
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
    dead_letters = [in_hand(number) for number in range(3)]
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
    dead_letters = [in_hand(number) for number in range(4)]
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.on_topic = {dead_letters[0].message_id: 3}
    log.answers += [lost, all_acknowledged]
    strategy.send(dead_letters)
    assert endings(strategy.gather(0)) == {"acknowledged": 1}
    assert endings(strategy.gather(0)) == {"acknowledged": 3}
    assert strategy._lost == 0

    log.answers += [lost, lost, lost]
    strategy.send([in_hand(number) for number in range(10, 14)])
    strategy.gather(0)
    before = dict(strategy.floors)
    strategy.gather(0)
    with pytest.raises(PipelineError, match="workers were lost"):
        strategy.gather(0)

    assert strategy.in_flight == 4
    assert strategy.floors == before


NEVER = None


def test_a_pause_during_a_batch_settles_it_and_gives_the_rest_back(log):
    dead_letters = [in_hand(number) for number in range(4)]
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
    strategy.send([in_hand(number) for number in range(4)])
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
    strategy.send([in_hand(1)])
    with pytest.raises(Interrupted):
        strategy.gather(0)

    assert strategy.in_flight == 1
    assert strategy.floors == before
    assert strategy.give_back() == []


def test_the_next_batch_starts_before_the_last_one_is_stored(log):
    strategy = spark_replay_of(log, wave=10)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged, all_acknowledged, all_acknowledged]
    strategy.send([in_hand(number) for number in range(25)])

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
        strategy.send([in_hand(number) for number in range(count)])
        strategy.gather(0)
    assert driver_batches == [10]

    strategy = spark_replay_of(log, wave=15)
    strategy.begin(["orders"])
    strategy.send([in_hand(number) for number in range(15)])
    strategy.gather(0)
    assert (driver_batches, len(log.batches)) == ([10], 4)


def test_floors_rise_with_sent_records_and_fall_for_a_re_created_topic(log, monkeypatch):
    monkeypatch.setattr(offset_floors, "REFRESH_INTERVAL", 60.0)
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.answers += [
        lambda rows: [outcome_row(row, offset=300 + row["ord"]) for row in rows],
        all_acknowledged,
    ]
    strategy.send([in_hand(number) for number in range(5)])
    strategy.gather(0)
    assert strategy.floors == {"orders": {0: 304}}

    strategy.send([in_hand(number) for number in range(5)])
    strategy.gather(0)
    assert strategy.floors == {"orders": {0: 4}}


def test_after_a_failure_no_batch_starts_before_the_stop_rule_has_decided(log):
    strategy = spark_replay_of(log, wave=10)
    strategy.begin(["orders"])
    log.answers += [lambda rows: [outcome_row(row, "failed", text="no") for row in rows], all_acknowledged]
    strategy.send([in_hand(number) for number in range(20)])

    assert endings(strategy.gather(0)) == {"failed": 10}
    assert len(log.batches) == 1
    assert endings(strategy.give_back()) == {"pending": 10}


def test_a_batch_has_the_rate_of_the_replay(log):
    strategy = spark_replay_of(log, rate=100.0, count=5)
    strategy.begin(["orders"])
    log.answers += [all_acknowledged, all_acknowledged]
    strategy.send([in_hand(1)])
    strategy.gather(0)
    strategy.send([in_hand(number, message_id=of_session(number, number).message_id) for number in range(40)])
    strategy.gather(0)

    assert log.rates == [100.0, 100.0]


def test_a_batch_that_cannot_start_does_not_lose_the_outcomes_of_the_last_one(log):
    strategy = spark_replay_of(log, wave=5)
    strategy.begin(["orders"])
    log.answers.append(all_acknowledged)
    strategy.send([in_hand(number) for number in range(10)])

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
    strategy.send([in_hand(number) for number in range(6)])
    strategy.gather(0)
    strategy.gather(0)
    strategy._slow_until = 0.0
    strategy.gather(0)

    assert messages == ["Spark sent 2 records in 63.0 s", "Spark sent 2 records in 1.0 s"]


def test_the_message_of_a_running_batch_is_replaced_when_it_is_settled(
    store, log, stopped_clock, monkeypatch
):
    """Also when the second message follows at once: the store gets one message in two seconds."""
    buried(store, 4)
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
    strategy.send([in_hand(number) for number in range(25)])

    assert [len(strategy.gather(0)) for _ in range(3)] == [10, 10, 5]


def test_a_pace_may_accumulate_up_to_its_burst():
    pace = ReplayPace(100.0, 0.0, burst=5.0)
    assert pace.room(60.0, 10_000) == 500
    assert ReplayPace(100.0, 0.0).room(0.0, 10_000) == 1


# batches in a thread


def test_a_batch_that_spark_lost_has_its_reason_in_one_sentence():
    groups = []

    class Context:
        def setJobGroup(self, group, text):
            groups.append(group)

    class Broken:
        sparkContext = Context()

        def createDataFrame(self, *_):
            raise RuntimeError("SparkContext was shut down")

    task = batches.SliceTask("op", {}, 7, {}, spark_replay.ProgressTopic("p", 1, {0: 0}), 10, CanaryRule(), 1)
    batch = batches.SparkBatch(Broken(), batches.slice_table([in_hand(1)], Slicing(1)), task)
    batch.start()
    assert batch.done.wait(10)

    assert groups == ["reprocess-op-7"]
    with pytest.raises(batches.BatchLost, match="Spark's Java process has ended"):
        batch.outcomes()


# sources


@pytest.mark.parametrize("name", ["dead-letters.parquet", "dead-letters.jsonl"])
def test_an_export_selects_its_dead_letters(store, tmp_path, name):
    ids = buried(store, 20)
    some = DeadLetterFilter(ids=tuple(ids[:7]))
    files.export(store, some, tmp_path / name, who="ann", origin="cli")

    where = from_sources(DeadLetterFilter(), file=tmp_path / name)

    assert DeadLetters(store).count(where) == 7
    planned = replay.plan(store, where, who="ann", origin=PIPELINE, can_run=CLUSTER)
    assert planned.total == 7
    assert planned.query == {"file": str((tmp_path / name).resolve())}


def test_a_dead_letter_topic_selects_the_dead_letters_fetched_from_it(store):
    buried(store, 3)
    DeadLetters(store).add(
        [dead_letter(number, source=f"orders-dlt[0]@{number} (Spring Kafka)") for number in range(5, 9)]
    )
    DeadLetters(store).add([dead_letter(20, source="orders-dlt-2[0]@1 (Spring Kafka)")])

    assert DeadLetters(store).count(from_sources(DeadLetterFilter(), dead_letter_topic="orders-dlt")) == 4
    assert from_sources(DeadLetterFilter(topic="a")) == DeadLetterFilter(topic="a")


# the owner of an operation


def test_an_ordinary_runner_does_not_run_sparks_operations(store):
    buried(store, 5)
    alive(store, time.time())
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    sender = ScriptedSender()
    ordinary = replay_runner(store, sender)

    assert ordinary.poll() is False
    with pytest.raises(ReplayError, match=r"pipeline reprocess --operation " + planned.operation_id):
        ordinary.run_one(planned.operation_id, 1)
    assert sender.sent == []


def test_sparks_runner_does_not_run_ordinary_operations(store):
    buried(store, 5)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin="cli", can_run=CLUSTER)
    runner = replay_runner(
        store, ScriptedSender(), make_spark_strategy=lambda *_: pytest.fail("it ran the operation")
    )

    assert runner.poll() is False
    with pytest.raises(ReplayError, match="not planned for Spark"):
        runner.run_one(planned.operation_id, 1)


def test_an_operation_of_another_cluster_stays_paused(store, monkeypatch):
    """The command has the operation's id and the addresses of another cluster."""
    one = paused_replay(store)
    monkeypatch.setattr(job, "reach", lambda client: SimpleNamespace(view=lambda: Elsewhere))

    with pytest.raises(OtherCluster):
        job.reprocess(Session, store, "broker:9092", operation_id=one)
    with pytest.raises(OtherCluster):
        command_for(store, Elsewhere.cluster_id).select(one)

    assert replay.get(store, one).state == "paused"


def test_reprocess_in_python_keeps_the_plan_of_a_started_operation(store, monkeypatch):
    one = paused_replay(store, rate=5.0)
    monkeypatch.setattr(job, "reach", lambda client: SimpleNamespace(view=lambda: Here))

    def continue_replay(**plan):
        return job.reprocess(Session, store, "broker:9092", operation_id=one, **plan)

    with pytest.raises(ConfigError, match=r"but selection, limit, canary was given\. .*only rate may change"):
        continue_replay(selection=DeadLetterFilter(topic="orders"), limit=3, rate=9.0, canary=0, reason=None)
    assert replay.get(store, one).state == "paused"

    replay.resume(store, one, who="ann", origin="dashboard")
    with pytest.raises(ConfigError, match="keeps its rate"):
        continue_replay(rate=9.0)


class Here:
    cluster_id = CLUSTER


class Elsewhere:
    cluster_id = "cluster-2"


def test_a_request_for_other_slices_fails_and_releases_the_lease(store, log, monkeypatch):
    buried(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    store.set_setting(
        f"reprocess.{planned.operation_id}",
        {"slices": 4, "by": "key", "lives": 1, "topic": "seals", "partitions": 3},
    )
    monkeypatch.setattr(job, "require_topic", lambda settings, topic: 3)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(slices=3), session=lambda: Session)
    monkeypatch.setattr(runner, "_obstacle", lambda *_: "")
    monkeypatch.setattr(runner, "_client", None)

    with pytest.raises(ReplayError, match="started with 4 slices by key"):
        runner.run_one(planned.operation_id, 10)

    assert replay.get(store, planned.operation_id).owner is None


class Killed:
    """A session whose Java process was killed."""

    class sparkContext:
        applicationId = "app-1"

        @property
        def defaultParallelism(self):
            raise ConnectionRefusedError(111, "Connection refused")

    sparkContext = sparkContext()


def test_a_driver_whose_spark_has_ended_reports_it_and_releases_the_lease(store, log, monkeypatch):
    """It used to retry for ever, with a traceback each time."""
    buried(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(), session=lambda: Killed)
    monkeypatch.setattr(runner, "_obstacle", lambda *_: "")
    monkeypatch.setattr(runner, "_client", None)

    with pytest.raises(PipelineError, match="Java process has ended"):
        runner.run_one(planned.operation_id, 10)

    assert replay.get(store, planned.operation_id).owner is None


def cancelled_under_a_dead_driver(store, ago):
    """Cancel a replay of three dead letters, two of which were claimed `ago` seconds ago."""
    now = time.time()
    ids = buried(store, 3)
    alive(store, now)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET owner = 'spark:gone', lease_until = ?", [now - ago])
        connection.execute("UPDATE operation_records SET state = 'claimed' WHERE ord < 3")
        connection.execute(
            "UPDATE dead_letters SET state = 'replaying', operation_id = ?, state_at = ? WHERE list_contains(?, message_id)",
            [planned.operation_id, now - ago, ids[:2]],
        )
    return replay.cancel(store, planned.operation_id, who="ann", origin="cli")


def test_a_cancelled_operation_whose_driver_died_ends_by_itself(store):
    ended = cancelled_under_a_dead_driver(store, ago=100)

    assert (ended.state, ended.ended, ended.left) == ("cancelled", True, 0)
    assert DeadLetters(store).count(DeadLetterFilter(verdict="inconclusive")) == 2


def test_the_next_driver_settles_a_cancelled_operation_and_sends_nothing(store, log, monkeypatch):
    cancelled = cancelled_under_a_dead_driver(store, ago=20)
    assert not cancelled.ended
    log.on_topic = {in_hand(0).message_id: 4}
    monkeypatch.setattr(job, "require_topic", lambda settings, topic: 16)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(slices=3), session=None)
    runner._lease = runner._watch._lease = 0.3
    monkeypatch.setattr(runner, "_obstacle", lambda *_: "")

    (ended,) = job.end_cancelled(store, runner, CLUSTER)

    assert (ended.landed, ended.skipped, ended.left, ended.ended) == (1, 2, 0, True)
    assert DeadLetters(store).count_by(DeadLetterFilter(state=None), "state") == {"dead": 2, "landed": 1}
    assert log.batches == []


# continuing an operation


def test_a_started_operation_keeps_its_plan():
    nothing = {"limit": None, "rate": 5.0, "canary": None, "allow_quarantined": False, "to_cluster": None}
    _refuse_changes(DeadLetterFilter(), nothing)

    with pytest.raises(Failed, match="a selection, --canary, --include-quarantined"):
        _refuse_changes(DeadLetterFilter(topic="orders"), {**nothing, "canary": 0, "allow_quarantined": True})


def paused_replay(store, rate=None):
    buried(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER, rate=rate)
    replay.pause(store, planned.operation_id, who="ann", origin="dashboard")
    return planned.operation_id


def command_for(store, cluster=CLUSTER, **choices):
    made = ReprocessRun(store, DeadLetterFilter(), None, origin=PIPELINE)
    made.prepare({}, cluster, ReprocessOptions(**choices))
    return made


def test_a_paused_replay_continues_at_another_rate_with_its_own_progress_topic(store, monkeypatch):
    one, topics = paused_replay(store), []
    store.set_setting(
        f"reprocess.{one}", {"slices": 4, "by": "key", "lives": 1, "topic": "seals", "partitions": 3}
    )
    monkeypatch.setattr(progress_topic, "require_topic", lambda settings, topic: topics.append(topic))
    command = command_for(store)

    assert command.go(command.select(one), rate=7.0).rate == 7.0
    assert topics == ["seals"]
    with pytest.raises(Failed, match="The rate of replay"):
        command.go(command.select(one), rate=8.0)
    with pytest.raises(ReplayError, match="progress topic seals"):
        command_for(store, progress_topic="others").go(command.select(one))


def test_a_replay_without_a_usable_progress_topic_stays_paused(store, monkeypatch):
    one = paused_replay(store)
    lacks = [Permission("topic", "producer-core-progress", "WRITE")]
    monkeypatch.setattr(progress_topic, "_partitions_of", lambda settings, topic: 16)
    monkeypatch.setattr(progress_topic.acls, "check", lambda config, topics, feature: lacks)
    command = command_for(store)

    with pytest.raises(BrokerError, match="WRITE on topic producer-core-progress is missing"):
        command.go(command.select(one))

    assert replay.get(store, one).state == "paused"


@pytest.mark.parametrize(
    ("state", "job_state", "success"),
    [("paused", "done", False), ("stopped", "failed", False), ("done", "done", True)],
)
def test_a_job_succeeds_only_when_its_replay_is_done(store, state, job_state, success):
    operation = SimpleNamespace(state=state, total=5, left=0)

    with track_job(store, name="reprocess op", kind="reprocess") as status:
        job.report_progress(status, operation)

    (row,) = store.rows("jobs")
    assert (row["state"], row["last_success_at"] is not None) == (job_state, success)


def test_after_one_failed_seal_the_others_are_not_tried(monkeypatch):
    tried = []

    def refused(*arguments, **_):
        tried.append(arguments[3])
        raise ReplayError("no")

    monkeypatch.setattr(progress_topic, "_seal", refused)
    with pytest.raises(ReplayError):
        progress_topic.seal({}, None, "op", range(200), 1, interrupt=lambda: False, report=lambda text: None)

    assert len(tried) < 200


def test_orphans_of_a_dead_driver_are_looked_up_above_the_floors(log):
    dead_letters = [in_hand(1), in_hand(2)]
    log.on_topic = {dead_letters[0].message_id: 4}
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])

    assert endings(strategy.after([OrphanedRecord(one, 0.0) for one in dead_letters])) == {
        "landed": 1,
        "pending": 1,
    }
