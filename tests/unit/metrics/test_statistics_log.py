"""The log of statistics beside a store: what a killed process leaves, and what the next one merges."""

from __future__ import annotations

import errno
import functools
import os
import stat
from dataclasses import replace

import pytest

from producer_core.errors import StoreError, StoreLocked
from producer_core.events import Notice
from producer_core.metrics import statistics_log
from producer_core.metrics.ack_ledger import GivenUpRow, LedgerRow
from producer_core.metrics.batch import Batch, ErrorRow, LatencyRow, StatisticsRow
from producer_core.metrics.batch_size import sum_by_minute
from producer_core.metrics.statistics_log import StatisticsLog, recover
from producer_core.metrics.telemetry import schema
from producer_core.store import Store
from tests.fixtures.recording import row

WHERE = (100, "cluster", "producer")
BATCH = Batch(
    "producer", 7,
    statistics=(StatisticsRow(*WHERE, 'orders "é\u2028', 3, 2, 1, 1, 0, 0, 0, 0, 20, 0.5),),
    latencies=(LatencyRow(*WHERE, "orders", 150, 2),),
    errors=(ErrorRow(*WHERE, "orders", "_MSG_TIMED_OUT", "timed_out", 1),),
    producer=row(),
    notices=(Notice("connected", "info", "Connected to a\tbroker.\n", 1.5, {"down_s": 3, "topic": "t"}),),
    resolution=60,
    ledger=(LedgerRow("s", "orders", 0, 0, 2, 1, 5, 0, 0, 1, (0, 1), (0, 1)),),
    given_up=(GivenUpRow("s", 3, "orders", "_MSG_TIMED_OUT", "absent", 2.0),),
    first=0,
    ledger_lost=2,
)  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store.duckdb"


def recovered(store):
    batches = []
    recover(store, lambda *found: batches.extend(found) or len(found))
    return batches


def plain(batch):
    """Return a batch with lists as tuples, as JSON does not distinguish them."""
    ledger = tuple(
        LedgerRow(*(tuple(item) if isinstance(item, list) else item for item in one)) for one in batch.ledger
    )
    return replace(batch, ledger=ledger)


def test_the_batches_of_an_ended_process_come_back_once_with_every_field(store):
    log = StatisticsLog(store)
    log.append([BATCH, replace(BATCH, sequence=8, first=None, notices=())])
    log.close()

    assert list(map(plain, recovered(store))) == [BATCH, replace(BATCH, sequence=8, first=None, notices=())]
    assert recovered(store) == []
    assert list(store.parent.iterdir()) == []


def test_the_file_of_a_running_producer_is_left_alone_and_private(store):
    log = StatisticsLog(store)
    log.append([BATCH])

    assert recovered(store) == []
    (file,) = store.parent.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    log.close()
    assert len(recovered(store)) == 1


def test_a_forked_child_does_not_keep_the_file_of_its_killed_parent(store):
    log = StatisticsLog(store)
    log.append([BATCH])
    ready, proceed = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b"1")
        os.read(proceed[0], 1)
        os._exit(0)
    os.read(ready[0], 1)

    log.close()  # as the kernel does for a killed process
    assert len(recovered(store)) == 1
    os.write(proceed[1], b"1")
    os.waitpid(child, 0)


def test_batches_that_the_store_has_are_not_left(store):
    log = StatisticsLog(store)
    log.append([BATCH])
    log.clear()
    log.append([replace(BATCH, sequence=8)])
    log.clear()
    log.close()
    assert list(store.parent.iterdir()) == []


def test_the_empty_file_of_a_killed_producer_is_deleted_after_an_hour(store):
    empty = store.with_name(f"{store.name}.statistics-0123456789abcdef")
    empty.touch()
    assert recovered(store) == [] and empty.exists()
    os.utime(empty, (0, 0))
    assert recovered(store) == [] and not empty.exists()


def test_a_replaced_content_is_read_without_the_earlier_one(store):
    log = StatisticsLog(store)
    log.append([BATCH] * 3)
    log.replace([replace(BATCH, sequence=9)])
    log.append([replace(BATCH, sequence=10)])
    log.close()
    assert [batch.sequence for batch in recovered(store)] == [9, 10]


@pytest.mark.parametrize("names", [("0", "1"), ("1", "0")])
def test_a_kill_while_the_content_is_replaced_counts_no_message_twice(store, names):
    """The older file contains two batches one by one, the newer one their sum with a third one."""
    batches = [Batch("p", number, statistics=(BATCH.statistics[0],)) for number in range(3)]
    older, newer = StatisticsLog(store), StatisticsLog(store)
    older.append(batches[:2])
    newer.append([functools.reduce(sum_by_minute, batches)])
    for log, name, written_at in zip((older, newer), names, (1, 2), strict=True):
        path = log._lock.path
        log.close()
        os.utime(path, (written_at, written_at))
        path.rename(store.with_name(f"{store.name}.statistics-{name * 16}"))

    opened = Store.open(store)
    opened.recover_statistics()
    assert opened.rows("totals")[0]["acknowledged"] == 6


def test_two_processes_that_merge_at_once_keep_the_order_of_two_files(store):
    """Regression: the second process merged the older file while the first one still read the newer file."""
    older, newer = StatisticsLog(store), StatisticsLog(store)
    for log, sequence, written_at in ((older, 1, 1), (newer, 2, 2)):
        log.append([replace(BATCH, sequence=sequence)])
        path = log._lock.path
        log.close()
        os.utime(path, (written_at, written_at))
    merged = []

    def merge(*batches):
        recover(store, lambda *found: merged.extend(found) or len(found))  # another process, in between
        merged.extend(batches)
        return len(batches)

    assert recover(store, merge) == 2
    assert [batch.sequence for batch in merged] == [2, 1]
    assert [path.name for path in store.parent.iterdir()] == []


def test_the_file_stays_until_the_store_takes_the_batches(store):
    log = StatisticsLog(store)
    log.append([BATCH])
    log.close()

    def busy(*batches):
        raise StoreLocked("in use")

    with pytest.raises(StoreLocked):
        recover(store, busy)
    assert len(recovered(store)) == 1


def test_a_line_cut_off_by_a_kill_is_ignored_and_a_damaged_one_is_set_aside(store, caplog):
    log = StatisticsLog(store)
    log.append([BATCH, replace(BATCH, sequence=8)])
    log.close()
    (file,) = store.parent.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-5])
    assert [batch.sequence for batch in recovered(store)] == [7]
    assert list(store.parent.iterdir()) == []

    file.write_bytes(b"{damaged}\n" + content)
    assert [batch.sequence for batch in recovered(store)] == [7, 8]
    (aside,) = store.parent.iterdir()
    assert aside.read_bytes() == b"{damaged}\n" + content and recovered(store) == []


def test_a_file_in_a_form_of_a_later_version_is_left_in_place_and_logged_once(store, caplog, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(schema, "SCHEMA_VERSION", 2)
        log = StatisticsLog(store)
        log.append([BATCH])
        log.close()
    (left,) = store.parent.iterdir()

    assert recovered(store) == recovered(store) == []
    assert list(store.parent.iterdir()) == [left]
    assert caplog.text.count("statistics left for a later version") == 1

    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    assert list(map(plain, recovered(store))) == [BATCH]


def test_a_write_that_fails_leaves_no_part_of_a_line(store, monkeypatch):
    log = StatisticsLog(store)
    log.append([BATCH])
    write = os.write

    def full(file, data):
        monkeypatch.setattr(os, "write", refuse)
        return write(file, data[:10])

    def refuse(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError):
        log.append([replace(BATCH, sequence=8)])
    monkeypatch.setattr(os, "write", write)
    log.append([replace(BATCH, sequence=9)])
    log.close()
    assert [batch.sequence for batch in recovered(store)] == [7, 9]


@pytest.mark.parametrize("error", [TypeError("'a' < 1"), StoreError("Conversion Error"), OverflowError()])
def test_a_file_with_values_that_no_store_takes_is_set_aside_and_the_others_are_merged(store, error):
    """Regression: the recorder of every producer of the store ended, and dead letters of its queue were lost."""
    for sequence in (1, 2):
        log = StatisticsLog(store)
        log.append([replace(BATCH, sequence=sequence)])
        log.close()
    merged = []

    def merge(*batches):
        if batches[0].sequence == 1:
            raise error
        merged.extend(batches)
        return len(batches)

    recover(store, merge)

    assert [one.sequence for one in merged] == [2]
    (aside,) = (path for path in store.parent.iterdir() if "damaged" in path.name)
    assert b'"sequence":1' in aside.read_bytes().replace(b" ", b"")


def test_a_pipe_or_a_link_beside_the_store_is_not_read(store, tmp_path):
    os.mkfifo(f"{store}.statistics-pipe")
    (tmp_path / "elsewhere").write_bytes(b"x\n")
    os.symlink(tmp_path / "elsewhere", f"{store}.statistics-link")
    for name in ("pipe", "link"):
        os.utime(f"{store}.statistics-{name}", (0, 0))

    assert recovered(store) == []
    assert (tmp_path / "elsewhere").read_bytes() == b"x\n"


def test_a_file_that_cannot_be_deleted_does_not_stop_the_recorder(store, monkeypatch, caplog):
    log = StatisticsLog(store)
    log.append([BATCH])
    log.close()

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    recovered(store)
    monkeypatch.undo()

    assert len(recovered(store)) == 1


def test_a_lock_file_of_another_user_is_logged_once_and_the_statistics_stay(store, monkeypatch, caplog):
    """Regression: a lock file that root had left kept them from being merged, without a word."""
    log = StatisticsLog(store)
    log.append([BATCH])
    log.close()

    def refuse(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(statistics_log, "lock_file", refuse)
    assert recovered(store) == recovered(store) == []
    monkeypatch.undo()

    assert caplog.text.count("statistics of ended processes not merged") == 1
    assert "merging-statistics" in caplog.text
    assert len(recovered(store)) == 1
