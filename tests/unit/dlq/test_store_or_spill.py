"""Where a dead letter goes: the store, the spill file while the store is unavailable, or memory without both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dlq.store_or_spill import DeadLetterWriter
from producer_core.errors import StoreFull, StoreLocked
from tests.fixtures.recording import RecordingRig
from tests.fixtures.replays import dead_letter
from tests.support import eventually


@pytest.fixture
def rig():
    """The writer, on the test's own thread."""
    return RecordingRig()


@pytest.fixture
def running(rig):
    """The same with a recorder, whose thread flushes."""
    rig.recorder.start()
    yield rig
    rig.recorder.stop()


def ids(*dead_letters):
    return [item.message_id for item in dead_letters]


def test_a_dead_letter_goes_to_the_store(rig):
    failed = dead_letter(1)
    rig.writer.add(failed)
    rig.writer.flush()

    assert rig.store.dead_letters == rig.stored == ids(failed)
    assert (rig.spill.dead_letters, rig.writer.waiting) == ([], 0)


def test_while_the_store_is_locked_a_dead_letter_goes_to_the_spill_file_and_later_to_the_store(rig):
    failed = dead_letter(1)
    rig.store.trouble = StoreLocked()
    rig.writer.add(failed)
    rig.writer.flush()
    assert rig.spill.dead_letters == [failed] and rig.stored == ids(failed)
    assert rig.writer.spilled and not rig.writer.full and rig.writer.waiting == 0

    rig.store.trouble = None
    rig.writer.flush()
    assert (rig.store.dead_letters, rig.spill.dead_letters) == (ids(failed), [])
    assert not rig.writer.spilled


def test_without_store_and_spill_file_dead_letters_stay_in_memory_in_order_until_the_writer_is_full(rig):
    failed = [dead_letter(number) for number in range(3)]
    rig.store.trouble, rig.spill.trouble = StoreLocked(), StoreFull()
    for item in failed:
        assert not rig.writer.full
        rig.writer.add(item)
        rig.writer.flush()
    assert rig.writer.full and rig.writer.waiting == 3 and rig.stored == []

    rig.store.trouble = None
    rig.writer.flush()
    assert rig.store.dead_letters == ids(*failed)
    assert not rig.writer.full and rig.writer.waiting == 0


def test_a_writer_above_its_limit_is_not_full_while_the_store_is_available(rig):
    for number in range(4):
        rig.writer.add(dead_letter(number))
    assert not rig.writer.full


def test_close_spills_dead_letters_before_it_waits_for_the_store(rig):
    """Another process holds the store for as long as the writer waits."""
    spilled, failed = [], dead_letter(1)

    def raise_locked(dead_letters):
        spilled.append(list(rig.spill.dead_letters))
        raise StoreLocked("held")

    rig.store.add = raise_locked
    rig.writer.add(failed)
    rig.writer.close()

    assert rig.spill.dead_letters == [failed]
    assert spilled and all(seen == [failed] for seen in spilled)
    assert rig.writer.waiting == 0


@pytest.mark.slow
def test_the_recorder_returns_spilled_dead_letters_to_the_store_without_another_dead_letter(running):
    running.store.trouble = StoreLocked()
    running.recorder.died(dead_letter(1))
    eventually(lambda: running.spill.dead_letters)

    running.store.trouble = None
    eventually(lambda: running.store.dead_letters and not running.spill.dead_letters)


@pytest.mark.slow
def test_wait_stored_waits_for_dead_letters_that_are_only_in_the_spill_file(running):
    running.store.trouble = StoreLocked()
    running.recorder.died(dead_letter(1))
    eventually(lambda: running.spill.dead_letters)
    assert not running.writer.wait_stored(0.01)

    running.store.trouble = None
    assert running.writer.wait_stored(60)
    assert len(running.store.dead_letters) == 1


def test_a_recorder_without_room_for_dead_letters_loses_none(running):
    running.store.trouble, running.spill.trouble = StoreLocked(), StoreFull()
    for number in range(4):
        running.recorder.died(dead_letter(number))
    eventually(lambda: running.writer.full)

    running.store.trouble = running.spill.trouble = None
    running.recorder.flush_soon(60)
    eventually(lambda: len(running.store.dead_letters) == 4)
    assert not running.writer.full


def test_an_error_of_the_spill_file_is_logged_once_until_dead_letters_are_on_disk_again(
    rig, caplog, log_queue
):
    def lines():
        return [text for text in caplog.messages if text.startswith("dead letters cannot be spilled")]

    rig.store.trouble = StoreLocked()
    rig.spill.trouble = StoreFull("The disk of the spill file s.spill is full.", fix="Free up disk space.")
    for number in range(25):
        rig.writer.add(dead_letter(number))
        rig.writer.flush()
    assert lines() == [
        "dead letters cannot be spilled: count=1, "
        "error=The disk of the spill file s.spill is full. Free up disk space."
    ]

    rig.store.trouble = None
    rig.writer.flush()
    rig.store.trouble = StoreLocked()
    rig.writer.add(dead_letter(25))
    rig.writer.flush()
    log_queue.finish()
    assert len(lines()) == 2


def test_dead_letters_that_a_stopped_recorder_could_not_write_are_logged_with_the_reason(rig, caplog):
    rig.store.trouble, rig.spill.trouble = StoreLocked("held"), StoreFull("The disk is full.")
    rig.recorder.start()
    rig.recorder.died(dead_letter(1))
    rig.recorder.stop()

    assert "dead letters could not be stored: count=1, error=The disk is full." in caplog.messages


def test_dead_letters_on_their_dead_letter_topic_need_no_room(rig):
    failed = [dead_letter(number) for number in range(6)]
    rig.store.trouble, rig.spill.trouble = StoreLocked(), StoreFull()
    for item in failed[:3]:
        rig.writer.add(item)
    rig.writer.flush()
    assert rig.writer.full and rig.writer.lost == 3

    rig.writer.published(ids(*failed[:2]))
    assert not rig.writer.full and rig.writer.lost == 1
    for item in failed[3:]:
        rig.writer.add(item)
    rig.writer.flush()
    assert rig.writer.full and rig.writer.lost == 4

    rig.writer.published(ids(*failed))
    rig.store.trouble = None
    rig.writer.flush()
    assert rig.store.dead_letters == ids(*failed[3:]), "the oldest published ones made room"
    assert rig.writer.lost == rig.writer.waiting == 0


def test_a_close_publishes_from_memory_only_while_the_store_is_not_available(rig):
    failed, given = dead_letter(1), []

    def unstored(dead_letters):
        given.extend(dead_letters)
        return [replace(one, verdict="possibly_persisted") for one in dead_letters]

    def close(trouble):
        writer = DeadLetterWriter(rig.access, rig.spill, unstored=unstored)
        writer.add(failed)
        rig.store.trouble = trouble
        writer.close()

    close(None)
    assert given == [] and rig.store.dead_letters == ids(failed) and rig.spill.dead_letters == []

    close(StoreLocked())  # it is locked since this close
    assert given == [failed]

    added = []
    rig.store.trouble, rig.store.add = None, added.extend
    rig.writer.flush()
    assert [one.verdict for one in added] == ["possibly_persisted"]


def test_a_published_dead_letter_is_not_published_again_at_each_flush(rig):
    failed, given, dropped = [dead_letter(number) for number in range(5)], [], []

    def unstored(dead_letters):
        given.extend(ids(*dead_letters))
        return [replace(one, verdict="possibly_persisted") for one in dead_letters]

    writer = DeadLetterWriter(rig.access, rig.spill, limit=3, unstored=unstored, dropped=dropped.extend)
    rig.store.trouble, rig.spill.trouble = StoreLocked(), StoreFull()
    for item in failed:
        writer.add(item)
    writer.flush()
    writer.published(ids(*failed[:4]))
    writer.flush()
    writer.flush()
    assert given == [*ids(*failed), *ids(failed[4]) * 2]
    assert dropped == ids(*failed[:2]), "published ones made room"

    rig.spill.trouble = None
    writer.flush()
    assert {one.verdict for one in rig.spill.dead_letters} == {"possibly_persisted"}
