"""A reader drops second copies, and never a first one."""

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
    """What confluent_kafka's Message says."""

    raw: bytes | None
    at: int = 0
    on: int = 0
    named: str = "orders"
    more: list = field(default_factory=list)

    def headers(self):
        return [*self.more, *([] if self.raw is None else [(ID_HEADER, self.raw)])]

    def topic(self):
        return self.named

    def partition(self):
        return self.on

    def offset(self):
        return self.at


def log(*numbers, session=A, start=0, on=0):
    """Records with these sequences, at rising offsets."""
    return [Record(id_bytes(session, number), start + at, on) for at, number in enumerate(numbers)]


def numbers(records):
    return [int.from_bytes(record.raw[16:]) for record in records]


def test_a_second_copy_is_dropped_and_the_order_stays():
    seen = Seen()
    assert numbers(unique(log(0, 1, 2, 1, 0, 3), seen)) == [0, 1, 2, 3]
    assert (seen.dropped, seen.undecided) == (2, 0)


def test_two_producers_with_equal_sequences_are_two():
    assert len(list(unique([*log(0, 1), *log(0, 1, session=B, start=2)]))) == 4


def test_what_has_no_id_passes_through():
    seen = Seen()
    given = [Record(None), Record(b"too short"), None, SimpleNamespace(), Record(None, more=[("a", None)])]
    assert list(unique(given, seen)) == given
    assert seen.without_id == 5


def test_a_message_of_kafka_python_and_one_that_has_only_headers_are_read_too():
    raw = id_bytes(A, 1)
    ours = SimpleNamespace(headers=[(ID_HEADER, raw)], topic="orders", partition=0, offset=4)
    bare = SimpleNamespace(headers=lambda: [(ID_HEADER, raw)])
    assert list(unique([ours, SimpleNamespace(**{**vars(ours), "offset": 5}), bare, bare])) == [ours, bare]


def test_partitions_are_told_apart_unless_the_topic_is_read_as_one():
    copies = [Record(id_bytes(A, 1), 0, 0), Record(id_bytes(A, 1), 0, 1)]
    assert list(unique(copies)) == copies
    assert list(unique(copies, Seen(by="topic"))) == copies[:1]


def test_an_unbroken_row_is_remembered_however_long_it_is():
    seen = Seen(window=10)
    assert numbers(unique(log(*range(1000), 0, 500, 999), seen)) == list(range(1000))
    assert (seen.dropped, seen.undecided) == (3, 0)


def test_a_row_goes_on_after_sequences_were_left_out():
    """A journal that restarts leaves some out, once."""
    seen = Seen(window=10)
    row = [*range(50), *range(1000, 1100)]
    assert numbers(unique(log(*row, 1000, 1050), seen)) == row
    assert seen.dropped == 2


def test_what_is_too_far_apart_is_passed_on_and_said_once():
    told = []
    seen = Seen(window=5, on_undecided=told.append)
    spread = range(0, 90, 3)  # the others went to other partitions
    records = log(*spread, 0, 3)
    assert numbers(unique(records, seen)) == [*spread, 0, 3]
    assert seen.undecided == 2
    assert len(told) == 1
    assert "orders, partition 0" in told[0]


def test_it_is_said_in_the_log_where_nobody_listens(caplog):
    list(unique(log(*range(0, 90, 3), 0), Seen(window=5)))
    assert "a copy cannot be told" in caplog.text


def test_a_record_read_again_at_its_offset_is_the_same_copy():
    records = log(0, 3, 6, 3, 9)
    seen = Seen()
    assert numbers(unique(records, seen)) == [0, 3, 6, 9]
    assert numbers(unique(records, seen)) == [
        0,
        3,
        6,
        9,
    ]  # from the start again: its owner may not have used them


def test_after_a_restart_it_knows_what_it_knew():
    seen, after = Seen(), Seen()
    list(unique([*log(0, 1, 2), *log(7, 9, session=B, start=3)], seen))

    after.restore(seen.save("orders", 0), "orders", 0)

    assert numbers(unique([*log(1, 3, start=5), *log(9, 8, session=B, start=7)], after)) == [3, 8]
    seen.forget("orders", 0)
    assert numbers(unique(log(0), seen)) == [0]
    assert Seen().save("orders", 0) == seen.save("others", 0)


@pytest.mark.parametrize("data", [b"", b"nonsense", Seen().save("a")[:-3]], ids=["empty", "other", "cut off"])
def test_a_state_that_is_none_is_an_error(data):
    with pytest.raises(ValueError, match="nothing that"):
        Seen().restore(data, "orders", 0)


def test_a_window_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="below 1"):
        Seen(window=0)


IDS = st.tuples(st.sampled_from([A, B]), st.integers(0, 12), st.integers(0, 1))
READINGS = st.lists(
    st.one_of(IDS, st.just("seek"), st.just("restart")), max_size=80
)  # a record, or the reader goes back, or is started anew


def read(steps, window, data, by="partition"):
    """Every record, whether it was yielded, and whether it was at this offset before."""
    seen, written, position = Seen(window=window, by=by, on_undecided=lambda text: None), [], 0
    for step in steps:
        if step == "seek":
            position = data.draw(st.integers(0, len(written)))
        elif step == "restart":
            fresh = Seen(window=window, by=by, on_undecided=lambda text: None)
            for lane in [("orders", None)] if by == "topic" else [("orders", 0), ("orders", 1)]:
                fresh.restore(seen.save(*lane), *lane)
            seen = fresh
        else:
            session, number, partition = step
            written.append(Record(id_bytes(session, number), len(written), partition))
        while position < len(written):
            record = written[position]
            yield record, seen.first(record)
            position += 1


@given(READINGS, st.integers(1, 6), st.sampled_from(["partition", "topic"]), st.data())
def test_a_first_copy_is_never_dropped(steps, window, by, data):
    firsts = {}
    for record, yielded in read(steps, window, data, by):
        lane = None if by == "topic" else record.on
        firsts.setdefault((lane, record.raw), record.at)
        if firsts[lane, record.raw] == record.at:
            assert yielded


@given(st.lists(IDS, max_size=80), st.integers(1, 6))
def test_a_second_copy_within_the_window_is_always_dropped(records, window):
    seen = Seen(window=window, on_undecided=lambda text: None)
    passed = {0: [], 1: []}  # what was yielded, by partition
    for at, (session, number, partition) in enumerate(records):
        raw = id_bytes(session, number)
        lately = passed[partition][-window:]
        yielded = seen.first(Record(raw, at, partition))
        assert not (yielded and raw in lately)
        if yielded:
            passed[partition].append(raw)
        assert len(seen._lanes["orders", partition].window) <= window


@given(st.integers(1, 5), st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=20))
def test_nothing_of_an_unbroken_row_comes_twice(width, order, copies):
    """However its records are shuffled within the window, and however long ago."""
    shuffled = sorted(range(12), key=lambda number: (number // width, order.index(number)))
    shuffled.sort(key=lambda number: number != 0)  # a row begins with the first sequence seen
    seen = Seen(window=12)
    assert sorted(numbers(unique(log(*shuffled, *copies), seen))) == list(range(12))
    assert seen.undecided == 0


def test_it_reads_what_a_producer_wrote():
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
    assert list(unique([*read, *read])) == [*read, *read]  # the same offsets: read again
    copies = [Record(dict(message.headers())[ID_HEADER], 10 + message.offset()) for message in read]
    assert list(unique([*read, *copies])) == read
