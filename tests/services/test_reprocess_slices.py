"""One slice of a reprocess as Spark's tasks send it, on a real Kafka and without Spark: attempts that die, twins, and
attempts of a driver that is gone."""

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
from producer_core.replay.execution import ReplayPace
from producer_core.replay.guard import CanaryRule
from producer_core.replay.transactional import TransactionalReplay
from tests.replays.reading import read
from tests.unit.replaying import in_hand

pytestmark = pytest.mark.kafka

COUNT = 60
FIRST = 1 << 32


class Stage:
    """A topic, dead letters of one session for it, and an operation whose one slice is sealed with the number FIRST."""

    def __init__(self, kafka):
        self.kafka = kafka
        self.topic = f"reprocess-{uuid.uuid4().hex[:8]}"
        self.operation = uuid.uuid4().hex[:12]
        kafka.create_topic(self.topic, partitions=3)
        self.settings = dict(client_config(kafka.bootstrap_servers).settings)
        self.dead_letters = [
            in_hand(number, topic=self.topic, key=b"k%d" % (number % 7), headers=(("n", b"%d" % number),))
            for number in range(COUNT)
        ]
        self.floors = {self.topic: dict.fromkeys(range(3), -1)}
        self.partitions = require_topic(self.settings, "producer-core-progress")
        self.notes = self.seal(FIRST)

    def seal(self, number, keep=None, slices=(0,)):
        notes = ProgressTopic("producer-core-progress", self.partitions, dict.fromkeys(slices, -1))
        since = seal(
            self.settings, notes, self.operation, slices, number,
            interrupt=lambda: False, say=lambda text: None, keep=keep,
        )  # fmt: skip
        return ProgressTopic(notes.topic, notes.partitions, since)

    def errand(self, number=FIRST + 1, most=10, rate=None, floors=None):
        where = (number, floors or self.floors, self.notes)
        return SliceTask(self.operation, self.settings, *where, most, CanaryRule(), COUNT, rate)

    def send(self, errand=None, dead_letters=None, **more):
        """What one attempt of the task says."""
        batches = reprocess_batches.table(dead_letters or self.dead_letters, Slicing(1)).to_batches()
        told = slice_task.send(errand or self.errand(), batches, **more)
        rows = [row for batch in told for row in batch.to_pylist()]
        return Counter(row["ending"] for row in rows)

    def there(self):
        return Counter(record.number for record in read(self.kafka.bootstrap_servers, self.topic))


@pytest.fixture
def stage(kafka, kcat):
    return Stage(kafka)


ONCE = Counter(dict.fromkeys(range(COUNT), 1))


def test_a_slice_is_sent_and_a_second_attempt_finds_all_of_it(stage):
    first, second = stage.send(), stage.send()

    assert (first, second) == ({"acknowledged": COUNT}, {"acknowledged": COUNT})
    assert stage.there() == ONCE


def test_the_slices_of_a_task_share_one_pace_of_as_much_as_they_have_of_the_wave(stage, monkeypatch):
    paces = []
    monkeypatch.setattr(slice_task, "ReplayPace", lambda *words: paces.append(words[0]) or ReplayPace(*words))
    stage.notes = stage.seal(FIRST + 1, slices=(0, 1, 2))
    errand = replace(stage.errand(rate=400.0), dead_letters=4 * COUNT)
    dead_letters = [
        one._replace(key=b"k%d" % number) for number, one in enumerate(stage.dead_letters)
    ]  # no slice is empty
    batches = reprocess_batches.table(dead_letters, Slicing(3, "key")).to_batches()

    rows = [row for batch in slice_task.send(errand, batches) for row in batch.to_pylist()]

    assert paces == [100.0]
    assert {row["slice"] for row in rows} == {0, 1, 2}
    assert stage.there() == ONCE


class Killed(Exception):
    pass


@pytest.mark.parametrize("committed", [0, 20])
def test_an_attempt_that_dies_in_a_transaction_is_fenced_and_the_next_one_sends_the_rest(
    stage, monkeypatch, committed
):
    def die(self, batch):
        if len(sent) * 10 == committed:
            self._live._live.begin_transaction()
            self._live._produce([sending_delivery(one) for one in batch], time.monotonic() + 10)
            self._live._live.flush(10)
            raise Killed
        sent.append(batch)
        return transact(self, batch)

    sent, transact = [], TransactionalReplay._transact
    from producer_core.delivery.dead_letter import delivery_of as sending_delivery

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalReplay, "_transact", die)
        with pytest.raises(Killed):
            stage.send()
    assert stage.there().total() == committed

    assert stage.send() == {"acknowledged": COUNT}
    assert stage.there() == ONCE


def test_a_twin_that_fences_back_after_a_lost_connection_sends_nothing_again(stage, monkeypatch):
    """It hears of no fence: its answers are lost, and it begins anew where its twin has sent the rest."""
    twin = []
    transact = TransactionalReplay._transact

    def cut_off(self, batch):
        if twin or stage.there().total() < 20:
            return transact(self, batch)
        twin.append(None)
        twin.append(stage.send())
        self._unknown = batch
        lost = TransactionFailed(KafkaError(KafkaError._TIMED_OUT))
        return self._after_failure(lost, len(batch))

    monkeypatch.setattr(TransactionalReplay, "_transact", cut_off)
    told = stage.send()

    assert (told, twin[1]) == ({"acknowledged": COUNT}, {"acknowledged": COUNT})
    assert stage.there() == ONCE


def test_a_topic_that_is_made_while_it_is_sent_to_is_read_from_its_first_record(stage):
    """It had no floors when the wave began: what an earlier attempt sent there must be found."""
    errand = stage.errand(floors={"another": {}})

    assert stage.send(errand) == stage.send(errand) == {"acknowledged": COUNT}
    assert stage.there() == ONCE


def test_where_the_seals_are_not_those_of_this_driver_nothing_is_sent(stage):
    """The progress topic was deleted and made again, say: nobody can tell whose the slice is."""
    errand = stage.errand(number=(7 << 32) + 1)

    assert stage.send(errand) == {}
    assert stage.there() == {}


def test_of_twins_the_fenced_one_leaves_and_each_letter_is_there_once(stage, monkeypatch):
    twin = []
    transact = TransactionalReplay._transact

    def overtaken(self, batch):
        if not twin and sum(stage.there().values()) >= 20:
            twin.append(None)
            twin.append(stage.send())
        return transact(self, batch)

    monkeypatch.setattr(TransactionalReplay, "_transact", overtaken)
    told = stage.send()

    assert twin[1] == {"acknowledged": COUNT}
    assert told == {"acknowledged": 20}
    assert stage.there() == ONCE


def test_after_a_seal_an_attempt_of_an_earlier_driver_sends_nothing(stage):
    late = stage.errand()
    stage.seal(FIRST + (1 << 32))

    assert stage.send(late) == {}
    assert stage.there() == {}


def test_a_seal_in_the_middle_ends_the_attempt_that_was_sending(stage, monkeypatch):
    transact = TransactionalReplay._transact

    def sealed(self, batch):
        if sum(stage.there().values()) == 30:
            stage.seal(FIRST + 5)
        return transact(self, batch)

    monkeypatch.setattr(TransactionalReplay, "_transact", sealed)

    assert stage.send() == {"acknowledged": 30}
    assert stage.there() == Counter(range(30))


def test_a_share_of_the_rate_is_kept(stage):
    began = time.monotonic()
    assert stage.send(stage.errand(rate=40.0)) == {"acknowledged": COUNT}
    assert time.monotonic() - began >= (COUNT - 10) / 40 - 0.1  # the first transaction need not wait
    assert stage.there() == ONCE


# clients that the driver keeps


@pytest.fixture
def fences(monkeypatch):
    """How often somebody fenced since the stage was set."""
    done, fence = [], TransactionalClient.fence
    monkeypatch.setattr(
        TransactionalClient, "fence", lambda self, waiting: done.append(self) or fence(self, waiting)
    )
    return done


def test_with_the_client_of_its_seal_a_driver_sends_wave_after_wave_and_neither_fences_nor_reads_back(
    stage, fences, monkeypatch
):
    keep = ClientPool()
    stage.notes = stage.seal(FIRST, keep)
    monkeypatch.setattr(TransactionalReplay, "_look", lambda *_: pytest.fail("it read back"))

    for number, start in enumerate(range(0, COUNT, 20), 1):
        told = stage.send(stage.errand(FIRST + number), stage.dead_letters[start : start + 20], keep=keep)
        assert told == {"acknowledged": 20}

    assert len(fences) == 1
    assert stage.there() == ONCE
    keep.close()


def test_where_somebody_took_the_id_of_a_kept_client_it_begins_anew_and_finds_what_he_sent(stage, fences):
    """A twin of the same wave elsewhere, that is: it fenced, sent half of the dead letters, and is gone."""
    keep = ClientPool()
    stage.notes = stage.seal(FIRST, keep)
    half = stage.send(dead_letters=stage.dead_letters[:30])
    del fences[:]

    told = stage.send(keep=keep)

    assert (half, told) == ({"acknowledged": 30}, {"acknowledged": COUNT})
    assert len(fences) == 1
    assert stage.there() == ONCE
    keep.close()


def test_a_kept_client_of_a_driver_that_slept_sends_nothing_after_the_seal_of_the_next(stage):
    keep = ClientPool()
    stage.notes = stage.seal(FIRST, keep)
    stage.seal(FIRST + (1 << 32))

    assert stage.send(keep=keep) == {}
    assert stage.there() == {}
    assert keep.take(0, 1 << 40) is None


def test_who_is_not_wanted_any_more_sends_nothing_and_takes_no_client(stage):
    keep = ClientPool()
    stage.notes = stage.seal(FIRST, keep)

    assert stage.send(keep=keep, alone=lambda: True) == {}
    assert stage.there() == {}
    assert stage.send(keep=keep) == {"acknowledged": COUNT}  # and takes nothing from those who are
    assert stage.there() == ONCE
    keep.close()


def test_a_slice_of_which_too_many_fail_gives_the_rest_back(stage):
    """Records without a key on a compacted topic, alone in their transactions, so that each is to blame by itself."""
    compacted = f"{stage.topic}-c"
    stage.kafka.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
    dead_letters = [one._replace(key=None, topic=compacted) for one in stage.dead_letters]
    errand = replace(stage.errand(most=1), rule=CanaryRule(last=5))

    assert stage.send(errand, dead_letters) == {"failed": 5, "pending": COUNT - 5}


def test_what_a_task_says_has_the_columns_that_spark_was_told(stage):
    assert [f"{field.name}" for field in outcome_schema()] == [
        part.split()[0] for part in slice_task.OUTCOME.split(", ")
    ]
