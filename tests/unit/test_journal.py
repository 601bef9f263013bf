"""The journal: what was accepted is there after a crash, byte for byte, and what is settled is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.errors import ForkedProducer, JournalError, JournalFull, JournalLocked
from producer_core.journal import Journal, Record
from producer_core.journal.ranges import Ranges, ranges_of
from producer_core.journal.record import decode, encode
from tests.support import eventually


def a_record(seq, value=b"v", topic="orders"):
    return Record(seq, topic, b"k", value, (("h", b"1"), ("n", None)), 3, 17, 12.5, "sum", topic)


def fill(journal, numbers, value=b"v"):
    for seq in numbers:
        journal.append(a_record(seq, value))


def kept(journal):
    return [record.seq for record in journal.read()]


def crash(path, tmp_path, name="copy"):
    """The folder as a killed process leaves it: a copy, because this process still holds the original."""
    copy = tmp_path / name
    shutil.copytree(path, copy)
    return copy


@pytest.fixture(params=["buffered", "process", "power"])
def journal(request, tmp_path):
    opened = Journal.open(tmp_path / "journal", level=request.param)
    yield opened
    opened.close()


def test_what_was_appended_is_read_back_byte_for_byte(journal):
    records = [
        Record(0, "orders", None, None),
        Record(1, "orders", b"", b"", (("a", b""), ("a", None), ("\u00e4", b"\xff\x00")), 0, 1, 0.5),
        a_record(2, os.urandom(3_000_000)),
    ]
    for record in records:
        journal.append(record)

    expected = [record._replace(dedup_topic=record.dedup_topic or record.topic) for record in records]
    assert list(journal.read()) == expected
    assert journal.unsettled() == 3


def test_settled_messages_are_gone_also_after_a_restart(journal, tmp_path):
    fill(journal, range(10))
    journal.settle([0, 1, 2, 7], {("orders", 3): 41})
    journal.settle((), {("orders", 4): 9})

    assert kept(journal) == [3, 4, 5, 6, 8, 9]
    session = journal.session
    journal.close()
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [3, 4, 5, 6, 8, 9]
        assert again.offsets == {("orders", 3): 41, ("orders", 4): 9}
        assert again.session == session
        assert again.next_sequence == 10


def test_reading_goes_on_from_a_sequence_while_appending_goes_on(journal):
    fill(journal, range(1000))
    reader = journal.read(after=499)

    assert next(reader).seq == 500
    fill(journal, range(1000, 1010))
    journal.settle(range(600, 1005))
    assert [record.seq for record in reader] == [*range(501, 600), *range(1005, 1010)]


def test_a_sequence_is_never_given_out_twice_even_when_the_buffer_was_lost(tmp_path):
    journal = Journal.open(tmp_path / "journal", level="buffered", buffered_ms=3_600_000)
    fill(journal, range(5))

    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert kept(again) == []
        assert again.next_sequence > 4
    journal.close()


def test_whole_segments_are_deleted_when_everything_in_them_is_settled(tmp_path):
    journal = Journal.open(tmp_path / "journal", segment_bytes=10_000)
    fill(journal, range(1000))
    many = len(list((tmp_path / "journal").glob("*.journal")))

    journal.settle(range(1, 1000))
    left = list((tmp_path / "journal").glob("*.journal"))

    assert many > 5
    assert len(left) == 2  # the one with message 0, and the one that is written
    assert kept(journal) == [0]
    journal.close()
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [0]


def test_the_settle_log_stays_short(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.journal.settle_log._SHORTEN", 2_000)
    with Journal.open(tmp_path / "journal", segment_bytes=5_000) as journal:
        for seq in range(3000):
            journal.append(a_record(seq))
            journal.settle((seq,), {("orders", seq % 3): seq})
        assert (tmp_path / "journal" / "settled").stat().st_size < 4_000
    with Journal.open(tmp_path / "journal") as again:
        assert again.unsettled() == 0
        assert again.offsets == {("orders", 0): 2997, ("orders", 1): 2998, ("orders", 2): 2999}


def test_a_second_process_is_refused_with_the_owners_pid(tmp_path):
    with Journal.open(tmp_path / "journal"), pytest.raises(JournalLocked, match=str(os.getpid())):
        Journal.open(tmp_path / "journal")
    with Journal.open(tmp_path / "journal") as journal:
        code = "import sys; from producer_core.journal import Journal; Journal.open(sys.argv[1])"
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "journal")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "JournalLocked" in other.stderr
        assert f"process {os.getpid()}" in other.stderr
        fill(journal, [0])  # the refused one took nothing away


def test_a_forked_child_may_not_write(tmp_path):
    with Journal.open(tmp_path / "journal") as journal:
        child = os.fork()
        if child == 0:
            try:
                journal.append(a_record(0))
            except ForkedProducer:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7


def test_at_its_bound_it_takes_nothing_until_something_is_settled(tmp_path):
    with Journal.open(tmp_path / "journal", max_bytes=20_000, segment_bytes=5_000) as journal:
        taken = 0
        with pytest.raises(JournalFull, match="bound"):
            for taken in range(1000):  # the number when it stops
                journal.append(a_record(taken))
        assert kept(journal) == list(range(taken))
        journal.settle(range(taken - 1))
        fill(journal, [taken])
        assert kept(journal) == [taken - 1, taken]


FULL_DISK = """
import resource, signal, sys
from producer_core.errors import JournalFull
from producer_core.journal import Journal, Record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
taken = 0
try:
    while True:
        journal.append(Record(taken, "orders", None, b"x" * 90))
        taken += 1
except JournalFull as error:
    assert "cannot be written" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(Record(taken, "orders", None, b"after"))
print(taken, len(list(journal.read())), flush=True)
"""


def test_a_full_disk_leaves_nothing_half_written_and_heals(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "journal")],
        capture_output=True,
        text=True,
        check=True,
    )
    taken, read = map(int, ran.stdout.split())

    assert read == taken + 1
    said = []
    with Journal.open(tmp_path / "journal", notice=lambda *words: said.append(words)) as again:
        assert kept(again) == list(range(taken + 1))
    assert said == []


def test_a_closed_journal_says_so(tmp_path):
    journal = Journal.open(tmp_path / "journal")
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append(a_record(0))


# damage


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A journal of six records of different lengths, and where each ends."""
    path = tmp_path_factory.mktemp("small") / "journal"
    ends = []
    with Journal.open(path) as journal:
        for seq in range(6):
            journal.append(a_record(seq, b"%d" % seq * (seq * 7)))
            ends.append(journal.size())
    return path, ends


def segment_of(path):
    (segment,) = path.glob("*.journal")
    return segment


def test_a_journal_torn_at_any_byte_keeps_every_whole_record(small, tmp_path):
    path, ends = small
    whole = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for length in range(len(whole)):
        segment_of(copy).write_bytes(whole[:length])
        said = []
        with Journal.open(copy, notice=lambda kind, *_: said.append(kind)) as journal:
            assert kept(journal) == [seq for seq, end in enumerate(ends) if end <= length]
            assert journal.next_sequence >= 6
            journal.append(a_record(6))
            assert kept(journal)[-1] == 6
        assert said == ([] if length in (0, *ends) else ["journal_torn"])


def test_a_flip_of_any_byte_loses_that_record_only_and_never_invents_one(small, tmp_path):
    path, ends = small
    whole = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        segment_of(copy).write_bytes(damaged)
        hit = next(seq for seq, end in enumerate(ends) if place < end)
        said = []
        with Journal.open(copy, notice=lambda kind, *_: said.append(kind)) as journal:
            assert list(journal.read()) == [
                a_record(seq, b"%d" % seq * (seq * 7)) for seq in range(6) if seq != hit
            ]
        assert said == ["journal_torn" if hit == 5 else "journal_damaged"]
        assert any(copy.glob("*.damaged"))


def test_a_settle_log_torn_at_any_byte_counts_whole_steps_only(tmp_path):
    path = tmp_path / "journal"
    with Journal.open(path) as journal:
        fill(journal, range(6))
        for seq in range(0, 6, 2):
            journal.settle((seq, seq + 1), {("orders", 0): seq})
    whole = (path / "settled").read_bytes()
    for length in range(len(whole)):
        (path / "settled").write_bytes(whole[:length])
        with Journal.open(path) as journal:
            left = kept(journal)
            steps = (6 - len(left)) // 2
            assert left == list(range(steps * 2, 6))
            assert journal.offsets == ({("orders", 0): steps * 2 - 2} if steps else {})


def test_a_message_that_contains_a_journal_is_not_taken_for_records(tmp_path):
    with Journal.open(tmp_path / "one") as journal:
        fill(journal, range(3))
    inside = segment_of(tmp_path / "one").read_bytes()
    with Journal.open(tmp_path / "two") as journal:
        journal.append(a_record(0, inside))
    segment = segment_of(tmp_path / "two")
    segment.write_bytes(segment.read_bytes()[:-1])

    with Journal.open(tmp_path / "two") as journal:
        assert kept(journal) == []


# processes

WRITER = """
import sys, threading
from producer_core.journal import Journal, Record
journal = Journal.open(sys.argv[1], level=sys.argv[2], segment_bytes=200_000)
lock, numbers = threading.Lock(), iter(range(journal.next_sequence, 1 << 60))
def write():
    while True:
        with lock:
            seq = next(numbers)
        journal.append(Record(seq, "orders", b"k", b"%d" % seq))
        sys.stdout.write(f"{seq}\\n")
        sys.stdout.flush()
for _ in range(3):
    threading.Thread(target=write).start()
"""


@pytest.mark.parametrize("level", ["process", "power"])
def test_what_an_append_returned_for_survives_kill_9(tmp_path, level):
    path, promised = tmp_path / "journal", set()
    for lines in (5, 40, 200):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), level], stdout=subprocess.PIPE, text=True
        )
        for _ in range(lines):
            promised.add(int(writer.stdout.readline()))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]
        promised |= {int(line) for line in rest if line}
        writer.wait()
        writer.stdout.close()

    with Journal.open(path) as journal:
        records = list(journal.read())
    assert promised <= {record.seq for record in records}
    assert all(int(record.value) == record.seq for record in records)
    assert len({record.seq for record in records}) == len(records)


def test_many_threads_share_their_syncs_and_lose_nothing(tmp_path):
    with Journal.open(tmp_path / "journal", level="power") as journal:
        threads = [
            threading.Thread(target=fill, args=(journal, range(number * 100, number * 100 + 100)))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(kept(journal)) == list(range(800))


def test_buffered_messages_reach_the_file_by_themselves(tmp_path):
    with Journal.open(tmp_path / "journal", level="buffered", buffered_ms=5) as journal:
        fill(journal, [0])
        eventually(lambda: [path.stat().st_size for path in (tmp_path / "journal").glob("*.journal")] > [0])


# parts

texts = st.text(max_size=20)


@given(
    st.builds(
        Record,
        st.integers(0, 2**64 - 1),
        texts,
        st.none() | st.binary(max_size=50),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(texts, st.none() | st.binary(max_size=20)), max_size=4).map(tuple),
        st.integers(-1, 2**31 - 1),
        st.integers(0, 2**62),
        st.floats(0, 1e10),
        st.none() | texts,
        texts,
    )
)
def test_encode_then_decode_gives_the_record_back(record):
    again = decode(encode(record))
    assert again == record or (record.checksum is None and again == record._replace(dedup_topic=record.topic))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=20), st.integers(0, 60))
def test_ranges_are_a_set_of_numbers(spans, probe):
    ranges, numbers = Ranges(), set()
    for start, length in spans:
        new = ranges.add(start, start + length)
        assert new == len(set(range(start, start + length)) - numbers)
        numbers |= set(range(start, start + length))
    assert len(ranges) == len(numbers)
    assert (probe in ranges) == (probe in numbers)
    assert list(ranges) == [tuple(span) for span in ranges_of(numbers)] or not numbers
    inside = {n for low, high in ranges.overlap(probe, probe + 15) for n in range(low, high)}
    assert inside == numbers & set(range(probe, probe + 15))
