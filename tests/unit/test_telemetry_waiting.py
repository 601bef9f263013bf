"""What waits to be published: in order, within its bounds, and on disk where there is a folder."""

from __future__ import annotations

import random
import shutil
import uuid

import pytest

from producer_core.metrics.telemetry import decode
from producer_core.metrics.telemetry.recent_windows import RecentWindows
from producer_core.metrics.telemetry.send_queue import LostBatches, QueueBounds, SendQueue
from producer_core.store import Batch, LatencyRow, StatisticsRow
from tests.ledgers import Acked, ledger_rows, producer_row

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


def waiting(folder, batches=100, bytes=1 << 20):
    return SendQueue(folder, bounds=QueueBounds(batches, bytes))


def taken(room, most=1000):
    return [decode(value) for _, value in room.next(most)]


def acknowledged(found):
    return sum(row.acknowledged for one in found for row in one.statistics)


def test_what_was_put_in_comes_out_in_order_until_it_is_done(folder):
    room = waiting(folder)
    for number in range(5):
        room.put(batch(number))
    assert taken(room, 3) == [batch(0), batch(1), batch(2)]

    room.done(room.next(1)[0][0])
    assert taken(room) == [batch(number) for number in range(1, 5)]
    assert len(room) == 4


def test_beyond_the_bound_statistics_are_added_up_and_none_is_lost(folder):
    room = waiting(folder, batches=10)
    for number in range(200):
        room.put(batch(number))

    found = taken(room)
    assert len(found) == 10 and not room.lost()
    assert acknowledged(found) == 400
    assert sum(row.count for one in found for row in one.latencies) == 400
    covered = [number for one in found for number in range(one.begins, one.sequence + 1)]
    assert covered == list(range(200))


def test_what_the_client_had_is_never_added_up_with_another(folder):
    room = waiting(folder, batches=4)
    for number in range(3):
        room.put(batch(number))
    assert taken(room, 2) == [batch(0), batch(1)]
    for number in range(3, 50):
        room.put(batch(number))

    found = taken(room)
    assert found[:2] == [batch(0), batch(1)]
    assert [(one.begins, one.sequence) for one in found[2:]] == [(2, 48), (49, 49)]


def test_the_oldest_ledger_rows_are_given_up_before_any_statistics_and_it_is_told(folder):
    room = waiting(folder, bytes=40_000)
    for number in range(20):
        room.put(batch(number, acks=3000))

    lost, found = room.lost(), taken(room)
    assert lost.acknowledgements > 0 and lost.batches == 0
    assert acknowledged(found) == 40
    assert sum(one.ledger_lost for one in found) == lost.acknowledgements
    kept = [one for one in found if one.ledger]
    assert kept and kept == found[-len(kept) :]  # the newest
    assert sum(one.acknowledgements for one in found) + lost.acknowledgements == 60_000
    assert not room.lost()


def test_at_last_the_oldest_batches_are_given_up_and_counted(folder):
    room = waiting(folder, batches=3)
    for number in range(3):
        room.put(batch(number, acks=5))
    taken(room)
    room.put(batch(3))
    assert [one.sequence for one in taken(room)] == [1, 2, 3]
    assert (room.lost().batches, room.lost().acknowledgements) == (1, 0)


def test_an_hour_without_the_topic_fits(folder):
    room = SendQueue(folder, bounds=QueueBounds(300, 1 << 20))
    for number in range(900):
        room.put(batch(number))
    assert not room.lost() and acknowledged(taken(room)) == 1800


# on disk


def test_a_process_that_was_killed_leaves_what_was_not_sent_to_the_next(tmp_path):
    room = waiting(tmp_path / "t")
    for number in range(5):
        room.put(batch(number, acks=10))
    for entry, _ in room.next(2):
        room.done(entry)

    again = waiting(tmp_path / "t")
    assert taken(again) == taken(room) and len(again) == 3
    assert again.counts["found"] == 3


def test_what_was_left_is_not_added_up_for_the_topic_may_have_it(tmp_path):
    room = waiting(tmp_path / "t")
    for number in range(3):
        room.put(batch(number))
    again = waiting(tmp_path / "t", batches=4)
    for number in range(3, 30):
        again.put(batch(number))
    assert [(one.begins, one.sequence) for one in taken(again)] == [(0, 0), (1, 1), (2, 2), (3, 29)]


def test_a_process_that_was_killed_while_it_added_up_leaves_nothing_twice(tmp_path):
    room = waiting(tmp_path / "t", batches=3)
    for number in range(3):
        room.put(batch(number))
    shutil.copytree(tmp_path / "t", tmp_path / "before")
    room.put(batch(3))
    for path in (tmp_path / "before").iterdir():  # the parts are there still, beside their sum
        shutil.copy(path, tmp_path / "t")
    (tmp_path / "t" / "000000000004-000000000004-p1.new").write_bytes(b"half")

    found = taken(waiting(tmp_path / "t"))
    assert acknowledged(found) == 8
    assert [(one.begins, one.sequence) for one in found] == [(0, 1), (2, 2), (3, 3)]


def test_after_a_restart_too_the_oldest_ledger_rows_are_given_up_first_and_counted(tmp_path):
    room = waiting(tmp_path / "t")
    for number in range(5):
        room.put(batch(number, acks=3000))

    again = waiting(tmp_path / "t", bytes=80_000)
    for number in range(5, 8):
        again.put(batch(number, acks=3000))

    found, lost = taken(again), again.lost()
    assert acknowledged(found) == 16
    assert [bool(one.ledger) for one in found] == sorted(bool(one.ledger) for one in found)
    assert found[-1].ledger and not found[0].ledger
    assert lost.batches == 0 and sum(one.ledger_lost for one in found) == lost.acknowledgements > 0
    assert sum(one.acknowledgements for one in found) + lost.acknowledgements == 24_000
    assert taken(waiting(tmp_path / "t", bytes=80_000)) == found  # the disk says the same


def test_what_an_earlier_process_left_is_counted_when_it_has_no_room(tmp_path):
    room = waiting(tmp_path / "t")
    for number in range(3):
        room.put(batch(number, acks=100))
    again = waiting(tmp_path / "t", batches=3)
    for number in range(3, 5):
        again.put(batch(number, acks=100))

    assert [(one.begins, one.sequence, one.acknowledgements) for one in taken(again)] == [
        (1, 1, 100),
        (2, 2, 100),
        (3, 4, 200),
    ]
    assert again.lost() == LostBatches(1, 100)


def test_where_only_batches_are_too_many_ledgers_are_given_up_only_to_join_what_has_them(folder):
    room = SendQueue(folder, bounds=QueueBounds(4, 1 << 20, joined_bytes=40_000))
    for number in range(6):
        room.put(batch(number, acks=2500))

    found, lost = taken(room), room.lost()
    assert len(found) == 4 and acknowledged(found) == 12
    assert lost.batches == 0 and lost.acknowledgements < 15_000
    assert all(one.ledger for one in found[-2:])


def test_a_process_that_was_killed_while_it_gave_up_ledger_rows_leaves_one_of_both(tmp_path):
    room = waiting(tmp_path / "t", bytes=20_000)
    room.put(batch(0, acks=2000))
    taken(room)
    shutil.copytree(tmp_path / "t", tmp_path / "before")
    room.put(batch(1, acks=2000))
    for path in (tmp_path / "before").iterdir():  # it is there still, beside what is left of it
        shutil.copy(path, tmp_path / "t")

    found = taken(waiting(tmp_path / "t", bytes=20_000))
    assert [(one.sequence, one.ledger_lost, one.acknowledgements) for one in found] == [
        (0, 2000, 0),
        (1, 0, 2000),
    ]
    assert len(list((tmp_path / "t").iterdir())) == 2


def test_what_is_none_of_ours_beside_what_waits_is_left_alone(tmp_path):
    (tmp_path / "t" / "lost+found").mkdir(parents=True)
    (tmp_path / "t" / "half.new").mkdir()
    (tmp_path / "t" / "notes.txt").write_text("of a person")
    waiting(tmp_path / "t").put(batch(0))

    room = waiting(tmp_path / "t")
    assert taken(room) == [batch(0)] and room.on_disk
    assert {path.name for path in (tmp_path / "t").iterdir()} > {"lost+found", "half.new", "notes.txt"}


def test_a_file_that_is_damaged_is_lost_and_told_and_the_others_are_sent(tmp_path, caplog):
    room = waiting(tmp_path / "t")
    for number in range(3):
        room.put(batch(number))
    sorted((tmp_path / "t").iterdir())[1].write_bytes(b"damaged")

    assert [one.sequence for one in taken(waiting(tmp_path / "t"))] == [0, 2]
    assert "queued telemetry is damaged" in [record.message for record in caplog.records]


def test_where_the_disk_takes_nothing_telemetry_waits_in_memory(tmp_path, caplog):
    (tmp_path / "t").write_text("a file in the folder's place")
    room = waiting(tmp_path / "t")
    room.put(batch(0))
    assert taken(room) == [batch(0)] and not room.on_disk


# how many are on the topic


def test_most_windows_fail_when_more_than_half_of_five_minutes_are_not_on_the_topic():
    latest = RecentWindows()
    for number in range(300):
        latest.made(number, 1000.0 + number)
        if number < 140:
            latest.sent(number, number)
    share = latest.share(1299.0)
    assert (share.failed, share.windows) == (149, 289) and share.most  # the newest eleven may be on their way

    latest.sent(0, 299)  # added up, and sent when the topic came back
    assert latest.share(1299.0).failed == 0 and not latest.share(1299.0).most


def test_a_producer_that_has_just_begun_is_not_judged():
    latest = RecentWindows()
    for number in range(20):
        latest.made(number, 1000.0 + number)
    assert not latest.share(1020.0).most and not latest.share(1000.0).windows
