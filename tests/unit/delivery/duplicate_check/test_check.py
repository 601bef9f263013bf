"""The duplicate check: which gaps are read after the epoch rose, and which records count as copies."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.duplicate_check.check import DuplicateCheck
from producer_core.delivery.duplicate_check.gap_reader import GapReadResult
from producer_core.delivery.duplicate_check.offset_gaps import OffsetGaps
from producer_core.events import Acknowledged, AttemptFailed
from producer_core.messages import id_bytes, id_text
from producer_core.metrics.ack_batch import Acknowledgements
from tests.support import eventually

SESSION = uuid.uuid4()
PATIENCE = 20


def acknowledged(*places, topic="orders"):
    """Return acknowledgements for tuples of partition, offset and sequence."""
    rows = [
        Acknowledged(topic, partition, offset, 0.01, 10, 1, seq, id_bytes(SESSION, seq))
        for partition, offset, seq in places
    ]
    return Acknowledgements.of(rows)


def batch_at(partition, offset, seq, count):
    return [(partition, offset + at, seq + at) for at in range(count)]


def eos(epoch, producer_id=7):
    return {"eos": {"producer_id": producer_id, "producer_epoch": epoch}}


class Bench:
    """Runs a check against a log in memory, which maps partitions to the ids at their offsets."""

    def __init__(self, log=None, *, readable=True):
        self.log, self.readable = log or {}, readable
        self.in_flight, self.counted, self.reads = [], Counter(), []
        self.check = DuplicateCheck(
            self.read,
            in_flight=lambda: list(self.in_flight),
            counted=lambda topic: self.counted.update([topic]),
        )

    def read(self, gaps, timeout):
        self.reads.append(gaps)
        found = GapReadResult()
        for each in gaps:
            for gap in each.gaps:
                end = max(self.log.get(each.partition, {0: None})) + 1 if gap.is_tail else gap.end
                offsets = range(gap.start or 0, end)
                if not self.readable:
                    found.unread[each.where] = found.unread.get(each.where, 0) + len(offsets)
                    continue
                here = self.log.get(each.partition, {})
                found.records += [(each.where, offset, here[offset]) for offset in offsets if offset in here]
        return found

    def set_in_flight(self, *seqs, topic="orders"):
        self.in_flight = [Delivery(id_bytes(SESSION, seq), seq, topic, None, b"") for seq in seqs]

    def fail_in_flight(self, seq):
        """Let the epoch rise while the message is in flight, and fail the message ambiguously."""
        self.set_in_flight(seq)
        self.next_statistics(1)
        self.set_in_flight()
        self.check.attempt_failed(failed(seq))

    def find(self, offset, seq):
        """Report that a probe found the message."""
        self.check.acknowledged([Acknowledged("orders", 0, offset, 0.0, 10, 1, seq, id_bytes(SESSION, seq))])

    def next_statistics(self, epoch):
        self.check.client_statistics(eos(epoch))
        assert self.check.wait(PATIENCE)


@pytest.fixture
def log_with_copies():
    """Return a log of messages 0 to 2: 1 and 2 were written at 11 and 12, and again and acknowledged at 13 and 14."""
    return {
        0: {offset: id_bytes(SESSION, seq) for offset, seq in [(10, 0), (11, 1), (12, 2), (13, 1), (14, 2)]}
    }


def warm_up(bench):
    bench.check.acknowledged(acknowledged((0, 10, 0)))
    for _ in range(5):  # until the gap before the first record is dropped
        bench.next_statistics(0)


def test_each_message_of_a_batch_written_twice_after_an_epoch_rise_is_counted(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)

    bench.set_in_flight(1, 2)
    bench.next_statistics(1)
    assert bench.counted == {}, "the messages are not acknowledged yet"
    bench.set_in_flight()
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 2}


def test_copies_acknowledged_before_the_rise_is_detected_are_counted(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 2}


def test_without_an_epoch_rise_no_gap_is_read(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    for _ in range(9):
        bench.next_statistics(0)
    bench.next_statistics(1)

    assert (bench.reads, bench.counted) == ([], {})


def test_records_of_other_producers_in_a_gap_are_not_copies():
    foreign_id = id_bytes(uuid.uuid4(), 1)
    bench = Bench({0: {11: foreign_id, 12: foreign_id}})
    warm_up(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.next_statistics(1)

    assert (len(bench.reads), bench.counted) == (1, {})


def test_unreadable_offsets_count_up_to_the_records_acknowledged_after_the_gap(caplog):
    bench = Bench(readable=False)
    warm_up(bench)

    bench.check.acknowledged(acknowledged((0, 500, 1), (0, 501, 2)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 2}
    assert "could not be checked" in caplog.text and "written twice" not in caplog.text


def test_a_copy_that_a_failed_attempt_accounts_for_is_not_counted_again(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)
    bench.check.attempt_failed(
        AttemptFailed(
            id_text(id_bytes(SESSION, 1)), "orders", "_MSG_TIMED_OUT", "timed_out", "", 1, 0.1, True, 0.0
        )
    )

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 1}


def test_a_copy_before_the_first_acknowledgement_of_a_partition_is_counted():
    """Both records of the message, which a probe found, precede the first acknowledgement of the partition."""
    log = {0: {0: id_bytes(SESSION, 8), 1: id_bytes(SESSION, 8), 2: id_bytes(SESSION, 90)}}
    bench = Bench(log)
    bench.check.attempt_failed(failed(8))
    bench.check.acknowledged(acknowledged((0, 2, 90)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 1}


def test_an_acknowledgement_without_an_offset_accounts_for_a_record_in_the_gap(log_with_copies):
    bench = Bench({0: {11: id_bytes(SESSION, 1), 12: id_bytes(SESSION, 2)}})
    warm_up(bench)

    bench.check.acknowledged(acknowledged((0, None, 1), (0, None, 2), (0, 13, 3)))
    bench.next_statistics(1)

    assert bench.counted == {}


def test_records_of_an_earlier_process_with_the_same_session_are_not_copies():
    bench = Bench(
        {0: {offset: id_bytes(SESSION, offset) for offset in range(50)} | {50: id_bytes(SESSION, 90)}}
    )

    bench.check.acknowledged(acknowledged((0, 51, 90)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 1}, "its first copy, and none of the fifty earlier records"


def test_stop_counts_copies_before_the_next_statistics(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)

    bench.check.attempt_failed(
        AttemptFailed(
            id_text(id_bytes(SESSION, 9)), "other", "INVALID_RECORD", "refused", "", 1, None, False, 0.0
        )
    )
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.check.stop()

    assert bench.counted == {"orders": 2}


def test_a_silent_broker_delays_stop_for_its_timeout_at_most(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)
    answered, read = threading.Event(), bench.read

    def silent(gaps, timeout):
        assert answered.wait(PATIENCE)
        return read(gaps, timeout)

    bench.check._read = silent
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.check.client_statistics(eos(1))
    eventually(lambda: bench.check._reading)
    bench.check.stop(timeout=0.05)
    counted = dict(bench.counted)
    answered.set()
    bench.check._thread.join(PATIENCE)

    assert counted == {"orders": 2}
    assert bench.counted == counted  # the late result is not counted again


def failed(seq, topic="orders"):
    return AttemptFailed(
        id_text(id_bytes(SESSION, seq)), topic, "_MSG_TIMED_OUT", "late", "", 1, None, True, 0.0
    )


@pytest.mark.parametrize("seconds_until_close", [0, 100])
def test_a_copy_after_the_last_acknowledgement_of_a_partition_is_counted(
    log_with_copies, seconds_until_close
):
    """The message was sent in two epochs and its last response was lost; no record follows in the partition."""
    log_with_copies[0] |= {15: id_bytes(SESSION, 5), 16: id_bytes(SESSION, 5)}
    bench = Bench(log_with_copies)
    warm_up(bench)
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.fail_in_flight(5)
    for _ in range(seconds_until_close):
        bench.next_statistics(1)
    bench.check.stop()

    assert bench.counted == {"orders": 3}


@pytest.mark.parametrize(("copies", "expected"), [(1, {}), (2, {"orders": 1}), (3, {"orders": 2})])
def test_copies_of_a_message_that_a_probe_found_in_a_partition_without_acknowledgements_are_counted(
    copies, expected
):
    earlier = {offset: id_bytes(SESSION, offset) for offset in range(5)}  # of an earlier process
    bench = Bench({0: earlier | {5 + copy: id_bytes(SESSION, 158) for copy in range(copies)}})
    bench.fail_in_flight(158)
    bench.find(5, 158)
    bench.check.stop()

    assert bench.counted == expected


def test_gaps_of_other_producers_are_not_counted_at_close_long_after_an_ambiguous_failure():
    bench = Bench(readable=False)
    bench.fail_in_flight(5)
    for _ in range(100):
        bench.next_statistics(1)
    bench.counted.clear()
    bench.check.acknowledged(acknowledged((0, 1000, 6), (0, 1010, 7), (0, 1020, 8)))
    bench.check.stop()

    assert bench.counted == {}


@pytest.mark.parametrize("finds", [(5, 7), (7, 5)])
def test_the_order_in_which_a_probe_finds_messages_does_not_matter(finds):
    bench = Bench({0: {5: id_bytes(SESSION, 5), 6: id_bytes(SESSION, 5), 7: id_bytes(SESSION, 7)}})
    bench.set_in_flight(5, 7)
    bench.next_statistics(1)
    bench.set_in_flight()
    for seq in finds:
        bench.check.attempt_failed(failed(seq))
        bench.find(seq, seq)
    bench.check.stop()

    assert bench.counted == {"orders": 1}


def test_records_of_an_earlier_process_after_a_message_that_a_probe_found_are_not_copies():
    bench = Bench({0: {offset: id_bytes(SESSION, offset) for offset in (3, 4, 5, 6, 90, 158)}})
    bench.fail_in_flight(158)
    bench.find(3, 3)
    bench.check.stop()

    assert bench.counted == {}


def test_a_late_copy_is_counted_once_later_acknowledgements_enclose_it(log_with_copies):
    log_with_copies[0] |= {15: id_bytes(SESSION, 5), 16: id_bytes(SESSION, 5), 17: id_bytes(SESSION, 6)}
    bench = Bench(log_with_copies)
    warm_up(bench)
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.fail_in_flight(5)
    bench.next_statistics(1)
    for _ in range(10):
        bench.next_statistics(1)
    assert bench.counted == {"orders": 2}
    bench.check.acknowledged(acknowledged((0, 17, 6)))
    for _ in range(40):
        bench.next_statistics(1)

    assert bench.counted == {"orders": 3}


def test_a_new_client_after_a_fatal_error_is_not_an_epoch_rise(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.check.client_statistics(eos(0, producer_id=8))

    assert bench.reads == []


def test_a_topic_without_progress_does_not_block_the_others(log_with_copies):
    bench = Bench(log_with_copies)
    warm_up(bench)

    bench.set_in_flight(77, topic="stuck")
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.next_statistics(1)

    assert bench.counted == {"orders": 2}


# gaps


def gap_ranges(gaps, topic="orders"):
    return {each.partition: [(gap.start, gap.end) for gap in each.gaps] for each in gaps.take(topic)}


def test_a_gap_of_the_size_of_another_partitions_batch_is_found():
    known = []
    gaps = OffsetGaps(known.append)
    gaps.note(acknowledged((0, 0, 0), (1, 0, 1)))

    gaps.note(acknowledged(*batch_at(0, 1, 10, 100), *batch_at(1, 1, 200, 100), *batch_at(0, 201, 400, 300)))

    assert gap_ranges(gaps) == {0: [(101, 201)]}


def test_the_batches_of_a_single_writer_leave_no_gap():
    gaps = OffsetGaps([].append)
    gaps.note(acknowledged((0, 0, 0), (1, 0, 1)))
    for turn in range(100):
        gaps.note(acknowledged(*batch_at(0, 1 + 20 * turn, 0, 20), *batch_at(1, 1 + 30 * turn, 0, 30)))

    assert gaps.topics() == set()


def test_the_gaps_of_a_topic_with_many_writers_are_bounded_and_counted_as_unlisted():
    gaps = OffsetGaps([].append, most=10)
    for turn in range(100):
        gaps.note(acknowledged((0, 5 * turn, turn)))

    (found,) = gaps.take("orders")

    assert (len(found.gaps), found.unlisted, found.own) == (10, 89 * 4, 99)
