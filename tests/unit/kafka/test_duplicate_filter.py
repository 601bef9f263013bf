"""The duplicate filter drops second copies, and never a first one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.kafka.duplicate_filter import Seen, unique
from producer_core.messages import ID_HEADER, id_bytes

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


@dataclass(frozen=True)
class Record:
    """A record with the methods of confluent_kafka's Message."""

    id: bytes | None
    position: int = 0
    partition_number: int = 0
    topic_name: str = "orders"
    extra_headers: list = field(default_factory=list)

    def headers(self):
        return [*self.extra_headers, *([] if self.id is None else [(ID_HEADER, self.id)])]

    def topic(self):
        return self.topic_name

    def partition(self):
        return self.partition_number

    def offset(self):
        return self.position


def log(*numbers, session=A, start=0, partition_number=0):
    """Return records with these sequences at increasing offsets."""
    return [
        Record(id_bytes(session, number), start + position, partition_number)
        for position, number in enumerate(numbers)
    ]


def numbers(records):
    return [int.from_bytes(record.id[16:]) for record in records]


def test_a_duplicate_is_dropped_and_the_order_stays():
    seen = Seen()
    assert numbers(unique(log(0, 1, 2, 1, 0, 3), seen)) == [0, 1, 2, 3]
    assert (seen.dropped, seen.undecided) == (2, 0)


def test_equal_sequences_of_two_producers_are_different_records():
    assert len(list(unique([*log(0, 1), *log(0, 1, session=B, start=2)]))) == 4


def test_messages_without_an_id_pass_through():
    seen = Seen()
    messages = [
        Record(None),
        Record(b"too short"),
        None,
        SimpleNamespace(),
        Record(None, extra_headers=[("a", None)]),
    ]
    assert list(unique(messages, seen)) == messages
    assert seen.without_id == 5


def test_messages_of_kafka_python_and_objects_with_only_headers_are_supported():
    id = id_bytes(A, 1)
    message = SimpleNamespace(headers=[(ID_HEADER, id)], topic="orders", partition=0, offset=4)
    only_headers = SimpleNamespace(headers=lambda: [(ID_HEADER, id)])
    assert list(
        unique([message, SimpleNamespace(**{**vars(message), "offset": 5}), only_headers, only_headers])
    ) == [message, only_headers]


def test_partitions_are_separate_unless_the_filter_is_by_topic():
    duplicates = [Record(id_bytes(A, 1), 0, 0), Record(id_bytes(A, 1), 0, 1)]
    assert list(unique(duplicates)) == duplicates
    assert list(unique(duplicates, Seen(by="topic"))) == duplicates[:1]


def test_a_contiguous_range_is_remembered_regardless_of_its_length():
    seen = Seen(window=10)
    assert numbers(unique(log(*range(1000), 0, 500, 999), seen)) == list(range(1000))
    assert (seen.dropped, seen.undecided) == (3, 0)


def test_a_contiguous_range_restarts_after_a_gap():
    """A journal that restarts skips sequences once."""
    seen = Seen(window=10)
    sequences = [*range(50), *range(1000, 1100)]
    assert numbers(unique(log(*sequences, 1000, 1050), seen)) == sequences
    assert seen.dropped == 2


def test_an_undecided_record_is_passed_on_and_reported_once():
    texts = []
    seen = Seen(window=5, on_undecided=texts.append)
    sequences = range(0, 90, 3)  # the others went to other partitions
    records = log(*sequences, 0, 3)
    assert numbers(unique(records, seen)) == [*sequences, 0, 3]
    assert seen.undecided == 2
    assert len(texts) == 1
    assert "orders, partition 0" in texts[0]


def test_without_a_callback_an_undecided_record_is_logged(caplog):
    list(unique(log(*range(0, 90, 3), 0), Seen(window=5)))
    assert "duplicate check undecided: reason=" in caplog.text


def test_a_record_read_again_at_its_offset_is_not_a_duplicate():
    records = log(0, 3, 6, 3, 9)
    seen = Seen()
    assert numbers(unique(records, seen)) == [0, 3, 6, 9]
    # read again from the start: the application may not have processed the records
    assert numbers(unique(records, seen)) == [0, 3, 6, 9]


def test_a_restored_filter_has_the_saved_state():
    seen, after = Seen(), Seen()
    list(unique([*log(0, 1, 2), *log(7, 9, session=B, start=3)], seen))

    after.restore(seen.save("orders", 0), "orders", 0)

    assert numbers(unique([*log(1, 3, start=5), *log(9, 8, session=B, start=7)], after)) == [3, 8]
    seen.forget("orders", 0)
    assert numbers(unique(log(0), seen)) == [0]
    assert Seen().save("orders", 0) == seen.save("others", 0)


@pytest.mark.parametrize("data", [b"", b"nonsense", Seen().save("a")[:-3]], ids=["empty", "other", "cut off"])
def test_restoring_invalid_data_is_an_error(data):
    with pytest.raises(ValueError, match=r"not returned by Seen\.save"):
        Seen().restore(data, "orders", 0)


def test_a_window_of_zero_is_an_error():
    with pytest.raises(ValueError, match="at least 1"):
        Seen(window=0)


IDS = st.tuples(st.sampled_from([A, B]), st.integers(0, 12), st.integers(0, 1))
# each step is a record, a seek of the consumer, or its restart
READ_STEPS = st.lists(st.one_of(IDS, st.just("seek"), st.just("restart")), max_size=80)


def read(steps, window, data, by="partition"):
    """Yield every record read, and whether the filter passed it on."""
    seen, written, position = Seen(window=window, by=by, on_undecided=lambda text: None), [], 0
    for step in steps:
        if step == "seek":
            position = data.draw(st.integers(0, len(written)))
        elif step == "restart":
            restored = Seen(window=window, by=by, on_undecided=lambda text: None)
            for scope in [("orders", None)] if by == "topic" else [("orders", 0), ("orders", 1)]:
                restored.restore(seen.save(*scope), *scope)
            seen = restored
        else:
            session, number, partition = step
            written.append(Record(id_bytes(session, number), len(written), partition))
        while position < len(written):
            record = written[position]
            yield record, seen.first(record)
            position += 1


@given(READ_STEPS, st.integers(1, 6), st.sampled_from(["partition", "topic"]), st.data())
def test_a_first_copy_is_never_dropped(steps, window, by, data):
    first_positions = {}
    for record, yielded in read(steps, window, data, by):
        scope = None if by == "topic" else record.partition_number
        first_positions.setdefault((scope, record.id), record.position)
        if first_positions[scope, record.id] == record.position:
            assert yielded


@pytest.mark.slow
@given(st.lists(IDS, max_size=80), st.integers(1, 6))
def test_a_duplicate_within_the_window_is_always_dropped(records, window):
    seen = Seen(window=window, on_undecided=lambda text: None)
    passed = {0: [], 1: []}  # yielded ids by partition
    for position, (session, number, partition) in enumerate(records):
        id = id_bytes(session, number)
        recent = passed[partition][-window:]
        yielded = seen.first(Record(id, position, partition))
        assert not (yielded and id in recent)
        if yielded:
            passed[partition].append(id)
        assert len(seen._memories["orders", partition].window) <= window


@given(st.integers(1, 5), st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=20))
def test_no_record_of_a_contiguous_range_is_passed_on_twice(width, order, duplicates):
    """The records are shuffled within the window, and duplicates come at any later time."""
    shuffled = sorted(range(12), key=lambda number: (number // width, order.index(number)))
    shuffled.sort(key=lambda number: number != 0)  # a range starts with the first sequence seen
    seen = Seen(window=12)
    assert sorted(numbers(unique(log(*shuffled, *duplicates), seen))) == list(range(12))
    assert seen.undecided == 0


@pytest.mark.slow
def test_the_filter_reads_the_records_of_a_producer():
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        with ReliableKafkaProducer(broker.bootstrap_servers, store=None) as producer:
            for number in range(10):
                producer.send_message("orders", {"n": number})
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        read = []
        while len(read) < 10:
            read += consumer.consume(10, timeout=1)
        consumer.close()
    assert list(unique([*read, *read])) == [*read, *read]  # the same offsets, so read again
    duplicates = [Record(dict(message.headers())[ID_HEADER], 10 + message.offset()) for message in read]
    assert list(unique([*read, *duplicates])) == read
