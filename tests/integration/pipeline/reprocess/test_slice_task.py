"""One slice of a reprocess as Spark's tasks send it, on a real Kafka and without Spark.

The tests cover attempts that die, concurrent attempts, and attempts of a driver that no longer owns the operation.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError

from producer_core.config import client_config
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient, TransactionFailed
from producer_core.pipeline.reprocess import batches as reprocess_batches
from producer_core.pipeline.reprocess import slice_task
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.progress_topic import ProgressTopic, require_topic, seal
from producer_core.pipeline.reprocess.slice_task import SliceTask, outcome_schema
from producer_core.pipeline.reprocess.slicing import Slicing
from producer_core.replay.guard import CanaryRule
from producer_core.replay.pace import ReplayPace
from producer_core.replay.topic_search import TopicSearch
from producer_core.replay.transactional import TransactionalReplay
from tests.fixtures.replays import replay_record
from tests.scenarios.replays.reading import read

pytestmark = pytest.mark.kafka

COUNT = 60
FIRST = 1 << 32


class Stage:
    """A topic, dead letters of one session for it, and an operation with one slice that is sealed with the number
    FIRST."""

    def __init__(self, kafka):
        self.kafka = kafka
        self.topic = f"reprocess-{uuid.uuid4().hex[:8]}"
        self.operation = uuid.uuid4().hex[:12]
        kafka.create_topic(self.topic, partitions=3)
        self.settings = dict(client_config(kafka.bootstrap_servers).settings)
        self.dead_letters = [
            replay_record(
                number, topic=self.topic, key=b"k%d" % (number % 7), headers=(("n", b"%d" % number),)
            )
            for number in range(COUNT)
        ]
        self.floors = {self.topic: dict.fromkeys(range(3), -1)}
        self.partitions = require_topic(self.settings, "producer-core-progress")
        self.progress = self.seal(FIRST)

    def seal(self, number, clients=None, slices=(0,)):
        progress = ProgressTopic("producer-core-progress", self.partitions, dict.fromkeys(slices, -1))
        since = seal(
            self.settings, progress, self.operation, slices, number,
            interrupt=lambda: False, report=lambda text: None, clients=clients,
        )  # fmt: skip
        return ProgressTopic(progress.topic, progress.partitions, since)

    def task(self, number=FIRST + 1, transaction_size=10, rate=None, floors=None):
        fields = (number, floors or self.floors, self.progress)
        return SliceTask(self.operation, self.settings, *fields, transaction_size, CanaryRule(), COUNT, rate)

    def send(self, task=None, dead_letters=None, **more):
        """Return the outcomes of one attempt of the task."""
        batches = reprocess_batches.slice_table(dead_letters or self.dead_letters, Slicing(1)).to_batches()
        results = slice_task.send(task or self.task(), batches, **more)
        rows = [row for batch in results for row in batch.to_pylist()]
        return Counter(row["ending"] for row in rows)

    def counts(self):
        return Counter(record.number for record in read(self.kafka.bootstrap_servers, self.topic))


@pytest.fixture
def stage(kafka, kcat):
    return Stage(kafka)


ONCE = Counter(dict.fromkeys(range(COUNT), 1))


def test_a_second_attempt_finds_all_records_of_the_first(stage):
    first, second = stage.send(), stage.send()

    assert (first, second) == ({"acknowledged": COUNT}, {"acknowledged": COUNT})
    assert stage.counts() == ONCE


def test_the_slices_of_a_task_share_their_part_of_the_batchs_rate(stage, monkeypatch):
    paces = []
    monkeypatch.setattr(
        slice_task, "ReplayPace", lambda *arguments: paces.append(arguments[0]) or ReplayPace(*arguments)
    )
    stage.progress = stage.seal(FIRST + 1, slices=(0, 1, 2))
    task = replace(stage.task(rate=400.0), dead_letters=4 * COUNT)
    # no slice is empty
    dead_letters = [one._replace(key=b"k%d" % number) for number, one in enumerate(stage.dead_letters)]
    batches = reprocess_batches.slice_table(dead_letters, Slicing(3, "key")).to_batches()

    rows = [row for batch in slice_task.send(task, batches) for row in batch.to_pylist()]

    assert paces == [100.0]
    assert {row["slice"] for row in rows} == {0, 1, 2}
    assert stage.counts() == ONCE


class Killed(Exception):
    pass


@pytest.mark.parametrize("committed", [0, 20])
def test_an_attempt_that_dies_in_a_transaction_is_fenced_and_the_next_sends_the_rest(
    stage, monkeypatch, committed
):
    def die(self, batch):
        if len(sent) * 10 == committed:
            self._client.live._producer.begin_transaction()
            self._client.live._produce([sending_delivery(one) for one in batch], time.monotonic() + 10)
            self._client.live._producer.flush(10)
            raise Killed
        sent.append(batch)
        return transact(self, batch)

    sent, transact = [], TransactionalReplay._transact
    from producer_core.delivery.dead_letter import delivery_of as sending_delivery

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalReplay, "_transact", die)
        with pytest.raises(Killed):
            stage.send()
    assert stage.counts().total() == committed

    assert stage.send() == {"acknowledged": COUNT}
    assert stage.counts() == ONCE


def test_an_attempt_that_fences_a_concurrent_one_after_a_lost_connection_sends_nothing_twice(
    stage, monkeypatch
):
    """It gets no fencing error because its connection is lost, and starts again after the other attempt sent the rest."""
    other = []
    transact = TransactionalReplay._transact

    def cut_off(self, batch):
        if other or stage.counts().total() < 20:
            return transact(self, batch)
        other.append(None)
        other.append(stage.send())
        self._unknown = batch
        lost = TransactionFailed(KafkaError(KafkaError._TIMED_OUT))
        return self._after_failure(lost)

    monkeypatch.setattr(TransactionalReplay, "_transact", cut_off)
    outcomes = stage.send()

    assert (outcomes, other[1]) == ({"acknowledged": COUNT}, {"acknowledged": COUNT})
    assert stage.counts() == ONCE


def test_a_topic_created_during_the_replay_is_read_from_its_first_record(stage):
    """It had no floors when the batch started, but the records of an earlier attempt must be found."""
    task = stage.task(floors={"another": {}})

    assert stage.send(task) == stage.send(task) == {"acknowledged": COUNT}
    assert stage.counts() == ONCE


def test_an_attempt_without_a_seal_of_its_driver_sends_nothing(stage):
    """For example, the progress topic was deleted and re-created: the owner of the slice is unknown."""
    task = stage.task(number=(7 << 32) + 1)

    assert stage.send(task) == {}
    assert stage.counts() == {}


def test_the_fenced_one_of_two_concurrent_attempts_stops_and_each_record_is_sent_once(stage, monkeypatch):
    other = []
    transact = TransactionalReplay._transact

    def overtaken(self, batch):
        if not other and sum(stage.counts().values()) >= 20:
            other.append(None)
            other.append(stage.send())
        return transact(self, batch)

    monkeypatch.setattr(TransactionalReplay, "_transact", overtaken)
    outcomes = stage.send()

    assert other[1] == {"acknowledged": COUNT}
    assert outcomes == {"acknowledged": 20}
    assert stage.counts() == ONCE


def test_after_a_seal_an_attempt_of_an_earlier_driver_sends_nothing(stage):
    late = stage.task()
    stage.seal(FIRST + (1 << 32))

    assert stage.send(late) == {}
    assert stage.counts() == {}


def test_a_seal_stops_a_running_attempt(stage, monkeypatch):
    transact = TransactionalReplay._transact

    def sealed(self, batch):
        if sum(stage.counts().values()) == 30:
            stage.seal(FIRST + 5)
        return transact(self, batch)

    monkeypatch.setattr(TransactionalReplay, "_transact", sealed)

    assert stage.send() == {"acknowledged": 30}
    assert stage.counts() == Counter(range(30))


def test_an_attempt_stays_within_its_rate(stage):
    began = time.monotonic()
    assert stage.send(stage.task(rate=40.0)) == {"acknowledged": COUNT}
    assert time.monotonic() - began >= (COUNT - 10) / 40 - 0.1  # the first transaction does not wait
    assert stage.counts() == ONCE


# clients that the driver keeps


@pytest.fixture
def fences(monkeypatch):
    """Collect the clients that fence."""
    done, fence = [], TransactionalClient.fence
    monkeypatch.setattr(
        TransactionalClient, "fence", lambda self, waiting: done.append(self) or fence(self, waiting)
    )
    return done


def test_with_the_client_of_its_seal_a_driver_sends_without_fence_and_read_back(stage, fences, monkeypatch):
    clients = ClientPool()
    stage.progress = stage.seal(FIRST, clients)
    monkeypatch.setattr(TopicSearch, "search", lambda *_: pytest.fail("it read back"))

    for number, start in enumerate(range(0, COUNT, 20), 1):
        outcomes = stage.send(
            stage.task(FIRST + number), stage.dead_letters[start : start + 20], clients=clients
        )
        assert outcomes == {"acknowledged": 20}

    assert len(fences) == 1
    assert stage.counts() == ONCE
    clients.close()


def test_an_attempt_whose_client_was_fenced_starts_again_and_finds_the_sent_records(stage, fences):
    """A concurrent attempt of the same batch fenced it and sent half of the dead letters."""
    clients = ClientPool()
    stage.progress = stage.seal(FIRST, clients)
    half = stage.send(dead_letters=stage.dead_letters[:30])
    del fences[:]

    outcomes = stage.send(clients=clients)

    assert (half, outcomes) == ({"acknowledged": 30}, {"acknowledged": COUNT})
    assert len(fences) == 1
    assert stage.counts() == ONCE
    clients.close()


def test_a_kept_client_sends_nothing_after_the_next_drivers_seal(stage):
    clients = ClientPool()
    stage.progress = stage.seal(FIRST, clients)
    stage.seal(FIRST + (1 << 32))

    assert stage.send(clients=clients) == {}
    assert stage.counts() == {}
    assert clients.take(0, 1 << 40) is None


def test_an_abandoned_attempt_sends_nothing_and_takes_no_client(stage):
    clients = ClientPool()
    stage.progress = stage.seal(FIRST, clients)

    assert stage.send(clients=clients, abandoned=lambda: True) == {}
    assert stage.counts() == {}
    assert stage.send(clients=clients) == {"acknowledged": COUNT}  # the client is still in the pool
    assert stage.counts() == ONCE
    clients.close()


def test_a_slice_with_too_many_failures_returns_the_rest(stage):
    """Records without a key on a compacted topic fail; each is alone in its transaction, so each fails by itself."""
    compacted = f"{stage.topic}-c"
    stage.kafka.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
    dead_letters = [one._replace(key=None, topic=compacted) for one in stage.dead_letters]
    task = replace(stage.task(transaction_size=1), rule=CanaryRule(last=5))

    assert stage.send(task, dead_letters) == {"failed": 5, "pending": COUNT - 5}


def test_a_tasks_rows_have_the_columns_of_the_declared_schema(stage):
    assert [f"{field.name}" for field in outcome_schema()] == [
        part.split()[0] for part in slice_task.OUTCOME.split(", ")
    ]
