"""No thread waits for another thread's sync under the journal's lock, and a failed sync leaves no message behind."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from producer_core.delivery.journal import Journal
from producer_core.errors import JournalError, JournalFull
from tests.fixtures.journal import crash, fill, kept
from tests.support import eventually

LARGE = bytes(5_000)
"""A message with this value fills a segment."""


def open_journal(path):
    return Journal.open(path, level="power", segment_bytes=4_096)


def waiting(journal):
    group = journal._segments.active.group_sync
    return len(group._included) + len(group._later)


@pytest.mark.parametrize("handler", ["append", "close", "sync"])
@pytest.mark.parametrize("other", ["append", "close", "sync"])
def test_a_signal_handler_of_the_syncing_thread_uses_the_journal_while_another_thread_waits(
    tmp_path, monkeypatch, handler, other
):
    """Regression: the other thread waited for that sync with the journal's lock, so the two threads blocked forever."""
    journal, fdatasync, syncing = open_journal(tmp_path / "own"), os.fdatasync, threading.Event()
    fill(journal, [0])
    calls = {
        "append": lambda seq: fill(journal, [seq]),
        "close": lambda _: journal.close(),
        "sync": lambda _: journal.sync(),
    }
    errors = []

    def call(name, seq):
        try:
            calls[name](seq)
        except JournalError as error:
            errors.append(str(error))

    def interrupted(file):
        if not syncing.is_set():
            syncing.set()
            eventually(lambda: waiting(journal) == 1)
            call(handler, 3)
        fdatasync(file)

    monkeypatch.setattr(os, "fdatasync", interrupted)
    threads = [threading.Thread(target=fill, args=(journal, [1], LARGE), daemon=True)]
    threads[0].start()
    assert syncing.wait(20)
    threads.append(threading.Thread(target=call, args=(other, 2), daemon=True))
    threads[1].start()
    for thread in threads:
        thread.join(10)

    assert not any(thread.is_alive() for thread in threads)
    accepted = [seq for seq, name in ((2, other), (3, handler)) if name == "append"]
    if "close" not in (handler, other):
        assert not errors
        assert sorted(kept(journal)) == [0, 1, *accepted]
    assert all("closed" in error for error in errors)
    journal.close()
    with open_journal(tmp_path / "own") as again:
        assert {0, 1} <= set(kept(again)) <= {0, 1, *accepted}


@pytest.mark.parametrize("later", [[], [2]])
def test_the_next_start_does_not_send_a_message_whose_sync_failed_during_close(tmp_path, monkeypatch, later):
    """Regression: the message could not be withdrawn, because the journal was closed."""
    journal, fdatasync = open_journal(tmp_path / "own"), os.fdatasync
    fill(journal, [0])
    syncing, fail, closed, failures = threading.Event(), threading.Event(), threading.Event(), []
    withdraw = journal.withdraw

    def failing(file):
        monkeypatch.setattr(os, "fdatasync", fdatasync)  # the kernel reports a failure once
        syncing.set()
        assert fail.wait(20)
        raise OSError(errno.EIO, "Input/output error")

    def withdraw_late(seqs):
        assert closed.wait(20)
        withdraw(seqs)

    def send():
        with pytest.raises(JournalFull) as failure:
            fill(journal, [1])
        failures.append(failure.value)

    def close():
        with pytest.raises(JournalFull):
            journal.close()

    monkeypatch.setattr(os, "fdatasync", failing)
    monkeypatch.setattr(journal, "withdraw", withdraw_late)
    sender = threading.Thread(target=send)
    sender.start()
    assert syncing.wait(20)
    if later:
        fail.set()
        eventually(lambda: journal._segments.active.group_sync.failed)
        fill(journal, later)
        journal.close()
    else:
        closing = threading.Thread(target=close)
        closing.start()
        eventually(lambda: waiting(journal) == 1)
        fail.set()
        closing.join(20)
    closed.set()
    sender.join(20)

    assert [failure.withdrawn for failure in failures] == [True]
    with open_journal(tmp_path / "own") as again:
        assert kept(again) == [0, *later]


def test_a_journal_that_is_being_closed_accepts_no_message(tmp_path, monkeypatch):
    """Otherwise close() would sync for as long as other threads send."""
    journal, fdatasync = open_journal(tmp_path / "own"), os.fdatasync
    syncing, end = threading.Event(), threading.Event()

    def slow(file):
        syncing.set()
        assert end.wait(20)
        fdatasync(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    sender = threading.Thread(target=fill, args=(journal, [0]))
    sender.start()
    assert syncing.wait(20)
    closing = threading.Thread(target=journal.close)
    closing.start()
    eventually(lambda: waiting(journal) == 1)

    with pytest.raises(JournalError, match="closed"):
        fill(journal, [1])
    end.set()
    closing.join(20)
    sender.join(20)
    with open_journal(tmp_path / "own") as again:
        assert kept(again) == [0]


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_handler_that_sends_while_its_thread_writes_for_a_sync_loses_no_message(
    tmp_path, monkeypatch, fails
):
    """The records of other threads, which the interrupted write has not written yet, are accepted only after their sync."""
    journal, fdatasync, pwrite = Journal.open(tmp_path / "own", level="power"), os.fdatasync, os.pwrite
    fill(journal, [0])
    nested, accepted = [2], [0]

    def send(seq):
        try:
            fill(journal, [seq])
        except JournalFull:
            return
        accepted.append(seq)

    def interrupted(*args):
        if nested:
            send(nested.pop())
        return pwrite(*args)

    def failing(file):
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        raise OSError(errno.EIO, "Input/output error")

    if fails:
        monkeypatch.setattr(os, "fdatasync", failing)
    monkeypatch.setattr(os, "pwrite", interrupted)
    send(1)
    send(3)

    assert accepted == ([0, 3] if fails else [0, 2, 1, 3])
    assert sorted(kept(journal)) == sorted(accepted)
    with Journal.open(crash(tmp_path / "own", tmp_path)) as again:
        assert sorted(kept(again)) == sorted(accepted)
    journal.close()
