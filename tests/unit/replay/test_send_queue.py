"""The queue of a transactional replay: rows and columns in their order, bounded by records and bytes."""

from __future__ import annotations

import pytest

from producer_core.delivery.record_batch import RecordBatch
from producer_core.replay.send_queue import SendQueue
from tests.fixtures.replays import replay_record
from tests.unit.delivery.test_record_batch import batch_of

RECORDS = [replay_record(number) for number in range(6)]
LARGE = [replay_record(number, value=b"x" * 5_000_000) for number in range(4)]


@pytest.fixture
def queue():
    return SendQueue()


def test_columns_stay_columns_until_a_row_follows(queue):
    queue.add_batch(batch_of(RECORDS[:3]))
    assert queue.has_only_columns
    assert isinstance(queue.next_columns(2), RecordBatch)

    queue.add(RECORDS[3:])

    assert not queue.has_only_columns
    assert (len(queue), list(queue)) == (4, RECORDS[2:])


def test_records_that_are_put_back_come_first(queue):
    queue.add(RECORDS[2:])
    queue.put_back(RECORDS[:2])

    assert queue.next_rows(3) == RECORDS[:3]
    assert queue.take_all() == RECORDS[3:]
    assert len(queue) == 0


def test_a_condition_removes_rows(queue):
    queue.add(RECORDS)
    queue.keep(lambda one: one in RECORDS[::2])

    assert queue.take_all() == RECORDS[::2]


def test_a_transaction_of_large_values_is_bounded_by_bytes(queue):
    queue.add_batch(batch_of(LARGE))
    assert queue.bytes == sum(one.size for one in LARGE)
    assert [len(queue.next_columns(20_000)) for _ in LARGE] == [1] * 4

    queue.add(LARGE)
    assert [len(queue.next_rows(20_000)) for _ in LARGE] == [1] * 4
    assert queue.bytes == 0


def test_the_rest_of_a_batch_is_sent_with_the_next_one(queue):
    queue.add_batch(batch_of(RECORDS[:4]))
    assert list(queue.next_columns(3)) == RECORDS[:3]
    queue.add_batch(batch_of(RECORDS[4:]))

    assert list(queue.next_columns(9)) == RECORDS[3:]
    assert not queue.has_only_columns
