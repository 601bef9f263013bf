"""What is safe to commit upstream: never past a message that is not settled, and up to it at once."""

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


def test_nothing_is_committable_before_the_first_is_settled():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 7)
    offsets.accepted(SOURCE, 8)
    offsets.settled(SOURCE, 8)
    assert offsets.committable() == {}


def test_what_is_committed_is_one_after_the_last_of_an_unbroken_row():
    offsets = UpstreamOffsets()
    for offset in (3, 4, 9, 12):  # compaction took the others
        offsets.accepted(SOURCE, offset)
    for offset, position in ((4, None), (3, 5), (12, 5), (9, 13)):
        offsets.settled(SOURCE, offset)
        assert offsets.committable().get(SOURCE) == position


def test_sources_do_not_wait_for_each_other():
    offsets = UpstreamOffsets()
    offsets.accepted(("orders", 0), 0)
    offsets.settled(*offsets.accepted(("orders", 1), 5))
    assert offsets.committable() == {("orders", 1): 6}
    assert offsets.topic_partitions() == [TopicPartition("orders", 1, 6)]


def test_settling_twice_or_what_is_not_known_changes_nothing():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 1)
    for _ in range(2):
        offsets.settled(SOURCE, 1)
    offsets.settled(SOURCE, 99)
    offsets.settled(("nobody", 0), 1)
    assert offsets.committable() == {SOURCE: 2}


def test_reading_out_of_order_is_an_error_that_says_what_to_do():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 5)
    for offset in (5, 4):
        with pytest.raises(ValueError, match=r"forget\(\) first"):
            offsets.accepted(SOURCE, offset)


def test_a_partition_that_was_revoked_begins_anew_and_late_reports_do_no_harm():
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
    st.tuples(st.sampled_from("ab"), st.integers(1, 3)),  # a source, and how far its next offset is
    max_size=60,
)


@given(READINGS, st.data())
def test_never_past_an_open_message_and_never_short_of_a_settled_row(readings, data):
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


def test_memory_is_what_is_open_however_much_is_settled_behind_it():
    offsets = UpstreamOffsets()
    offsets.accepted(SOURCE, 0)
    for offset in range(1, 5_000):
        offsets.settled(*offsets.accepted(SOURCE, offset))
    assert offsets.open == 1
    assert len(offsets._sources[SOURCE].open) == 1


def test_threads_settle_while_another_reads_on():
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


def test_a_report_settles_the_offset_that_its_record_id_names():
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


def test_a_dead_letter_holds_its_offset_until_somebody_has_dealt_with_it():
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


def test_where_the_dead_letter_is_enough_the_offsets_go_on():
    offsets = UpstreamOffsets(dead="commit")
    producer, _ = make(refuses_the_second)
    with producer:
        copied(offsets, producer)
    assert offsets.committable() == {SOURCE: 6}


def test_a_dead_letter_is_enough_only_once_it_is_kept():
    kept = set()
    offsets = UpstreamOffsets(dead="commit", kept=kept.__contains__)
    producer, _ = make(refuses_the_second)
    with producer:
        copied(offsets, producer)
    assert offsets.committable() == {SOURCE: 4}

    kept.update(offsets.dead.values())
    assert offsets.committable() == {SOURCE: 6}
    assert offsets.dead == {}


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


# reports in the order of sending


def test_a_report_waits_for_the_reports_of_what_was_sent_before():
    heard, tries = [], []

    def first_fails_once(delivery):
        if delivery.value == b"0":
            tries.append(1)
            return KafkaError.REQUEST_TIMED_OUT if len(tries) == 1 else None
        return None

    producer, transport = make(first_fails_once, retry=RetryConfig(initial_delay_ms=50, jitter=False))
    send = in_order(producer.send_message, lambda report: heard.append(report.record_id))
    for number in range(4):
        send("orders", b"%d" % number, record_id=number)
    send("others", b"", record_id="other")
    producer.close()

    assert [number for number in heard if number != "other"] == [0, 1, 2, 3]
    assert [delivery.value for delivery in transport.log["orders"]][-1] in (b"0", b"3")
    assert "other" in heard


def report(number):
    return SimpleNamespace(record_id=number)


class Sent:
    """Stands for send_message: keeps what it was called with."""

    def __init__(self):
        self.places = []

    def __call__(self, topic, value, key=None, *, on_delivery, partition=None, **options):
        if value == "invalid":
            raise InvalidMessage
        self.places.append(on_delivery)
        return None if value == "duplicate" else "id"


def test_what_no_report_will_come_for_holds_nobody_back():
    heard, sent = [], Sent()
    send = in_order(sent, lambda report: heard.append(report.record_id))

    with pytest.raises(InvalidMessage):
        send("orders", "invalid")
    assert send("orders", "duplicate") is None
    send("orders", 1)
    sent.places[-1](report(1))

    assert heard == [1]


def test_with_a_partition_given_only_that_partition_waits():
    heard, sent = [], Sent()
    send = in_order(sent, lambda report: heard.append(report.record_id))
    for number, partition in enumerate((0, 0, 1)):
        send("orders", number, partition=partition)

    sent.places[2](report(2))
    sent.places[1](report(1))
    assert heard == [2]
    sent.places[0](report(0))
    assert heard == [2, 0, 1]
    assert send._lanes == {}


def test_a_callback_that_raises_does_not_keep_the_next_report_back(caplog):
    heard, sent = [], Sent()
    send = in_order(sent, lambda report: heard.append(report.record_id) or 1 / 0)
    for number in range(2):
        send("orders", number)
    for number in range(2):
        sent.places[number](report(number))
    assert heard == [0, 1]
    assert "delivery callback failed" in caplog.text


@given(st.permutations(range(12)), st.integers(1, 4))
def test_reports_that_come_from_many_threads_in_any_order_are_passed_on_in_order(order, workers):
    heard, sent = [], Sent()
    send = in_order(sent, lambda report: heard.append(report.record_id))
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
    assert heard == list(range(12))
