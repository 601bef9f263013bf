"""The spill file: durable, private, read once, and tolerant of a truncated last line."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace

import pytest

from producer_core.dlq import DeadLetters, Spill
from producer_core.errors import StoreUnavailable
from producer_core.store import Store
from tests.fixtures.dead_letters import WHOLE, dead_letter


@pytest.fixture
def spill(tmp_path):
    return Spill(tmp_path / "state" / "spill.jsonl")


def test_spilled_dead_letters_are_read_once_and_unchanged_without_the_application(spill):
    spill.append([WHOLE, dead_letter(2, value=None)])
    spill.append([dead_letter(3)])

    assert spill.take() == [replace(WHOLE, application=""), dead_letter(2, value=None), dead_letter(3)]
    assert spill.take() == []
    assert not spill.path.exists()


def test_only_the_owner_can_read_the_spill_file_and_its_folder(spill):
    spill.append([dead_letter(1)])

    assert stat.S_IMODE(spill.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spill.path.parent.stat().st_mode) == 0o700


def test_a_truncated_last_line_is_logged_and_moved_to_another_file(spill, caplog):
    spill.append([dead_letter(1)])
    with spill.path.open("ab") as file:
        file.write(b'{"message_id": "m-2", "topi')

    spill.append([dead_letter(3)])

    assert [one.message_id for one in spill.take()] == ["m-1", "m-3"]
    damaged = spill.path.with_name("spill.jsonl.damaged")
    assert f"damaged lines moved out of the spill file: path={damaged}, count=1" in caplog.messages
    assert damaged.read_bytes() == b'{"message_id": "m-2", "topi\n'
    assert stat.S_IMODE(damaged.stat().st_mode) == 0o600


@pytest.mark.parametrize("line", [b"null", b"[]", b"{}", b'{"key": 1}', b"\xff\xfe", b'{"message_id":"x"}'])
def test_an_invalid_line_does_not_affect_the_others(spill, line, caplog):
    spill.append([dead_letter(1)])
    with spill.path.open("ab") as file:
        file.write(line + b"\n")
    spill.append([dead_letter(2)])

    assert len(spill.take()) == 2


def test_dead_letters_that_cannot_be_stored_stay_in_the_file(spill):
    spill.append([dead_letter(1)])

    with pytest.raises(ZeroDivisionError):
        with spill.taking() as dead_letters:
            assert len(dead_letters) == 1
            raise ZeroDivisionError

    assert spill.take() == [dead_letter(1)]


@pytest.mark.slow
def test_a_kill_between_store_and_spill_file_duplicates_nothing(spill, tmp_path):
    dead_letters = DeadLetters(Store.open(tmp_path / "store.duckdb"))
    spill.append([dead_letter(1), dead_letter(2)])
    child = os.fork()
    if child == 0:
        with spill.taking() as spilled:
            DeadLetters(Store.open(tmp_path / "store.duckdb")).add(spilled)
            os._exit(9)
    os.waitpid(child, 0)

    with spill.taking() as spilled:
        dead_letters.add(spilled)

    assert dead_letters.bodies(["m-1", "m-2"]) == [dead_letter(1), dead_letter(2)]
    assert not spill


def test_concurrent_readers_get_each_dead_letter_once(spill):
    spill.append([dead_letter(number) for number in range(20)])
    taken, start = [], threading.Barrier(4)

    def take():
        start.wait()
        taken.extend(Spill(spill.path).take())

    threads = [threading.Thread(target=take) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(taken) == 20


def test_dead_letters_appended_during_reads_are_not_lost(spill):
    taken, done = [], threading.Event()

    def take():
        while not done.is_set():
            taken.extend(Spill(spill.path).take())

    thread = threading.Thread(target=take)
    thread.start()
    for number in range(30):
        spill.append([dead_letter(number)])
    done.set()
    thread.join()

    taken.extend(spill.take())
    assert sorted(one.message_id for one in taken) == sorted(f"m-{number}" for number in range(30))


def test_a_failed_write_raises_store_unavailable(tmp_path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreUnavailable, match=r"cannot be written.*dead letters are in memory"):
        Spill(tmp_path / "file" / "spill.jsonl").append([dead_letter(1)])
