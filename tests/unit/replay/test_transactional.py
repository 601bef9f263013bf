"""Transactions of whole batches: anything that is not plain continues with single records."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import delivery_of
from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.delivery.exactly_once.transactional_client import ClientStopped, TransactionFailed
from producer_core.replay.outcome import AcknowledgedBatch
from producer_core.replay.probe_outcome import ProbeOutcome
from producer_core.replay.strategy import Interrupted
from producer_core.replay.supervisor import Supervisor
from producer_core.replay.transactional import TransactionalReplay
from tests.fixtures.replays import replay_record
from tests.unit.delivery.test_record_batch import batch_of

TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
RECORDS = [replay_record(number) for number in range(6)]
IDS = [record.message_id for record in RECORDS]


class Message:
    def __init__(self, row):
        self._row = row

    def partition(self):
        return self._row % 2

    def offset(self):
        return 10 + self._row


class ScriptedClient:
    """Acknowledge everything; the first `failures` transactions fail, `rejected` rows are refused locally."""

    alive = True

    def __init__(self, failures=0, rejected=()):
        self.failures, self.rejected = failures, rejected
        self.sent = []

    def reassign(self, **_):
        pass

    def serve(self, timeout=0.0):
        pass

    def destroy(self):
        pass

    def transact_batch(self, batch, deadline):
        self.sent.append(("batch", [one.message_id for one in batch]))
        if self.failures:
            self.failures -= 1
            raise TransactionFailed(TIMED_OUT)
        reports = BatchReports(len(batch))
        for row in range(len(batch)):
            if row in self.rejected:
                reports.reject(row, TOO_LARGE)
            else:
                reports.receive(row, None, Message(row))
        return reports

    def transact(self, deliveries, deadline):
        by_id = {delivery_of(record).id: record.message_id for record in RECORDS}
        self.sent.append(("rows", [by_id[one.id] for one in deliveries]))
        return [(one, None, Message(row)) for row, one in enumerate(deliveries)], []


@pytest.fixture
def replay_with(monkeypatch):
    monkeypatch.setattr("producer_core.replay.fenced_client._REST", 0.0)

    def make(client, found=()):
        replay = TransactionalReplay(
            {"bootstrap.servers": "127.0.0.1:1"}, "op", floors={},
            supervisor=Supervisor(lambda: False, lambda _: None), most=4, client=client,
        )  # fmt: skip
        places = dict.fromkeys(found, (0, 99))
        monkeypatch.setattr(replay._client, "fence", lambda: None)
        monkeypatch.setattr(replay._topics, "search", lambda _: ProbeOutcome(places))
        return replay

    return make


def endings(outcomes):
    return [(one.message_id, one.ending) for one in outcomes]


def test_a_plain_batch_is_sent_as_columns_and_raises_the_floors(replay_with):
    client = ScriptedClient()
    replay = replay_with(client)
    assert replay.send(batch_of(RECORDS)) == []
    assert (replay.in_flight, replay.bytes) == (6, sum(record.size for record in RECORDS))

    first, second = replay.gather(0), replay.gather(0)

    assert client.sent == [("batch", IDS[:4]), ("batch", IDS[4:])]
    assert isinstance(first, AcknowledgedBatch)
    assert (first.partitions, first.offsets) == ([0, 1, 0, 1], [10, 11, 12, 13])
    assert len(second) == 2
    assert replay.floors == {"orders": {0: 12, 1: 13}}
    assert replay.in_flight == 0


def test_after_a_failure_the_missing_records_are_sent_again_in_order_as_rows(replay_with):
    client = ScriptedClient(failures=1)
    replay = replay_with(client, found=IDS[:2])
    replay.send(batch_of(RECORDS[:4]))
    replay.send(batch_of(RECORDS[4:]))

    found = replay.gather(0)
    assert endings(found) == [(one, "acknowledged") for one in IDS[:2]]
    assert replay.in_flight == 4

    assert endings(replay.gather(0)) == [(one, "acknowledged") for one in IDS[2:]]
    assert client.sent == [("batch", IDS[:4]), ("rows", IDS[2:])]


def test_an_interrupted_recovery_keeps_the_whole_batch_in_flight(replay_with, monkeypatch):
    replay = replay_with(ScriptedClient(failures=1))
    replay.send(batch_of(RECORDS[:4]))

    def stop():
        raise ClientStopped

    monkeypatch.setattr(replay._client, "fence", stop)
    with pytest.raises(Interrupted):
        replay.gather(0)

    assert replay.in_flight == 4
    assert replay.give_back() == []  # their outcome is unknown


def test_records_refused_by_the_client_fail_and_the_others_are_acknowledged(replay_with):
    replay = replay_with(ScriptedClient(rejected=(1,)))
    replay.send(batch_of(RECORDS[:3]))

    outcomes = replay.gather(0)

    assert endings(outcomes) == [(IDS[0], "acknowledged"), (IDS[1], "failed"), (IDS[2], "acknowledged")]
    assert outcomes[1].death.verdict == "not_sent"


def test_single_records_never_overtake_a_batch(replay_with):
    client = ScriptedClient()
    replay = replay_with(client)
    replay.send(batch_of(RECORDS[:2]))
    replay.send(RECORDS[2:4])
    replay.gather(0)

    assert client.sent == [("rows", IDS[:4])]


def test_unsent_batches_are_given_back(replay_with):
    replay = replay_with(ScriptedClient())
    replay.send(batch_of(RECORDS))

    assert endings(replay.give_back()) == [(one, "pending") for one in IDS]
    assert replay.in_flight == 0


def test_a_replay_ends_before_its_client_is_destroyed(replay_with):
    release, destroyed = threading.Event(), threading.Event()

    class SlowClient(ScriptedClient):
        def destroy(self):
            assert release.wait(10)
            destroyed.set()

    replay = replay_with(SlowClient())
    replay.close()
    assert not destroyed.is_set()

    release.set()
    assert destroyed.wait(10)
    replay.close()  # without a client
