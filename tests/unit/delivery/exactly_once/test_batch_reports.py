"""The delivery reports of a batch, and a client that turns them into the outcome of a transaction."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient, TransactionFailed
from producer_core.messages import parse_id
from tests.fixtures.replays import replay_record
from tests.unit.delivery.test_record_batch import batch_of

TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
RECORDS = [replay_record(number) for number in range(4)]


class Message:
    def __init__(self, offset):
        self._offset = offset

    def partition(self):
        return 1

    def offset(self):
        return self._offset


class ScriptedProducer:
    """Report each message with the scripted error, or at offset 100 and up; raise the errors in `refused` and `commit`."""

    def __init__(self, errors=None, *, refused=None, offset=100, commit=None):
        self.errors, self.refused, self.offset = errors or {}, refused or {}, offset
        self.commit = commit
        self.calls, self.due = [], []

    def begin_transaction(self):
        self.calls.append("begin")

    def produce(self, topic, value, key, partition, on_report, *_):
        row = len(self.calls) - 1
        self.calls.append((topic, key))
        if row in self.refused:
            raise KafkaException(self.refused[row])
        self.due.append((on_report, row))

    def poll(self, timeout):
        for on_report, row in self.due:
            error = self.errors.get(row)
            on_report(error, Message(None if self.offset is None else self.offset + row))
        self.due.clear()

    def commit_transaction(self, timeout):
        self.calls.append("commit")
        if self.commit is not None:
            raise KafkaException(self.commit)


@pytest.fixture
def transact(monkeypatch):
    def run(producer):
        client = TransactionalClient.__new__(TransactionalClient)
        client._producer, client._fatal, client._stopping = producer, None, lambda: False
        client._batch_reports = BatchReports(0)
        monkeypatch.setattr("producer_core.delivery.exactly_once.transactional_client._COLLECT_S", 0.0)
        return client.transact_batch(batch_of(RECORDS), time.monotonic() + 5)

    return run


def test_a_batch_commits_after_every_report_and_has_each_position(transact):
    producer = ScriptedProducer()
    reports = transact(producer)

    assert producer.calls[-1] == "commit"
    assert (reports.partitions, reports.offsets) == ([1] * 4, [100, 101, 102, 103])


def test_a_failed_report_prevents_the_commit(transact):
    producer = ScriptedProducer({2: TIMED_OUT})
    with pytest.raises(TransactionFailed) as failed:
        transact(producer)

    assert "commit" not in producer.calls
    assert not failed.value.may_have_committed
    assert [(one.id, error) for one, error, _ in failed.value.reports] == [
        (parse_id(record.message_id), TIMED_OUT if row == 2 else None) for row, record in enumerate(RECORDS)
    ]


def test_an_acknowledgement_without_an_offset_prevents_the_commit(transact):
    producer = ScriptedProducer(offset=None)
    with pytest.raises(TransactionFailed, match="without its offset"):
        transact(producer)
    assert "commit" not in producer.calls


@pytest.mark.parametrize("refused", [{}, {1: TOO_LARGE}])
def test_a_commit_without_a_response_may_have_happened(transact, refused):
    with pytest.raises(TransactionFailed) as failed:
        transact(ScriptedProducer(refused=refused, commit=KafkaError(KafkaError._TIMED_OUT)))

    assert failed.value.may_have_committed
    assert len(failed.value.reports) == len(RECORDS) - len(refused)


def test_the_others_commit_if_the_client_refuses_a_record(transact):
    reports = transact(ScriptedProducer(refused={1: TOO_LARGE}))

    assert reports.rejected == {1: TOO_LARGE}
    assert reports.offsets == [100, None, 102, 103]


def test_a_missing_report_is_not_an_acknowledgement():
    reports = BatchReports(3)
    reports.receive(0, None, Message(7))

    assert (reports.missing, reports.lacks_offset) == (2, False)
    assert [one.id for one, _, _ in reports.of(batch_of(RECORDS[:3]))] == [parse_id(RECORDS[0].message_id)]


def test_the_callbacks_of_a_client_serve_its_next_batch():
    reports = BatchReports(2)
    first, second = reports.callbacks()
    first(None, Message(7))
    second(None, Message(8))
    earlier = reports.offsets
    reports.begin(3)

    assert reports.callbacks()[:2] == [first, second]
    second(None, Message(9))
    assert (earlier, reports.offsets, reports.missing) == ([7, 8], [None, 9, None], 2)


def test_a_batch_does_not_begin_while_reports_of_the_previous_one_are_missing():
    reports = BatchReports(2)
    reports.callbacks()[0](None, Message(7))

    with pytest.raises(AssertionError, match="missing"):
        reports.begin(2)
