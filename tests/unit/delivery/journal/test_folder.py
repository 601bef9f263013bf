"""Every start of a journal creates a session with new ids; messages of earlier starts keep their ids."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core import ReliableKafkaProducer
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal import folder as folder_module
from producer_core.delivery.journal.folder import JournalFolder, JournalIdentity
from producer_core.delivery.journal.frame import JournalFrame, frames
from producer_core.errors import JournalError, JournalFull
from producer_core.messages import MessageIds, MessageStatus, SequenceSpan, id_bytes, id_text, new_session
from producer_core.testing import InMemoryTransport
from tests.fixtures.journal import a_record, crash, fill, kept
from tests.support import eventually

EARLIER, NOW = uuid.UUID(int=1), uuid.UUID(int=2)
IDS = MessageIds(NOW, first=100, earlier=(SequenceSpan(10, 20, EARLIER),))


def send(journal, made, count, **options):
    """Start a producer, send `count` messages, close it, and return their ids."""
    with ReliableKafkaProducer(
        "nowhere:9092", store=None, journal_dir=journal, transport=InMemoryTransport.factory(made, **options)
    ) as producer:
        return [producer.send_message("orders", {"n": n}) for n in range(count)]


def test_a_journal_restored_from_a_backup_never_reuses_an_id(tmp_path):
    made = []
    send(tmp_path / "j", made, 5)
    shutil.copytree(tmp_path / "j", tmp_path / "copy")
    lost = send(tmp_path / "j", made, 5)
    shutil.rmtree(tmp_path / "j")
    (tmp_path / "copy").rename(tmp_path / "j")
    again = send(tmp_path / "j", made, 5)

    on_topic = [delivery.id for transport in made for delivery in transport.log["orders"]]
    assert (len(on_topic), len(set(on_topic))) == (15, 15)
    assert not set(lost) & set(again)


def test_a_copy_of_a_running_journal_never_reuses_an_id(tmp_path):
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        fill(journal, range(3))
        copy = crash(path, tmp_path)
        fill(journal, range(3, 6))
        given = {journal.ids.of(seq) for seq in range(6)}
    with Journal.open(copy) as restored:
        seq = restored.next_sequence
        fill(restored, range(seq, seq + 6))
        new = {restored.ids.of(number) for number in range(seq, seq + 6)}
        assert {restored.ids.of(number) for number in kept(restored)} - new < given
    assert not given & new


def test_messages_of_earlier_starts_keep_their_ids_across_restarts(tmp_path):
    path, given = tmp_path / "j", {}
    for start in range(3):
        with Journal.open(path) as journal:
            assert {seq: journal.ids.of(seq) for seq in kept(journal)} == given
            seqs = range(journal.next_sequence, journal.next_sequence + 3)
            fill(journal, seqs)
            given |= {seq: journal.ids.raw(seq) for seq in seqs}
            assert len({id[:16] for id in given.values()}) == start + 1
    with Journal.open(path) as journal:
        assert {id_text(id): journal.ids.number(id) for id in given.values()} == {
            id_text(id): seq for seq, id in given.items()
        }


def test_sessions_are_removed_once_their_records_are_deleted(tmp_path):
    path, given = tmp_path / "j", []
    for start in range(6):
        with Journal.open(path, segment_bytes=64) as journal:
            fill(journal, [seq := journal.next_sequence])
            given.append((seq, journal.ids.raw(seq)))
            if start == 4:
                journal.settle([seq for seq, _ in given[1:3]])
    with Journal.open(path) as journal:
        assert [(seq, journal.ids.of(seq)) for seq in kept(journal)] == given[:1] + given[3:]
        assert [journal.ids.number(id) for _, id in given[1:3]] == [None, None]


@pytest.mark.parametrize("half", [0, 1])
def test_a_flipped_bit_in_a_long_list_of_sessions_loses_nothing(tmp_path, half):
    spans = tuple(SequenceSpan(seq, seq + 1, new_session()) for seq in range(500))  # longer than one sector
    folder = JournalFolder(tmp_path / "j")
    folder._write("session", replace(folder.identity, spans=spans).encode(), 0)
    folder.close()
    data = bytearray((tmp_path / "j" / "session").read_bytes())
    data[100 + half * len(data) // 2] ^= 1
    (tmp_path / "j" / "session").write_bytes(data)

    folder = JournalFolder(tmp_path / "j")
    ids = folder.begin_session(1000, lambda start, end: True)
    folder.close()
    assert [ids.of(seq)[:16] for seq in range(500)] == [span.session.bytes for span in spans]


def test_a_folder_written_by_an_earlier_version_keeps_the_ids_of_its_messages(tmp_path):
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        fill(journal, range(3))
    folder = JournalFolder(path)
    old = JournalIdentity(folder.identity.folder_id, folder.identity.secret, ())
    folder._write("session", old.encode(), 0)  # 20 bytes, the format of earlier versions
    folder.close()

    with Journal.open(path) as journal:
        assert [journal.ids.of(seq) for seq in kept(journal)] == [
            id_bytes(old.folder_id, seq) for seq in range(3)
        ]
        assert journal.lasting_id == old.folder_id
        fill(journal, [3])
        assert journal.ids.of(3)[:16] != old.folder_id.bytes
    with Journal.open(path) as journal:
        assert journal.ids.of(2) == id_bytes(old.folder_id, 2)


def test_a_start_that_accepts_no_message_leaves_the_session_file_unchanged(tmp_path):
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        fill(journal, range(3))
    before = (path / "session").read_bytes()
    Journal.open(path).close()
    assert (path / "session").read_bytes() == before


def test_the_transactional_id_is_the_same_at_every_start(tmp_path):
    with Journal.open(tmp_path / "j") as journal:
        fill(journal, range(3))
        first = journal.lasting_id, journal.ids.session
    with Journal.open(tmp_path / "j") as journal:
        assert journal.lasting_id == first[0]
        assert journal.ids.session != first[1]


def test_the_producer_returns_the_status_of_a_message_of_an_earlier_start(tmp_path):
    made = []
    with ReliableKafkaProducer(
        "nowhere:9092", store=None, journal_dir=tmp_path / "j",
        transport=InMemoryTransport.factory(made, capacity=0),
    ) as producer:  # fmt: skip
        message_id = producer.send_message("orders", "x")
        producer.close(0)
    with ReliableKafkaProducer(
        "nowhere:9092", store=None, journal_dir=tmp_path / "j", transport=InMemoryTransport.factory(made)
    ) as again:
        eventually(lambda: again.get_message_status(message_id) is MessageStatus.SENT)
        assert again.get_message_status(f"{new_session()}-0") is None
    assert [id_text(delivery.id) for delivery in made[1].log["orders"]] == [message_id]


# message ids


@given(st.integers(100, 2**64 - 1))
def test_a_new_sequence_has_the_session_of_this_start(seq):
    assert IDS.of(seq) == IDS.raw(seq) == id_bytes(NOW, seq)
    assert IDS.number(IDS.of(seq)) == seq


@pytest.mark.parametrize("seq", [9, 20, 99])
def test_an_id_of_an_earlier_session_outside_its_span_is_not_recognised(seq):
    assert IDS.number(id_bytes(EARLIER, seq)) is None
    with pytest.raises(LookupError):
        IDS.of(seq)


def test_acknowledged_messages_that_the_journal_could_not_settle_are_not_dead_letters(tmp_path, monkeypatch):
    made = []
    producer = ReliableKafkaProducer(
        "memory:1", store=None, transport=InMemoryTransport.factory(made), journal_dir=tmp_path / "journal",
        health_check_interval=3600,
    )  # fmt: skip

    def full(*_):
        raise JournalError("No space is left on the disk.")

    monkeypatch.setattr(producer.journal, "settle", full)
    for number in range(20):
        producer.send_message("orders", {"n": number})
    producer.flush(60)

    report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled) == (20, 0, 20)


# formats


def session_of(path):
    return (path / "session").read_bytes()


def valid_frames(data, start):
    return [found for found in frames(data, start) if isinstance(found, JournalFrame)]


def test_a_journal_with_a_group_cannot_be_read_by_earlier_versions(tmp_path):
    """They would report the group as damage and cut it off. They find no valid copy in `session`, and refuse the journal."""
    with Journal.open(tmp_path / "journal") as journal:
        journal.append(a_record(0))
        assert valid_frames(session_of(tmp_path / "journal"), 0)
        journal.append_many([a_record(1), a_record(2)])
        assert not valid_frames(session_of(tmp_path / "journal"), 0)
        assert session_of(tmp_path / "journal").startswith(b"producer_core journal, format 2.")
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [0, 1, 2]
        again.append(a_record(3))
        assert not valid_frames(session_of(tmp_path / "journal"), 0)
        ids = [again.ids.of(seq) for seq in range(4)]
    with Journal.open(tmp_path / "journal") as again:
        assert [again.ids.of(seq) for seq in range(4)] == ids


def test_the_format_is_changed_before_the_first_group(tmp_path, monkeypatch):
    journal = Journal.open(tmp_path / "journal")
    journal.append(a_record(0))
    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "replace_file", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(JournalFull):
            journal.append_many([a_record(1), a_record(2)])
    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert kept(again) == [0]
        assert valid_frames(session_of(tmp_path / "journal"), 0)
    journal.append_many([a_record(1), a_record(2)])
    assert not valid_frames(session_of(tmp_path / "journal"), 0)
    journal.close()


def test_a_journal_without_a_group_can_be_read_by_earlier_versions_again(tmp_path):
    with Journal.open(tmp_path / "journal", segment_bytes=1_000) as journal:
        journal.append_many([a_record(seq) for seq in range(20)])
        journal.settle(range(20))
        journal.append(a_record(20))
    with Journal.open(tmp_path / "journal") as again:
        again.append(a_record(21))
        assert kept(again) == [20, 21]
        assert valid_frames(session_of(tmp_path / "journal"), 0)


def test_a_journal_of_a_later_format_is_refused_and_stays_as_it_is(tmp_path):
    with Journal.open(tmp_path / "journal") as journal:
        journal.append_many([a_record(0), a_record(1)])
    path = tmp_path / "journal" / "session"
    later = path.read_bytes().replace(b"format 2.", b"format 3.")
    path.write_bytes(later)
    before = {one.name: one.read_bytes() for one in (tmp_path / "journal").iterdir()}

    with pytest.raises(JournalError, match=r"has format 3.*formats 1 and 2"):
        Journal.open(tmp_path / "journal")

    assert {one.name: one.read_bytes() for one in (tmp_path / "journal").iterdir()} == before
    path.write_bytes(later.replace(b"format 3.", b"format 2."))
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [0, 1]


@pytest.mark.parametrize("copy", [0, 1, 2])
def test_one_damaged_copy_of_the_session_of_format_2_is_not_needed(tmp_path, copy):
    with Journal.open(tmp_path / "journal") as journal:
        journal.append_many([a_record(0), a_record(1)])
    path = tmp_path / "journal" / "session"
    data = bytearray(path.read_bytes())
    data[copy * 4096 + 20] ^= 1  # 0: the name of the format
    path.write_bytes(data)

    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [0, 1]
