"""Reprocess without Spark and Kafka: slices, what is believed of a wave's answers, sources, and whose operation it is."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from types import SimpleNamespace

import pytest

from producer_core import replay
from producer_core.cli.lazy_group import Failed
from producer_core.cli.pipeline.reprocess import ReprocessRun, _only_goes_on
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
    brought,
    job,
    offset_floors,
    progress_topic,
    spark_replay,
)
from producer_core.pipeline.reprocess.packing import unpacked
from producer_core.pipeline.reprocess.slice_task import _told
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
from tests.unit.replaying import CLUSTER, ScriptedSender, alive, buried, dead_letter, in_hand

HOLDS_ALL = {"orders": {0: 9}}


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


def of_session(number, session):
    return in_hand(number, message_id=id_text(id_bytes(uuid.UUID(int=session), number)))


# slices


def test_a_session_is_in_one_slice_whatever_its_letters_say():
    slicing = Slicing(8)
    for session in range(20):
        assert len({slicing.of(of_session(number, session)) for number in range(50)}) == 1


def test_by_key_one_session_is_in_many_slices_and_a_key_in_one():
    slicing = Slicing(8, "key")
    found = {key: {slicing.of(in_hand(n, key=b"k%d" % key)) for n in range(10)} for key in range(100)}

    assert all(len(one) == 1 for one in found.values())
    assert {min(one) for one in found.values()} == set(range(8))
    assert slicing.of(in_hand(1, key=None)) == Slicing(8).of(in_hand(2))


@pytest.mark.parametrize(("count", "by"), [(0, "session"), (257, "session"), (4, "partition")])
def test_a_slicing_that_cannot_be_is_refused(count, by):
    with pytest.raises(ConfigError):
        Slicing(count, by)


def begun(store, *, count=None, by=None, topic=None, size=16, cores=4, holds=lambda: True):
    return begin_epoch(
        store, "op", count=count, by=by, otherwise=Slicing(2 * cores), topic=topic, partitions=lambda _: size,
        holds=holds,
    )  # fmt: skip


def test_an_operation_keeps_its_slicing_and_its_numbers_rise(store):
    first = begun(store, count=4, by="key", topic="seals")
    again, grown = begun(store), begun(store, size=32)

    assert (first.slicing, again.slicing) == (Slicing(4, "key"), Slicing(4, "key"))
    assert (first.topic, again.topic, grown.topic, grown.partitions) == ("seals", "seals", "seals", 16)
    assert again.first > first.first + 1_000_000
    with pytest.raises(ReplayError, match="begun with 4 slices by key"):
        begun(store, count=5)
    with pytest.raises(ReplayError, match="begun with the progress topic seals"):
        begun(store, topic="others")


def test_what_was_not_said_the_first_time_does_not_matter_the_second_time(store):
    """The number of slices came from the cores of one machine; the same command is given on another."""
    first = begun(store, by="key", cores=2)

    assert begun(store, by="key", cores=16).slicing == first.slicing == Slicing(4, "key")


def test_a_driver_that_lost_its_operation_while_brokers_were_asked_decides_nothing(store):
    with pytest.raises(ReplayError, match="taken over"):
        begun(store, count=4, holds=lambda: False)

    assert begun(store, count=5).slicing == Slicing(5)


def test_large_slices_are_dealt_to_different_tasks():
    """Spark cuts the rows of a small table into even runs."""
    dead_letters = [of_session(number, session) for session in range(30) for number in range(1 + session)]
    rows = [
        (row["slice"], len(unpacked(row["letters"])))
        for row in batches.table(dead_letters, Slicing(6), 3).to_pylist()
    ]
    counts = Counter(Slicing(6).of(dead_letter) for dead_letter in dead_letters)

    assert dict(rows) == counts
    assert {slice_ for slice_, _ in rows[:: len(rows) // 3]} == {
        slice_ for slice_, _ in counts.most_common(3)
    }


def test_a_wave_keeps_the_order_and_every_byte_of_its_letters():
    dead_letters = [
        in_hand(number, key=None if number % 2 else b"", value=None if number == 3 else b"\x00\xff")
        for number in range(6)
    ]
    table = batches.table(dead_letters, Slicing(3))
    (content,) = table["letters"].to_pylist()
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


# what is believed


class Log:
    """A topic that remembers: what the wave wrote, and which seals were put."""

    def __init__(self):
        self.on_topic, self.sealed, self.answers, self.waves, self.cancelled = {}, [], [], [], 0
        self.rates, self.took = [], []


@pytest.fixture
def log(monkeypatch):
    found = Log()

    class Looker:
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

    def seal(settings, notes, operation_id, which, number, **_):
        found.sealed.append((tuple(which), number))
        return dict.fromkeys(which, 0)

    class Wave:
        """Done at once, but for one that nobody answers for."""

        who = "Spark"

        def __init__(self, session, table, errand):
            self._answer = found.answers.pop(0)
            self._rows = [
                {"slice": row["slice"], "message_id": one.message_id, "ord": ord_}
                for row in table.to_pylist()
                for ord_, one in enumerate(unpacked(row["letters"]))
            ]
            found.waves.append(([row["message_id"] for row in self._rows], errand.number))
            found.rates.append(errand.rate)
            self.began = spark_replay.time.monotonic() - (found.took.pop(0) if found.took else 0.0)
            self.done = threading.Event()

        def start(self):
            if self._answer is not None:
                self.done.set()

        def cancel(self):
            found.cancelled += 1

        def outcomes(self):
            return self._answer(self._rows)

    monkeypatch.setattr(spark_replay, "TransactionalReplay", Looker)
    monkeypatch.setattr(spark_replay, "seal", seal)
    monkeypatch.setattr(spark_replay, "SparkBatch", Wave)
    monkeypatch.setattr(spark_replay, "_GRACE", 0.0)
    monkeypatch.setattr(spark_replay, "NEAR", 0)
    monkeypatch.setattr(offset_floors, "ENDS", 0.0)
    monkeypatch.setattr(
        spark_replay, "ReadBack", lambda *_: lambda wheres, _: ReadBackResult(ends=dict.fromkeys(wheres, 100))
    )
    return found


class Session:
    class sparkContext:
        applicationId = "app-1"
        defaultParallelism = 2


def way(
    log, *, rate=None, interrupt=lambda: False, holds=lambda: True, count=2, wave=100, say=lambda text: None
):
    life = SliceEpoch(Slicing(count), 1 << 32, "progress", 16)
    course = BatchProgress("op", {}, life, wave, 2, CanaryRule(), rate=lambda: rate)
    return SparkReplay(
        lambda: Session,
        course,
        floors={},
        interrupt=interrupt,
        holds=holds,
        ending=lambda: False,
        say=say,
        clock=time.time,
    )


def told(row, ending="acknowledged", **more):
    return {
        "slice": row["slice"], "message_id": row["message_id"], "ending": ending, "text": None, "partition": 0,
        "offset": row["ord"], "verdict": None, "death": None, **more,
    }  # fmt: skip


def written(death):
    """As a task writes it."""
    return _told(0, RecordOutcome("any", "failed", death=death))["death"]


def everything(rows):
    return [told(row) for row in rows]


def endings(outcomes):
    return Counter(one.ending for one in outcomes)


def test_every_slice_is_sealed_before_anything_is_sent(log):
    going = way(log, count=5)
    going.begin(["orders"])

    assert log.sealed[0] == ((0, 1, 2, 3, 4), (1 << 32) + 1)


def test_a_wave_whose_tasks_all_answered_needs_no_look(log):
    going = way(log)
    going.begin(["orders"])
    log.answers.append(everything)
    going.send([in_hand(number) for number in range(10)])

    assert endings(going.gather(0)) == {"acknowledged": 10}
    assert len(log.sealed) == 2
    assert going.floors == {"orders": {0: 99}}
    assert going.in_flight == 0


def test_what_a_task_did_not_answer_for_is_sealed_and_looked_for(log):
    dead_letters = [in_hand(number) for number in range(6)]
    going = way(log)
    going.begin(["orders"])
    log.answers += [lambda rows: everything(rows[:3]), everything]
    log.on_topic = {dead_letters[3].message_id: 3}
    going.send(dead_letters)

    first = going.gather(0)
    second = going.gather(0)

    assert endings(first) == {"acknowledged": 4}
    assert log.sealed[-1] == ((Slicing(2).of(dead_letters[0]),), log.waves[0][1] + 1)
    assert log.waves[1] == ([dead_letters[4].message_id, dead_letters[5].message_id], log.sealed[-1][1] + 1)
    assert endings(second) == {"acknowledged": 2}


def test_a_failure_is_believed_only_when_no_other_attempt_was_luckier(log):
    dead_letters = [in_hand(number) for number in range(3)]
    death = FailedReplay("permanent", "X", "no", "f", "rejected", "r", 9.0, (Attempt(9.0, "X", "no"),))
    going = way(log)
    going.begin(["orders"])
    log.answers.append(lambda rows: [told(row, "failed", text="no", death=written(death)) for row in rows])
    log.on_topic = {dead_letters[1].message_id: 7}
    going.send(dead_letters)

    outcomes = {one.message_id: one for one in going.gather(0)}

    assert outcomes[dead_letters[1].message_id].ending == "acknowledged"
    assert outcomes[dead_letters[0].message_id].ending == "failed"
    assert outcomes[dead_letters[0].message_id].death == death


def lost(_):
    raise batches.BatchLost(PipelineError("workers were lost"))


def test_a_lost_wave_goes_again_and_the_third_in_a_row_ends_the_job_with_its_letters_claimed(log):
    dead_letters = [in_hand(number) for number in range(4)]
    going = way(log)
    going.begin(["orders"])
    log.on_topic = {dead_letters[0].message_id: 3}
    log.answers += [lost, everything]
    going.send(dead_letters)
    assert endings(going.gather(0)) == {"acknowledged": 1}
    assert endings(going.gather(0)) == {"acknowledged": 3}
    assert going._lost == 0

    log.answers += [lost, lost, lost]
    going.send([in_hand(number) for number in range(10, 14)])
    going.gather(0)
    before = dict(going.floors)
    going.gather(0)
    with pytest.raises(PipelineError, match="workers were lost"):
        going.gather(0)

    assert going.in_flight == 4
    assert going.floors == before


NEVER = None


def test_paused_in_a_wave_it_finds_out_what_became_of_it_and_gives_the_rest_back(log):
    dead_letters = [in_hand(number) for number in range(4)]
    going = way(log, interrupt=lambda: True)
    going.begin(["orders"])
    log.answers.append(NEVER)
    log.on_topic = {dead_letters[0].message_id: 3}
    going.send(dead_letters)

    assert endings(going.gather(0)) == {"acknowledged": 1, "pending": 3}
    assert (log.cancelled, len(log.waves), going.in_flight) == (1, 1, 0)


def test_a_pause_is_remembered_until_the_wave_ends_though_it_is_asked_for_now_and_then(log, monkeypatch):
    monkeypatch.setattr(spark_replay, "_GRACE", 60.0)
    asked = iter([True, False, False])
    going = way(log, interrupt=lambda: next(asked), wave=2)
    going.begin(["orders"])
    log.answers.append(NEVER)
    going.send([in_hand(number) for number in range(4)])
    assert [going.gather(0), going.gather(0)] == [[], []]

    monkeypatch.setattr(spark_replay, "_GRACE", 0.0)
    going._leave_at = 0.0

    assert endings(going.gather(0)) == {"pending": 4}
    assert (log.cancelled, len(log.waves)) == (1, 1)


def test_who_lost_the_operation_in_a_wave_leaves_it_as_it_is(log):
    going = way(log, holds=lambda: False)
    going.begin(["orders"])
    before = {topic: dict(parts) for topic, parts in going.floors.items()}
    log.answers.append(NEVER)
    going.send([in_hand(1)])
    with pytest.raises(Interrupted):
        going.gather(0)

    assert going.in_flight == 1
    assert going.floors == before
    assert going.give_back() == []


def test_the_next_wave_begins_before_the_store_is_told_of_the_last_one(log):
    going = way(log, wave=10)
    going.begin(["orders"])
    log.answers += [everything, everything, everything]
    going.send([in_hand(number) for number in range(25)])

    found = [len(going.gather(0)) for _ in range(3)]

    assert found == [10, 10, 5]
    assert [len(ids) for ids, _ in log.waves] == [10, 10, 5]
    assert sorted(number for _, number in log.waves) == [number for _, number in log.waves]


def test_what_is_small_and_no_full_wave_the_driver_sends_itself(log, monkeypatch):
    near = []

    class Near(spark_replay.SparkBatch):
        who = "The driver"

        def __init__(self, table, errand, keep, holds):
            super().__init__(None, table, errand)
            near.append(errand.dead_letters)

    monkeypatch.setattr(spark_replay, "DriverBatch", Near)
    monkeypatch.setattr(spark_replay, "NEAR", 20)
    going = way(log, wave=30)
    going.begin(["orders"])
    log.answers += [everything] * 4
    for count in (10, 20, 30):
        going.send([in_hand(number) for number in range(count)])
        going.gather(0)
    assert near == [10]

    going = way(log, wave=15)
    going.begin(["orders"])
    going.send([in_hand(number) for number in range(15)])
    going.gather(0)
    assert (near, len(log.waves)) == ([10], 4)


def test_floors_rise_with_what_was_sent_and_fall_where_a_topic_was_made_again(log, monkeypatch):
    monkeypatch.setattr(offset_floors, "ENDS", 60.0)
    going = way(log)
    going.begin(["orders"])
    log.answers += [lambda rows: [told(row, offset=300 + row["ord"]) for row in rows], everything]
    going.send([in_hand(number) for number in range(5)])
    going.gather(0)
    assert going.floors == {"orders": {0: 304}}

    going.send([in_hand(number) for number in range(5)])
    going.gather(0)
    assert going.floors == {"orders": {0: 4}}


def test_after_a_failure_no_wave_begins_before_the_stop_rule_was_asked(log):
    going = way(log, wave=10)
    going.begin(["orders"])
    log.answers += [lambda rows: [told(row, "failed", text="no") for row in rows], everything]
    going.send([in_hand(number) for number in range(20)])

    assert endings(going.gather(0)) == {"failed": 10}
    assert len(log.waves) == 1
    assert endings(going.give_back()) == {"pending": 10}


def test_a_rate_is_the_wave_s(log):
    going = way(log, rate=100.0, count=5)
    going.begin(["orders"])
    log.answers += [everything, everything]
    going.send([in_hand(1)])
    going.gather(0)
    going.send([in_hand(number, message_id=of_session(number, number).message_id) for number in range(40)])
    going.gather(0)

    assert log.rates == [100.0, 100.0]


def test_a_wave_that_cannot_begin_does_not_lose_what_became_of_the_last_one(log):
    going = way(log, wave=5)
    going.begin(["orders"])
    log.answers.append(everything)
    going.send([in_hand(number) for number in range(10)])

    assert endings(going.gather(0)) == {"acknowledged": 5}
    assert going.in_flight == 5
    with pytest.raises(IndexError):  # there is no answer to a second wave
        going.gather(0)
    assert endings(going.give_back()) == {"pending": 5}


@pytest.fixture
def stopped_clock(monkeypatch):
    """A wave lasts exactly as long as `log.took` says, whatever the pace of the machine."""
    monkeypatch.setattr(spark_replay, "time", SimpleNamespace(monotonic=lambda: 1000.0))


def test_what_was_said_of_a_slow_wave_does_not_stand_there_for_ever(log, stopped_clock):
    said = []
    going = way(log, wave=2, say=said.append)
    going.begin(["orders"])
    log.answers += [everything] * 3
    log.took = [63.0, 1.0, 1.0]
    going.send([in_hand(number) for number in range(6)])
    going.gather(0)
    going.gather(0)
    going._slow_until = 0.0
    going.gather(0)

    assert said == ["Spark sent 2 records in 63.0 s", "Spark sent 2 records in 1.0 s"]


def test_the_sentence_about_a_wave_under_way_is_renewed_when_the_wave_is_settled(
    store, log, stopped_clock, monkeypatch
):
    """However soon the second sentence comes after the first: only one in two seconds is written at once."""
    buried(store, 4)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    said = []
    monkeypatch.setattr(ReplayClaims, "say", lambda self, text: said.append(text))
    log.answers.append(everything)
    log.took.append(63.0)

    class Slow(spark_replay.SparkBatch):
        def start(self):
            waits = iter([False])  # then it is done
            self.done = SimpleNamespace(wait=lambda seconds: next(waits, True))

    monkeypatch.setattr(spark_replay, "SparkBatch", Slow)
    runner = replay_runner(
        store, ScriptedSender(), spread=lambda work, claims, operation: way(log, say=work.say)
    )

    assert runner.run_one(planned.operation_id, 60).acknowledged == 4
    assert said == ["Spark has been sending 4 records for 63 s", "Spark sent 4 records in 63.0 s"]


def test_a_wave_of_a_slow_replay_is_five_seconds_of_it(log):
    going = way(log, rate=2.0)
    going.begin(["orders"])
    log.answers += [everything] * 3
    going.send([in_hand(number) for number in range(25)])

    assert [len(going.gather(0)) for _ in range(3)] == [10, 10, 5]


def test_a_pace_may_add_up_for_longer():
    pace = ReplayPace(100.0, 0.0, burst=5.0)
    assert pace.room(60.0, 10_000) == 500
    assert ReplayPace(100.0, 0.0).room(0.0, 10_000) == 1


# waves in a thread


def test_a_wave_that_spark_gives_up_says_why_in_a_sentence():
    groups = []

    class Context:
        def setJobGroup(self, group, text):
            groups.append(group)

    class Broken:
        sparkContext = Context()

        def createDataFrame(self, *_):
            raise RuntimeError("SparkContext was shut down")

    errand = batches.SliceTask(
        "op", {}, 7, {}, spark_replay.ProgressTopic("p", 1, {0: 0}), 10, CanaryRule(), 1
    )
    wave = batches.SparkBatch(Broken(), batches.table([in_hand(1)], Slicing(1)), errand)
    wave.start()
    assert wave.done.wait(10)

    assert groups == ["reprocess-op-7"]
    with pytest.raises(batches.BatchLost, match="Spark's Java process is gone"):
        wave.outcomes()


# sources


@pytest.mark.parametrize("name", ["letters.parquet", "letters.jsonl"])
def test_an_export_selects_the_letters_that_are_in_it(store, tmp_path, name):
    ids = buried(store, 20)
    some = DeadLetterFilter(ids=tuple(ids[:7]))
    files.export(store, some, tmp_path / name, who="ann", origin="cli")

    where = brought(DeadLetterFilter(), file=tmp_path / name)

    assert DeadLetters(store).count(where) == 7
    planned = replay.plan(store, where, who="ann", origin=PIPELINE, can_run=CLUSTER)
    assert planned.total == 7
    assert planned.query == {"file": str((tmp_path / name).resolve())}


def test_a_dead_letter_topic_selects_what_was_fetched_from_it(store):
    buried(store, 3)
    DeadLetters(store).add(
        [dead_letter(number, source=f"orders-dlt[0]@{number} (Spring Kafka)") for number in range(5, 9)]
    )
    DeadLetters(store).add([dead_letter(20, source="orders-dlt-2[0]@1 (Spring Kafka)")])

    assert DeadLetters(store).count(brought(DeadLetterFilter(), dead_letter_topic="orders-dlt")) == 4
    assert brought(DeadLetterFilter(topic="a")) == DeadLetterFilter(topic="a")


# whose operation it is


def test_an_ordinary_runner_leaves_sparks_operations_alone(store):
    buried(store, 5)
    alive(store, time.time())
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    sender = ScriptedSender()
    ordinary = replay_runner(store, sender)

    assert ordinary.look() is False
    with pytest.raises(ReplayError, match=r"pipeline reprocess --operation " + planned.operation_id):
        ordinary.run_one(planned.operation_id, 1)
    assert sender.sent == []


def test_sparks_runner_leaves_ordinary_operations_alone(store):
    buried(store, 5)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin="cli", can_run=CLUSTER)
    runner = replay_runner(store, ScriptedSender(), spread=lambda *_: pytest.fail("it took it"))

    assert runner.look() is False
    with pytest.raises(ReplayError, match="not planned for Spark"):
        runner.run_one(planned.operation_id, 1)


def test_an_operation_of_another_cluster_stays_paused(store, monkeypatch):
    """Somebody gave its id and the wrong addresses."""
    one = paused_replay(store)
    monkeypatch.setattr(job, "reach", lambda client: SimpleNamespace(view=lambda: Elsewhere))

    with pytest.raises(OtherCluster):
        job.reprocess(Session, store, "broker:9092", operation_id=one)
    with pytest.raises(OtherCluster):
        command_for(store, Elsewhere.cluster_id).chosen(one)

    assert replay.get(store, one).state == "paused"


def test_what_was_begun_keeps_its_letters_and_its_plan_in_python_too(store, monkeypatch):
    one = paused_replay(store, rate=5.0)
    monkeypatch.setattr(job, "reach", lambda client: SimpleNamespace(view=lambda: Here))

    def go_on(**plan):
        return job.reprocess(Session, store, "broker:9092", operation_id=one, **plan)

    with pytest.raises(ConfigError, match=r"you gave selection, limit, canary\. .*only rate may change"):
        go_on(selection=DeadLetterFilter(topic="orders"), limit=3, rate=9.0, canary=0, reason=None)
    assert replay.get(store, one).state == "paused"

    replay.resume(store, one, who="ann", origin="dashboard")
    with pytest.raises(ConfigError, match="goes on at the rate that it has"):
        go_on(rate=9.0)


class Here:
    cluster_id = CLUSTER


class Elsewhere:
    cluster_id = "cluster-2"


def test_who_asks_for_other_slices_is_told_and_the_next_one_need_not_wait_for_his_lease(
    store, log, monkeypatch
):
    buried(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    store.set_setting(
        f"reprocess.{planned.operation_id}",
        {"slices": 4, "by": "key", "lives": 1, "topic": "seals", "partitions": 3},
    )
    monkeypatch.setattr(job, "require_topic", lambda settings, topic: 3)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(slices=3), session=lambda: Session)
    monkeypatch.setattr(runner, "_lacks", lambda *_: "")
    monkeypatch.setattr(runner, "_client", None)

    with pytest.raises(ReplayError, match="begun with 4 slices by key"):
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


def test_a_driver_whose_spark_is_gone_says_so_and_lets_go(store, log, monkeypatch):
    """The command looked again, for ever, with a traceback each time."""
    buried(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(), session=lambda: Killed)
    monkeypatch.setattr(runner, "_lacks", lambda *_: "")
    monkeypatch.setattr(runner, "_client", None)

    with pytest.raises(PipelineError, match="Java process is gone"):
        runner.run_one(planned.operation_id, 10)

    assert replay.get(store, planned.operation_id).owner is None


def cancelled_under_a_dead_driver(store, ago):
    """Of three dead letters two were claimed so many seconds ago."""
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


def test_the_next_driver_says_what_became_of_a_cancelled_one_and_sends_nothing(store, log, monkeypatch):
    cancelled = cancelled_under_a_dead_driver(store, ago=20)
    assert not cancelled.ended
    log.on_topic = {in_hand(0).message_id: 4}
    monkeypatch.setattr(job, "require_topic", lambda settings, topic: 16)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(slices=3), session=None)
    runner._lease = runner._watch._lease = 0.3
    monkeypatch.setattr(runner, "_lacks", lambda *_: "")

    (ended,) = job.end_cancelled(store, runner, CLUSTER)

    assert (ended.landed, ended.skipped, ended.left, ended.ended) == (1, 2, 0, True)
    assert DeadLetters(store).count_by(DeadLetterFilter(state=None), "state") == {"dead": 2, "landed": 1}
    assert log.waves == []


# how it may be gone on with


def test_an_operation_that_was_begun_keeps_its_letters_and_its_plan():
    nothing = {"limit": None, "rate": 5.0, "canary": None, "allow_quarantined": False, "to_cluster": None}
    _only_goes_on(DeadLetterFilter(), nothing)

    with pytest.raises(Failed, match="a selection, --canary, --include-quarantined"):
        _only_goes_on(DeadLetterFilter(topic="orders"), {**nothing, "canary": 0, "allow_quarantined": True})


def paused_replay(store, rate=None):
    buried(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER, rate=rate)
    replay.pause(store, planned.operation_id, who="ann", origin="dashboard")
    return planned.operation_id


def command_for(store, cluster=CLUSTER, **choices):
    made = ReprocessRun(store, DeadLetterFilter(), None, origin=PIPELINE)
    made.prepare({}, cluster, ReprocessOptions(**choices))
    return made


def test_a_paused_replay_goes_on_at_another_rate_with_its_own_progress_topic(store, monkeypatch):
    one, asked = paused_replay(store), []
    store.set_setting(
        f"reprocess.{one}", {"slices": 4, "by": "key", "lives": 1, "topic": "seals", "partitions": 3}
    )
    monkeypatch.setattr(progress_topic, "require_topic", lambda settings, topic: asked.append(topic))
    command = command_for(store)

    assert command.go(command.chosen(one), rate=7.0).rate == 7.0
    assert asked == ["seals"]
    with pytest.raises(Failed, match="at the rate that it has"):
        command.go(command.chosen(one), rate=8.0)
    with pytest.raises(ReplayError, match="progress topic seals"):
        command_for(store, progress_topic="others").go(command.chosen(one))


def test_a_replay_whose_progress_topic_cannot_be_used_stays_paused(store, monkeypatch):
    one = paused_replay(store)
    lacks = [Permission("topic", "producer-core-progress", "WRITE")]
    monkeypatch.setattr(progress_topic, "_partitions_of", lambda settings, topic: 16)
    monkeypatch.setattr(progress_topic.acls, "check", lambda config, topics, feature: lacks)
    command = command_for(store)

    with pytest.raises(BrokerError, match="WRITE on topic producer-core-progress is missing"):
        command.go(command.chosen(one))

    assert replay.get(store, one).state == "paused"


@pytest.mark.parametrize(
    ("state", "job_state", "success"),
    [("paused", "done", False), ("stopped", "failed", False), ("done", "done", True)],
)
def test_a_job_is_a_success_only_where_its_replay_is_done(store, state, job_state, success):
    operation = SimpleNamespace(state=state, total=5, left=0)

    with track_job(store, name="reprocess op", kind="reprocess") as told:
        job.tell(told, operation)

    (row,) = store.rows("jobs")
    assert (row["state"], row["last_success_at"] is not None) == (job_state, success)


def test_where_one_slice_cannot_be_sealed_the_others_are_not_tried(monkeypatch):
    tried = []

    def refused(*words, **_):
        tried.append(words[3])
        raise ReplayError("no")

    monkeypatch.setattr(progress_topic, "_seal", refused)
    with pytest.raises(ReplayError):
        progress_topic.seal({}, None, "op", range(200), 1, interrupt=lambda: False, say=lambda text: None)

    assert len(tried) < 200


def test_orphans_of_a_dead_driver_are_looked_for_above_the_floors(log):
    dead_letters = [in_hand(1), in_hand(2)]
    log.on_topic = {dead_letters[0].message_id: 4}
    going = way(log)
    going.begin(["orders"])

    assert endings(going.after([OrphanedRecord(one, 0.0) for one in dead_letters])) == {
        "landed": 1,
        "pending": 1,
    }
