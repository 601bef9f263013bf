"""The check for duplicates: which gaps are read after the epoch rose, and what counts as a copy."""

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
    """A batch: (partition, offset, sequence) each."""
    rows = [
        Acknowledged(topic, partition, offset, 0.01, 10, 1, seq, id_bytes(SESSION, seq))
        for partition, offset, seq in places
    ]
    return Acknowledgements.of(rows)


def a_batch(partition, offset, seq, count):
    return [(partition, offset + at, seq + at) for at in range(count)]


def eos(epoch, producer_id=7):
    return {"eos": {"producer_id": producer_id, "producer_epoch": epoch}}


class Bench:
    """A check over a log in memory: the id at each offset by partition."""

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

    def flies(self, *seqs, topic="orders"):
        self.in_flight = [Delivery(id_bytes(SESSION, seq), seq, topic, None, b"") for seq in seqs]

    def second(self, epoch):
        self.check.client_statistics(eos(epoch))
        assert self.check.wait(PATIENCE)


@pytest.fixture
def twice():
    """Messages 0 to 2; 1 and 2 were written at 11 and 12, and again at 13 and 14, where they were acknowledged."""
    return {
        0: {offset: id_bytes(SESSION, seq) for offset, seq in [(10, 0), (11, 1), (12, 2), (13, 1), (14, 2)]}
    }


def warm(bench):
    bench.check.acknowledged(acknowledged((0, 10, 0)))
    for _ in range(5):  # the gap before the first record is old by then
        bench.second(0)


def test_a_batch_that_was_written_twice_when_the_epoch_rose_is_counted_message_by_message(twice):
    bench = Bench(twice)
    warm(bench)

    bench.flies(1, 2)
    bench.second(1)
    assert bench.counted == {}, "their acknowledgements are not here yet"
    bench.flies()
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.second(1)

    assert bench.counted == {"orders": 2}


def test_copies_acknowledged_before_the_statistics_show_the_rise_are_counted(twice):
    bench = Bench(twice)
    warm(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.second(1)

    assert bench.counted == {"orders": 2}


def test_without_a_rise_nothing_is_read(twice):
    bench = Bench(twice)
    warm(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    for _ in range(9):
        bench.second(0)
    bench.second(1)

    assert (bench.reads, bench.counted) == ([], {})


def test_records_of_others_in_the_gap_are_no_copies():
    stranger = id_bytes(uuid.uuid4(), 1)
    bench = Bench({0: {11: stranger, 12: stranger}})
    warm(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.second(1)

    assert (len(bench.reads), bench.counted) == (1, {})


def test_what_may_not_be_read_is_counted_but_never_more_than_was_acknowledged_behind_it():
    bench = Bench(readable=False)
    warm(bench)

    bench.check.acknowledged(acknowledged((0, 500, 1), (0, 501, 2)))
    bench.second(1)

    assert bench.counted == {"orders": 2}


def test_the_copy_of_a_message_whose_failed_attempt_is_told_elsewhere_is_not_counted_again(twice):
    bench = Bench(twice)
    warm(bench)
    bench.check.attempt_failed(
        AttemptFailed(
            id_text(id_bytes(SESSION, 1)), "orders", "_MSG_TIMED_OUT", "timed_out", "", 1, 0.1, True, 0.0
        )
    )

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.second(1)

    assert bench.counted == {"orders": 1}


def test_the_copy_of_a_message_that_a_look_found_is_counted_before_anything_is_acknowledged_there():
    """Its two records are the first ones of its partition, and the first acknowledgement of it comes after both."""
    log = {0: {0: id_bytes(SESSION, 8), 1: id_bytes(SESSION, 8), 2: id_bytes(SESSION, 90)}}
    bench = Bench(log)
    bench.check.attempt_failed(failed(8))
    bench.check.acknowledged(acknowledged((0, 2, 90)))
    bench.second(1)

    assert bench.counted == {"orders": 1}


def test_what_was_acknowledged_without_an_offset_is_where_the_gap_is(twice):
    bench = Bench({0: {11: id_bytes(SESSION, 1), 12: id_bytes(SESSION, 2)}})
    warm(bench)

    bench.check.acknowledged(acknowledged((0, None, 1), (0, None, 2), (0, 13, 3)))
    bench.second(1)

    assert bench.counted == {}


def test_what_an_earlier_process_wrote_under_the_same_session_is_no_copy():
    bench = Bench(
        {0: {offset: id_bytes(SESSION, offset) for offset in range(50)} | {50: id_bytes(SESSION, 90)}}
    )

    bench.check.acknowledged(acknowledged((0, 51, 90)))
    bench.second(1)

    assert bench.counted == {"orders": 1}, "its first copy, and none of the fifty"


def test_a_producer_that_closes_before_the_next_statistics_counts_all_the_same(twice):
    bench = Bench(twice)
    warm(bench)

    bench.check.attempt_failed(
        AttemptFailed(
            id_text(id_bytes(SESSION, 9)), "other", "INVALID_RECORD", "refused", "", 1, None, False, 0.0
        )
    )
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.check.stop()

    assert bench.counted == {"orders": 2}


def test_a_broker_that_does_not_answer_holds_a_close_up_for_no_longer_than_its_bound(twice):
    bench = Bench(twice)
    warm(bench)
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
    assert bench.counted == counted  # the late answer counts nothing again


def failed(seq, topic="orders"):
    return AttemptFailed(
        id_text(id_bytes(SESSION, seq)), topic, "_MSG_TIMED_OUT", "late", "", 1, None, True, 0.0
    )


def test_the_copy_of_a_message_that_a_look_found_is_counted_behind_everything_acknowledged_there(twice):
    """It was sent in two epochs and its last answer was lost; nothing follows it in its partition."""
    twice[0] |= {15: id_bytes(SESSION, 5), 16: id_bytes(SESSION, 5)}
    bench = Bench(twice)
    warm(bench)
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.flies(5)
    bench.second(1)
    bench.flies()
    bench.check.attempt_failed(failed(5))
    bench.check.stop()

    assert bench.counted == {"orders": 3}


def test_a_copy_that_comes_late_is_counted_when_later_messages_show_its_place(twice):
    twice[0] |= {15: id_bytes(SESSION, 5), 16: id_bytes(SESSION, 5), 17: id_bytes(SESSION, 6)}
    bench = Bench(twice)
    warm(bench)
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.flies(5)
    bench.second(1)
    bench.flies()
    bench.check.attempt_failed(failed(5))
    bench.second(1)
    for _ in range(10):
        bench.second(1)
    assert bench.counted == {"orders": 2}
    bench.check.acknowledged(acknowledged((0, 17, 6)))
    for _ in range(40):
        bench.second(1)

    assert bench.counted == {"orders": 3}


def test_a_new_client_after_a_fatal_error_is_no_rise(twice):
    bench = Bench(twice)
    warm(bench)

    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.check.client_statistics(eos(0, producer_id=8))

    assert bench.reads == []


def test_a_topic_that_stands_still_does_not_keep_the_others_waiting(twice):
    bench = Bench(twice)
    warm(bench)

    bench.flies(77, topic="stuck")
    bench.check.acknowledged(acknowledged((0, 13, 1), (0, 14, 2)))
    bench.second(1)

    assert bench.counted == {"orders": 2}


# the gaps


def the_gaps(gaps, topic="orders"):
    return {each.partition: [(gap.start, gap.end) for gap in each.gaps] for each in gaps.take(topic)}


def test_a_gap_of_just_the_size_of_another_partitions_batch_is_seen():
    known = []
    gaps = OffsetGaps(known.append)
    gaps.note(acknowledged((0, 0, 0), (1, 0, 1)))

    gaps.note(acknowledged(*a_batch(0, 1, 10, 100), *a_batch(1, 1, 200, 100), *a_batch(0, 201, 400, 300)))

    assert the_gaps(gaps) == {0: [(101, 201)]}


def test_a_thousand_batches_of_one_writer_leave_no_gap():
    gaps = OffsetGaps([].append)
    gaps.note(acknowledged((0, 0, 0), (1, 0, 1)))
    for turn in range(100):
        gaps.note(acknowledged(*a_batch(0, 1 + 20 * turn, 0, 20), *a_batch(1, 1 + 30 * turn, 0, 30)))

    assert gaps.topics() == set()


def test_the_gaps_of_a_topic_with_many_writers_stay_bounded_and_are_counted_as_unlisted():
    gaps = OffsetGaps([].append, most=10)
    for turn in range(100):
        gaps.note(acknowledged((0, 5 * turn, turn)))

    (found,) = gaps.take("orders")

    assert (len(found.gaps), found.unlisted, found.own) == (10, 89 * 4, 99)
