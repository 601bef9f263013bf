"""A batch of replay records as columns: it sends the same records as the rows."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from producer_core.delivery.dead_letter import ReplayRecord, delivery_of
from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq.codec import read_headers, write_headers
from producer_core.messages import ORIGINAL_TIMESTAMP
from tests.fixtures.replays import replay_record

VARIED = [
    replay_record(0),
    replay_record(1, key=None, value=None, topic="payments"),
    replay_record(2, partition=3, timestamp_ms=1_700_000_000_123),
    replay_record(3, headers=(("trace", b"\x00\xff"), ("empty", None)), accepted_at=1_790_000_000.5729),
    replay_record(4, headers=((ORIGINAL_TIMESTAMP, b"17"),), timestamp_ms=0),
]


def batch_of(records: list[ReplayRecord]) -> RecordBatch:
    columns = dict(zip(ReplayRecord._fields, map(list, zip(*records, strict=True)), strict=True))
    columns["headers"] = [write_headers(one) if one else None for one in columns["headers"]]
    kinds = {"key": pa.binary(), "value": pa.binary(), "headers": pa.string(), "partition": pa.int32(),
             "timestamp_ms": pa.int64()}  # fmt: skip
    table = pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})
    table = table.append_column("size", pa.array([one.size for one in records], pa.int64()))
    return RecordBatch(table, read_headers)


def sent_as_rows(records: list[ReplayRecord]) -> list[tuple[object, ...]]:
    deliveries = map(delivery_of, records)
    return [(one.topic, one.value, one.key, one.partition, one.record_headers) for one in deliveries]


def test_a_batch_sends_the_same_records_as_its_rows():
    assert list(batch_of(VARIED).produce_rows()) == sent_as_rows(VARIED)
    assert list(batch_of(VARIED[:2]).produce_rows()) == sent_as_rows(VARIED[:2])


def test_a_batch_sends_the_ids_of_several_sessions():
    ids = [
        f"{session}-{number}"
        for number in (0, 17, 2**64 - 1)
        for session in (uuid.UUID(int=1), uuid.UUID(int=2**127))
    ]
    records = [replay_record(0)._replace(message_id=one) for one in [*ids, *sorted(ids)]]

    assert list(batch_of(records).produce_rows()) == sent_as_rows(records)


def test_a_text_that_is_not_an_id_is_not_sent():
    records = [replay_record(0), replay_record(0)._replace(message_id=replay_record(0).message_id + "x")]

    with pytest.raises(ValueError, match="invalid literal"):
        list(batch_of(records).produce_rows())


def test_a_batch_gives_its_records_back():
    batch = batch_of(VARIED)

    assert list(batch) == VARIED
    assert batch[3] == VARIED[3]
    assert list(batch[1:3]) == VARIED[1:3]
    assert batch.topics == {"orders", "payments"}
    assert batch.size == sum(one.size for one in VARIED)


def test_a_batch_with_a_doubtful_record_is_not_safe():
    assert batch_of(VARIED).is_safe
    assert not batch_of([*VARIED, replay_record(5, verdict="possibly_persisted")]).is_safe


@pytest.mark.parametrize(
    ("count", "max_bytes", "taken"), [(9, 10**6, 4), (2, 10**6, 2), (9, 25, 2), (9, 1, 1)]
)
def test_the_first_records_stay_within_both_limits(count, max_bytes, taken):
    records = [replay_record(number, key=b"", value=b"x" * 10) for number in range(4)]

    assert list(batch_of(records).first(count, max_bytes)) == records[:taken]
