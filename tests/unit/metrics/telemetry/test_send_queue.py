"""The queue of unsent batches: in order, within its bounds, and on disk with a folder."""

from __future__ import annotations

import random
import shutil
import uuid

import pytest

from producer_core.metrics.telemetry import decode
from producer_core.metrics.telemetry.recent_windows import RecentWindows
from producer_core.metrics.telemetry.send_queue import LostBatches, QueueBounds, SendQueue
from producer_core.store import Batch, LatencyRow, StatisticsRow
from tests.fixtures.ledgers import Acked, ledger_rows, producer_row

CHANCE = random.Random(7)
SESSION = uuid.UUID("018bcfe5-6800-7000-8000-000000000001")


def batch(sequence, acks=0):
    where = (1_700_000_000 + sequence, "cluster", "p1", "orders")
    return Batch(
        "p1",
        sequence,
        statistics=(StatisticsRow(*where, 3, 2, 1, 1, 0, 0, 0, 0, 200, 0.5),),
        latencies=(LatencyRow(*where, 42, 2),),
        producer=producer_row("p1", "cluster"),
        ledger=ledger_rows(
            Acked(SESSION, seq, "orders", 0, CHANCE.randrange(1 << 30)) for seq in range(acks)
        ),
    )


@pytest.fixture(params=["memory", "disk"])
def folder(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "telemetry"


def make_queue(folder, batches=100, bytes=1 << 20):
    return SendQueue(folder, bounds=QueueBounds(batches, bytes))


def next_batches(queue, most=1000):
    return [decode(value) for _, value in queue.next(most)]


def acknowledged(found):
    return sum(row.acknowledged for one in found for row in one.statistics)


def test_batches_are_returned_in_order_until_they_are_done(folder):
    queue = make_queue(folder)
    for number in range(5):
        queue.put(batch(number))
    assert next_batches(queue, 3) == [batch(0), batch(1), batch(2)]

    queue.done(queue.next(1)[0][0])
    assert next_batches(queue) == [batch(number) for number in range(1, 5)]
    assert len(queue) == 4


def test_batches_beyond_the_bound_are_joined_and_none_is_lost(folder):
    queue = make_queue(folder, batches=10)
    for number in range(200):
        queue.put(batch(number))

    found = next_batches(queue)
    assert len(found) == 10 and not queue.lost()
    assert acknowledged(found) == 400
    assert sum(row.count for one in found for row in one.latencies) == 400
    covered = [number for one in found for number in range(one.begins, one.sequence + 1)]
    assert covered == list(range(200))


def test_a_batch_that_was_sent_is_never_joined(folder):
    queue = make_queue(folder, batches=4)
    for number in range(3):
        queue.put(batch(number))
    assert next_batches(queue, 2) == [batch(0), batch(1)]
    for number in range(3, 50):
        queue.put(batch(number))

    found = next_batches(queue)
    assert found[:2] == [batch(0), batch(1)]
    assert [(one.begins, one.sequence) for one in found[2:]] == [(2, 48), (49, 49)]


@pytest.mark.slow
def test_the_oldest_ledger_rows_are_dropped_and_counted_before_any_statistics(folder):
    queue = make_queue(folder, bytes=40_000)
    for number in range(20):
        queue.put(batch(number, acks=3000))

    lost, found = queue.lost(), next_batches(queue)
    assert lost.acknowledgements > 0 and lost.batches == 0
    assert acknowledged(found) == 40
    assert sum(one.ledger_lost for one in found) == lost.acknowledgements
    kept = [one for one in found if one.ledger]
    assert kept and kept == found[-len(kept) :]  # the newest
    assert sum(one.acknowledgements for one in found) + lost.acknowledgements == 60_000
    assert not queue.lost()


def test_the_oldest_batches_are_dropped_and_counted_last(folder):
    queue = make_queue(folder, batches=3)
    for number in range(3):
        queue.put(batch(number, acks=5))
    next_batches(queue)
    queue.put(batch(3))
    assert [one.sequence for one in next_batches(queue)] == [1, 2, 3]
    assert (queue.lost().batches, queue.lost().acknowledgements) == (1, 0)


@pytest.mark.slow
def test_an_outage_of_fifteen_minutes_loses_no_statistics(folder):
    queue = SendQueue(folder, bounds=QueueBounds(300, 1 << 20))
    for number in range(900):
        queue.put(batch(number))
    assert not queue.lost() and acknowledged(next_batches(queue)) == 1800


# on disk


def test_the_next_process_finds_the_unsent_batches_of_a_killed_one(tmp_path):
    queue = make_queue(tmp_path / "t")
    for number in range(5):
        queue.put(batch(number, acks=10))
    for entry, _ in queue.next(2):
        queue.done(entry)

    again = make_queue(tmp_path / "t")
    assert next_batches(again) == next_batches(queue) and len(again) == 3
    assert again.counts["found"] == 3


def test_batches_of_an_earlier_process_are_not_joined(tmp_path):
    queue = make_queue(tmp_path / "t")
    for number in range(3):
        queue.put(batch(number))
    again = make_queue(tmp_path / "t", batches=4)
    for number in range(3, 30):
        again.put(batch(number))
    assert [(one.begins, one.sequence) for one in next_batches(again)] == [(0, 0), (1, 1), (2, 2), (3, 29)]


def test_a_process_killed_during_a_join_leaves_no_batch_twice(tmp_path):
    queue = make_queue(tmp_path / "t", batches=3)
    for number in range(3):
        queue.put(batch(number))
    shutil.copytree(tmp_path / "t", tmp_path / "before")
    queue.put(batch(3))
    for path in (tmp_path / "before").iterdir():  # the parts still exist beside the joined batch
        shutil.copy(path, tmp_path / "t")
    (tmp_path / "t" / "000000000004-000000000004-p1.new").write_bytes(b"incomplete")

    found = next_batches(make_queue(tmp_path / "t"))
    assert acknowledged(found) == 8
    assert [(one.begins, one.sequence) for one in found] == [(0, 1), (2, 2), (3, 3)]


@pytest.mark.slow
def test_the_oldest_ledger_rows_are_dropped_first_after_a_restart_too(tmp_path):
    queue = make_queue(tmp_path / "t")
    for number in range(5):
        queue.put(batch(number, acks=3000))

    again = make_queue(tmp_path / "t", bytes=80_000)
    for number in range(5, 8):
        again.put(batch(number, acks=3000))

    found, lost = next_batches(again), again.lost()
    assert acknowledged(found) == 16
    assert [bool(one.ledger) for one in found] == sorted(bool(one.ledger) for one in found)
    assert found[-1].ledger and not found[0].ledger
    assert lost.batches == 0 and sum(one.ledger_lost for one in found) == lost.acknowledgements > 0
    assert sum(one.acknowledgements for one in found) + lost.acknowledgements == 24_000
    assert next_batches(make_queue(tmp_path / "t", bytes=80_000)) == found  # the files have the same content


def test_dropped_batches_of_an_earlier_process_are_counted(tmp_path):
    queue = make_queue(tmp_path / "t")
    for number in range(3):
        queue.put(batch(number, acks=100))
    again = make_queue(tmp_path / "t", batches=3)
    for number in range(3, 5):
        again.put(batch(number, acks=100))

    assert [(one.begins, one.sequence, one.acknowledgements) for one in next_batches(again)] == [
        (1, 1, 100),
        (2, 2, 100),
        (3, 4, 200),
    ]
    assert again.lost() == LostBatches(1, 100)


def test_ledger_rows_are_dropped_for_the_batch_bound_only_if_that_allows_a_join(folder):
    queue = SendQueue(folder, bounds=QueueBounds(4, 1 << 20, joined_bytes=40_000))
    for number in range(6):
        queue.put(batch(number, acks=2500))

    found, lost = next_batches(queue), queue.lost()
    assert len(found) == 4 and acknowledged(found) == 12
    assert lost.batches == 0 and lost.acknowledgements < 15_000
    assert all(one.ledger for one in found[-2:])


def test_a_process_killed_while_it_dropped_ledger_rows_leaves_one_batch(tmp_path):
    queue = make_queue(tmp_path / "t", bytes=20_000)
    queue.put(batch(0, acks=2000))
    next_batches(queue)
    shutil.copytree(tmp_path / "t", tmp_path / "before")
    queue.put(batch(1, acks=2000))
    for path in (tmp_path / "before").iterdir():  # the complete batch still exists beside the reduced one
        shutil.copy(path, tmp_path / "t")

    found = next_batches(make_queue(tmp_path / "t", bytes=20_000))
    assert [(one.sequence, one.ledger_lost, one.acknowledgements) for one in found] == [
        (0, 2000, 0),
        (1, 0, 2000),
    ]
    assert len(list((tmp_path / "t").iterdir())) == 2


def test_foreign_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "t" / "lost+found").mkdir(parents=True)
    (tmp_path / "t" / "half.new").mkdir()
    (tmp_path / "t" / "notes.txt").write_text("notes of an operator")
    make_queue(tmp_path / "t").put(batch(0))

    queue = make_queue(tmp_path / "t")
    assert next_batches(queue) == [batch(0)] and queue.on_disk
    assert {path.name for path in (tmp_path / "t").iterdir()} > {"lost+found", "half.new", "notes.txt"}


def test_a_damaged_file_is_dropped_and_logged_and_the_others_are_sent(tmp_path, caplog):
    queue = make_queue(tmp_path / "t")
    for number in range(3):
        queue.put(batch(number))
    damaged = sorted((tmp_path / "t").iterdir())[1]
    damaged.write_bytes(b"damaged")

    assert [one.sequence for one in next_batches(make_queue(tmp_path / "t"))] == [0, 2]
    assert f"queued telemetry is damaged: path={damaged}" in caplog.text


def test_batches_are_kept_in_memory_if_the_disk_refuses_them(tmp_path, caplog):
    (tmp_path / "t").write_text("a file in the folder's place")
    queue = make_queue(tmp_path / "t")
    queue.put(batch(0))
    assert next_batches(queue) == [batch(0)] and not queue.on_disk


# the share of failed windows


def test_most_windows_fail_if_more_than_half_of_five_minutes_are_not_on_the_topic():
    windows = RecentWindows()
    for number in range(300):
        windows.made(number, 1000.0 + number)
        if number < 140:
            windows.sent(number, number)
    share = windows.share(1299.0)
    # The newest eleven windows may still be in flight.
    assert (share.failed, share.windows) == (149, 289) and share.most

    windows.sent(0, 299)  # joined, and sent when the topic is available again
    assert windows.share(1299.0).failed == 0 and not windows.share(1299.0).most


def test_a_new_producer_has_too_few_windows_for_a_failing_share():
    windows = RecentWindows()
    for number in range(20):
        windows.made(number, 1000.0 + number)
    assert not windows.share(1020.0).most and not windows.share(1000.0).windows
