"""Upstream offsets: the committable offset never passes an unsettled message, and otherwise follows immediately."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.errors import InvalidMessage
from producer_core.producer.upstream_offsets import UpstreamOffsets, UpstreamRecord, in_order
from producer_core.testing import InMemoryTransport
from tests.support import eventually

SOURCE = ("orders", 0)
NO_RETRY = RetryConfig(max_retries=0)


def make(script=None, **options):
    made = []
    producer = ReliableKafkaProducer(
        "memory:1",
        None,
        options.pop("retry", NO_RETRY),
        store=None,
        transport=InMemoryTransport.factory(made, script=script),
        **options,
    )
    return producer, made[0]


def test_no_offset_is_committable_before_the_first_is_settled():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 7)
    offsets.accepted(SOURCE, 8)
    offsets.settled(SOURCE, 8)
    assert offsets.committable() == {}


def test_the_committable_offset_is_one_after_the_contiguous_settled_offsets():
    offsets = UpstreamOffsets()
    for offset in (3, 4, 9, 12):  # compaction removed the others
        offsets.accepted(SOURCE, offset)
    for offset, position in ((4, None), (3, 5), (12, 5), (9, 13)):
        offsets.settled(SOURCE, offset)
        assert offsets.committable().get(SOURCE) == position


def test_sources_are_independent():
    offsets = UpstreamOffsets()
    offsets.accepted(("orders", 0), 0)
    offsets.settled(*offsets.accepted(("orders", 1), 5))
    assert offsets.committable() == {("orders", 1): 6}
    assert offsets.topic_partitions() == [TopicPartition("orders", 1, 6)]


def test_settling_twice_or_an_unknown_offset_has_no_effect():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 1)
    for _ in range(2):
        offsets.settled(SOURCE, 1)
    offsets.settled(SOURCE, 99)
    offsets.settled(("nobody", 0), 1)
    assert offsets.committable() == {SOURCE: 2}


def test_accepting_out_of_order_raises_an_error_with_a_fix():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 5)
    for offset in (5, 4):
        with pytest.raises(ValueError, match=r"forget\(\) first"):
            offsets.accepted(SOURCE, offset)


def test_a_revoked_partition_starts_again_and_late_reports_have_no_effect():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 5)
    offsets.accepted(SOURCE, 6)
    offsets.forget(SOURCE)
    offsets.settled(SOURCE, 6)
    assert offsets.committable() == {}

    offsets.accepted(SOURCE, 5)
    offsets.accepted(SOURCE, 6)
    offsets.settled(SOURCE, 6)
    assert offsets.committable() == {}
    assert offsets.open == 1


READINGS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 3)),  # a source, and the distance to its next offset
    max_size=60,
)


@given(READINGS, st.data())
def test_the_committable_offset_stops_exactly_at_the_first_open_message(readings, data):
    offsets, read, done = UpstreamOffsets(), {"a": [], "b": []}, set()
    for source, step in readings:
        read[source].append((read[source][-1] if read[source] else -1) + step)
        offsets.accepted(source, read[source][-1])
    everything = [(source, offset) for source, row in read.items() for offset in row]
    for source, offset in data.draw(st.permutations(everything)):
        offsets.settled(source, offset)
        done.add((source, offset))
        for name, row in read.items():
            unbroken = [at for at in row if all((name, before) in done for before in row if before <= at)]
            assert offsets.committable().get(name) == (unbroken[-1] + 1 if unbroken else None)
        assert offsets.open == len(everything) - len(done)


def test_memory_depends_only_on_open_messages():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 0)
    for offset in range(1, 5_000):
        offsets.settled(*offsets.accepted(SOURCE, offset))
    assert offsets.open == 1
    assert len(offsets._sources[SOURCE].open) == 1


def test_threads_settle_while_another_thread_reads():
    offsets = UpstreamOffsets()
    waiting = [offsets.accepted(SOURCE, offset) for offset in range(8_000)]
    threads = [
        threading.Thread(target=lambda part=part: [offsets.settled(*one) for one in waiting[part::4]])
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    for offset in range(8_000, 10_000):
        offsets.settled(*offsets.accepted(SOURCE, offset))
    for thread in threads:
        thread.join()
    assert offsets.committable() == {SOURCE: 10_000}


# with a producer


def test_a_report_settles_the_offset_of_its_record_id():
    offsets = UpstreamOffsets()
    producer, _ = make()
    with producer:
        for offset in (3, 4):
            record_id = offsets.accepted(SOURCE, offset)
            assert record_id == UpstreamRecord(SOURCE, offset)
            producer.send_message("copy", b"", record_id=record_id, on_delivery=offsets.report)
        producer.flush(5)
    assert offsets.committable() == {SOURCE: 5}


def refuses_the_second(delivery):
    return KafkaError.POLICY_VIOLATION if delivery.value == b"4" else None


def copied(offsets, producer, numbers=(3, 4, 5)):
    for offset in numbers:
        record_id = offsets.accepted(SOURCE, offset)
        producer.send_message("copy", b"%d" % offset, record_id=record_id, on_delivery=offsets.report)
    producer.flush(5)


def test_a_dead_letter_holds_its_offset_until_it_is_settled():
    offsets = UpstreamOffsets()
    producer, _ = make(refuses_the_second)
    with producer:
        copied(offsets, producer)
        assert offsets.committable() == {SOURCE: 4}
        assert list(offsets.dead) == [UpstreamRecord(SOURCE, 4)]
        assert producer.dlq.get(offsets.dead[SOURCE, 4]).value == b"4"

    offsets.settled(SOURCE, 4)
    assert offsets.committable() == {SOURCE: 6}
    assert offsets.dead == {}


def test_with_commit_a_dead_letter_does_not_hold_its_offset():
    offsets = UpstreamOffsets(dead="commit")
    producer, _ = make(refuses_the_second)
    with producer:
        copied(offsets, producer)
    assert offsets.committable() == {SOURCE: 6}


def test_with_kept_a_dead_letter_is_committed_only_once_it_is_durable():
    kept = set()
    offsets = UpstreamOffsets(dead="commit", kept=kept.__contains__)
    producer, _ = make(refuses_the_second)
    with producer:
        copied(offsets, producer)
    assert offsets.committable() == {SOURCE: 4}

    kept.update(offsets.dead.values())
    assert offsets.committable() == {SOURCE: 6}
    assert offsets.dead == {}


@pytest.mark.slow
def test_a_dead_letter_in_the_store_may_be_committed(tmp_path):
    made = []
    with ReliableKafkaProducer(
        "memory:1", None, NO_RETRY, store=tmp_path / "store.duckdb", cluster_id="memory",
        transport=InMemoryTransport.factory(made, script=refuses_the_second),
    ) as producer:  # fmt: skip
        offsets = UpstreamOffsets(
            dead="commit", kept=lambda message_id: producer.dlq.get(message_id) is not None
        )
        copied(offsets, producer)
        eventually(lambda: offsets.committable() == {SOURCE: 6})


# reports in sending order


def test_a_report_waits_for_the_reports_of_earlier_messages():
    reported, tries = [], []

    def first_fails_once(delivery):
        if delivery.value == b"0":
            tries.append(1)
            return KafkaError.REQUEST_TIMED_OUT if len(tries) == 1 else None
        return None

    producer, transport = make(first_fails_once, retry=RetryConfig(initial_delay_ms=50, jitter=False))
    send = in_order(producer.send_message, lambda report: reported.append(report.record_id))
    for number in range(4):
        send("orders", b"%d" % number, record_id=number)
    send("others", b"", record_id="other")
    producer.close()

    assert [number for number in reported if number != "other"] == [0, 1, 2, 3]
    assert [delivery.value for delivery in transport.log["orders"]][-1] in (b"0", b"3")
    assert "other" in reported


def report(number):
    return SimpleNamespace(record_id=number)


class Sent:
    """A substitute for send_message that records its calls."""

    def __init__(self):
        self.places = []

    def __call__(self, topic, value, key=None, *, on_delivery, partition=None, **options):
        if value == "invalid":
            raise InvalidMessage
        self.places.append(on_delivery)
        return None if value == "duplicate" else "id"


def test_a_message_without_a_report_holds_no_report_back():
    reported, sent = [], Sent()
    send = in_order(sent, lambda report: reported.append(report.record_id))

    with pytest.raises(InvalidMessage):
        send("orders", "invalid")
    assert send("orders", "duplicate") is None
    send("orders", 1)
    sent.places[-1](report(1))

    assert reported == [1]


def test_with_a_partition_only_that_partition_waits():
    reported, sent = [], Sent()
    send = in_order(sent, lambda report: reported.append(report.record_id))
    for number, partition in enumerate((0, 0, 1)):
        send("orders", number, partition=partition)

    sent.places[2](report(2))
    sent.places[1](report(1))
    assert reported == [2]
    sent.places[0](report(0))
    assert reported == [2, 0, 1]
    assert send._lanes == {}


def test_a_callback_that_raises_does_not_hold_back_the_next_report(caplog):
    reported, sent = [], Sent()
    send = in_order(sent, lambda report: reported.append(report.record_id) or 1 / 0)
    for number in range(2):
        send("orders", number)
    for number in range(2):
        sent.places[number](report(number))
    assert reported == [0, 1]
    assert "delivery callback failed" in caplog.text


@given(st.permutations(range(12)), st.integers(1, 4))
def test_reports_from_many_threads_are_delivered_in_order(order, workers):
    reported, sent = [], Sent()
    send = in_order(sent, lambda report: reported.append(report.record_id))
    for number in range(12):
        send("orders", number)
    threads = [
        threading.Thread(
            target=lambda part=part: [sent.places[number](report(number)) for number in order[part::workers]]
        )
        for part in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reported == list(range(12))
