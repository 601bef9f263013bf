"""Test one store with many real processes: no process gets a lock error, and no acknowledged data is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import subprocess
import time

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters, Spill
from producer_core.errors import StoreFull, StoreLocked
from producer_core.events import DeadLetter
from producer_core.store import Batch, LatencyRow, ProducerRow, StatisticsRow, Store
from tests.support import eventually

pytestmark = pytest.mark.slow

processes = multiprocessing.get_context("spawn")
TOPICS = 10


def batch(producer, sequence):
    now = int(time.time())
    where = [(now, "c", producer, f"topic-{number}") for number in range(TOPICS)]
    return Batch(
        producer,
        sequence,
        tuple(StatisticsRow(*one, 1, 1, 0, 0, 0, 0, 0, 0, 100, 0.01) for one in where),
        tuple(LatencyRow(*one, bucket, 1) for one in where for bucket in range(100, 110)),
        producer=ProducerRow(
            *(producer, "c", "client", "host", os.getpid(), "0.1", 1.0, time.time(), None, True, None),
            *(0, 0, 0, 10, 1, None, True, "at_least_once", "{}"),
        ),
    )


def dead_letter(producer, number):
    return DeadLetter(
        *(f"{producer}-{number}", "c", producer, "orders", b"key", b"value" * 40, (("a", b"1"),), None, None),
        *("rejected", "one transmission", "permanent", "X", "boom", "f", (), 1.0, time.time()),
    )


def write(path, producer, seconds, every, said):
    """Act as a producer: store one batch and one dead letter at a time, and report each pair once it is stored."""
    store, end, sequence = Store.open(path), time.monotonic() + seconds, 0
    dead_letters = DeadLetters(store)
    try:
        while time.monotonic() < end:
            assert store.append(batch(producer, sequence))
            dead_letters.add([dead_letter(producer, sequence)])
            store.maintain(time.time())
            sequence += 1
            said.send(sequence)
            time.sleep(every)
    except Exception as error:
        said.send(repr(error))


def use_dashboard(path, producer, seconds, every, said):
    """Act as a dashboard: run the queries of a page repeatedly."""
    store, end, looks = Store.open(path, create=False), time.monotonic() + seconds, 0
    dead_letters = DeadLetters(store)
    try:
        while time.monotonic() < end:
            since = time.time() - 900
            store.table("series", since=since, bucket=5)
            store.table("latency_buckets_by_window", since=since, bucket_seconds=5)
            store.rows("producers")
            dead_letters.find(DeadLetterFilter(state=None), limit=50)
            looks += 1
            time.sleep(every)
        said.send(looks)
    except Exception as error:
        said.send(repr(error))


def use_command_line(path, who, seconds, every, said):
    """Act as the command line: archive and restore dead letters, change a setting, and take a lease."""
    end, acts = time.monotonic() + seconds, 0
    try:
        while not acts or time.monotonic() < end:
            store = Store.open(path)
            dead_letters = DeadLetters(store)
            cleared = dead_letters.archive(DeadLetterFilter(), who=who, origin="cli")
            brought = dead_letters.restore(DeadLetterFilter(), who=who, origin="cli", moment=cleared.moment)
            assert brought.count == cleared.count
            store.set_setting("looked_at", acts)
            store.take_lease("alerts", who, 15, time.time())
            acts += 1
            time.sleep(every)
        said.send(acts)
    except Exception as error:
        said.send(repr(error))


def start(role, path, *args):
    heard, said = processes.Pipe(duplex=False)
    process = processes.Process(target=role, args=(path, *args, said), daemon=True)
    process.start()
    said.close()
    return process, heard


def last_message(heard):
    word = None
    try:
        while heard.poll(60):
            word = heard.recv()
    except EOFError:
        return word
    raise AssertionError("a process did not end")


def test_a_producer_two_dashboards_and_a_shell_share_a_store(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path)

    everyone = [
        start(write, path, "p-1", 8, 0.1),
        start(write, path, "p-2", 8, 1.0),
        start(use_dashboard, path, "", 8, 0.2),
        start(use_dashboard, path, "", 8, 0.2),
        start(use_command_line, path, "ada", 8, 0.5),
    ]
    first, second, *others = [last_message(heard) for _, heard in everyone]
    [process.join() for process, _ in everyone]

    assert all(isinstance(word, int) and word > 0 for word in (first, second, *others)), (
        first,
        second,
        others,
    )
    store = Store.open(path)
    assert store.rows("totals")[0]["acknowledged"] == TOPICS * (first + second)
    assert sum(row["count"] for row in store.rows("latency_buckets")) == 10 * TOPICS * (first + second)
    assert DeadLetters(store).count_by(DeadLetterFilter(), "state") == {"dead": first + second}
    assert not path.with_name("store.duckdb.wal").exists()


def test_no_acknowledged_batch_is_lost_when_writers_are_killed(tmp_path):
    path, rng = tmp_path / "store.duckdb", random.Random(20)
    acknowledged = {}
    for number in range(20):
        producer = f"p-{number}"
        process, heard = start(write, path, producer, 60, 0.0)
        assert heard.poll(60)
        time.sleep(rng.uniform(0.0, 0.25))  # each process is killed at a different moment
        process.kill()
        process.join()
        acknowledged[producer] = last_message(heard)

    store = Store.open(path, create=False)
    dead_letters = DeadLetters(store)
    for producer, count in acknowledged.items():
        rows = store.rows("totals", producer=producer)[0]["acknowledged"]
        assert rows % TOPICS == 0  # no partial batch
        assert count <= rows // TOPICS <= count + 1  # at most one batch was stored but not reported
        assert count <= dead_letters.count(DeadLetterFilter(producer_id=producer)) <= count + 1
    assert store.append(batch("after", 0))


def test_many_processes_can_create_a_store_at_the_same_time(tmp_path):
    for round in range(3):
        path = tmp_path / str(round) / "store.duckdb"
        everyone = [start(use_command_line, path, str(number), 0.2, 0.05) for number in range(4)]
        words = [last_message(heard) for _, heard in everyone]
        [process.join() for process, _ in everyone]

        assert all(isinstance(word, int) and word > 0 for word in words), words
        assert Store.open(path).info().schema_version >= 1


def hold(path, who, said):
    with Store.open(path).borrow(write=True):
        said.send(os.getpid())
        time.sleep(60)


def test_the_error_names_a_stopped_process_that_locks_the_store(tmp_path):
    path = tmp_path / "store.duckdb"
    store = Store.open(path)
    process, heard = start(hold, path, "")
    try:
        holder = heard.recv()
        os.kill(holder, 19)  # SIGSTOP, as with a suspended laptop or a debugger

        with pytest.raises(StoreLocked, match=f"process {holder}"):
            with store.borrow(timeout=0.3):
                pass
    finally:
        process.kill()
        process.join()
    assert eventually(lambda: store.append(batch("p", 0)))


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 8 MB, which requires root. Without root the test fails, because it must not be skipped."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.getuid() != 0:
        pytest.fail("The test of a full disk mounts a small tmpfs: run the service tests as root.")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_no_acknowledged_data_and_the_store_recovers(small_disk):
    store = Store.open(small_disk / "state" / "store.duckdb")
    dead_letters, spill = DeadLetters(store), Spill(small_disk / "state" / "spill.jsonl")
    assert store.append(batch("p", 0))
    ballast = small_disk / "ballast"

    kept = 0
    with (
        ballast.open("wb") as file,
        pytest.raises(StoreFull, match=r"is full; committed data is safe.*Free some space"),
    ):
        while True:
            dead_letters.add([dead_letter("p", kept)])
            kept += 1
            file.write(os.urandom(min(200_000, max(0, shutil.disk_usage(small_disk).free - 20_000))))
            file.flush()

    for _ in range(3):
        with pytest.raises(StoreFull):
            dead_letters.add([dead_letter("q", number) for number in range(500)])
    assert store.rows("totals")[0]["acknowledged"] == TOPICS  # reads still work
    assert dead_letters.count(DeadLetterFilter()) == kept
    with pytest.raises(StoreFull, match="spill file"):
        spill.append([dead_letter("q", number) for number in range(5000)])
    assert spill.take() == []  # no partial write

    ballast.unlink()
    dead_letters.add([dead_letter("q", number) for number in range(500)])
    assert store.append(batch("p", 1))
    assert dead_letters.count(DeadLetterFilter()) == kept + 500
    assert dead_letters.bodies(["p-0", f"p-{kept - 1}"])[0].value == b"value" * 40


def test_a_failed_store_creation_on_a_full_disk_is_reported(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 8192))

    with pytest.raises(StoreFull, match="is full"):
        Store.open(small_disk / "state" / "store.duckdb")

    (small_disk / "ballast").unlink()
    assert Store.open(small_disk / "state" / "store.duckdb").append(batch("p", 0))
