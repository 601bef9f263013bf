"""Measure how many synced messages a second this disk allows, and how close the journal comes to it.

    python -m benchmarks.group_sync --rounds 5 --folder /var/tmp

The bare loop is the least that `journal_level="power"` can cost: threads append bytes to a list, and one of them writes and
syncs all of them. In the two rows with a client, each thread then also produces its message to a Kafka with one node: by
hand, and with `send_message`. Each round runs every row once, in random order, so that background load affects all rows
equally.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.machine import hardware
from benchmarks.peers import SETTINGS
from benchmarks.stage import Stage
from benchmarks.threads import in_threads
from producer_core import ReliableKafkaProducer
from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.journal.group_sync import GroupSync

_VALUE = bytes(180)
_RECORD_BYTES = 260
_ALLOCATED = 8 << 20
THREADS = (1, 16)
MESSAGES = {1: 1_000, 16: 4_000}
TARGETS = {1: 4_000, 16: 12_000}
"""Messages per second. A disk on which the bare loop is slower cannot reach them."""


class Result(NamedTuple):
    """CPU time per message in microseconds, messages per second, messages per sync, and milliseconds per sync."""

    cpu: float
    rate: float
    group: float
    sync: float


@contextmanager
def bare(folder: Path) -> Iterator[Callable[[int], None]]:
    """Yield a function that returns after its bytes were written and synced by one of the threads."""
    file = os.open(folder / "bare", os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(file, 0, _ALLOCATED)
    data, pending, size, lock = bytes(_RECORD_BYTES), list[bytes](), 0, threading.Lock()

    def sync() -> None:
        parts = pending[:]
        os.pwrite(file, b"".join(parts), (size - _RECORD_BYTES * len(parts)) % (_ALLOCATED // 2))
        os.fdatasync(file)
        del pending[: len(parts)]

    group = GroupSync(sync, lambda: size)

    def append(number: int) -> None:
        nonlocal size
        with lock:
            pending.append(data)
            size = end = size + _RECORD_BYTES
        group.wait(end)

    try:
        yield append
    finally:
        os.close(file)


@contextmanager
def journal(folder: Path) -> Iterator[Callable[[int], None]]:
    """Yield a function that appends a message to a journal with `journal_level="power"`."""
    with Journal.open(folder / "journal", level="power") as opened:
        first = opened.next_sequence
        yield lambda number: opened.append(JournalRecord(first + number, "orders", b"key", _VALUE))


@contextmanager
def client(folder: Path, servers: str, topic: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that does the same as `bare`, and then passes the message to a Kafka client that another thread polls."""
    stopping = threading.Event()
    producer = Producer({"bootstrap.servers": servers, **SETTINGS})

    def poll() -> None:
        while not stopping.is_set():
            producer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        with bare(folder) as append:

            def send(number: int) -> None:
                append(number)
                producer.produce(topic, _VALUE, b"key", on_delivery=_ignore)

            yield send
        producer.flush(60)
    finally:
        stopping.set()
        polling.join()


def _ignore(error: object, message: object) -> None:
    """Receive a delivery report."""


@contextmanager
def producer(folder: Path, servers: str, topic: str) -> Iterator[Callable[[int], None]]:
    """Yield `send_message` of a producer with `journal_level="power"`."""
    with ReliableKafkaProducer(
        servers, journal_dir=folder / "journal", journal_level="power", store=None
    ) as opened:
        yield lambda number: opened.send_message(topic, _VALUE, "key")  # type: ignore[func-returns-value]


BARE, JOURNAL = "bare loop", "`Journal.append`"
CLIENT, PRODUCER = "bare loop, then `produce()`", "`send_message`"
Ways = Mapping[str, Callable[[Path], AbstractContextManager[Callable[[int], None]]]]


def ways(servers: str, topic: str) -> Ways:
    return {
        BARE: bare,
        JOURNAL: journal,
        CLIENT: partial(client, servers=servers, topic=topic),
        PRODUCER: partial(producer, servers=servers, topic=topic),
    }


def measure(
    way: Callable[[Path], AbstractContextManager[Callable[[int], None]]], threads: int, parent: Path
) -> Result:
    """Append the messages of all threads, and count the syncs."""
    syncs, fdatasync, count = [0], os.fdatasync, MESSAGES[threads]

    def counted(file: int) -> None:
        syncs[0] += 1
        fdatasync(file)

    with tempfile.TemporaryDirectory(dir=parent) as folder, way(Path(folder)) as append:
        append(0)
        os.fdatasync = counted  # type: ignore[assignment]
        try:
            cpu, started = time.process_time(), time.perf_counter()
            in_threads(threads, lambda first: _append_all(append, range(first + 1, count + 1, threads)))
            cpu, elapsed = time.process_time() - cpu, time.perf_counter() - started
        finally:
            os.fdatasync = fdatasync
    return Result(1e6 * cpu / count, count / elapsed, count / syncs[0], 1e3 * elapsed / syncs[0])


def _append_all(append: Callable[[int], None], numbers: Iterable[int]) -> None:
    for number in numbers:
        append(number)


def table(results: dict[tuple[str, int], list[Result]]) -> str:
    lines = [
        "| | threads | CPU, µs per message | msg/s, median | lowest to highest | messages per sync | ms per sync |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (way, threads), runs in results.items():
        cpu, rate, group, sync = (median(column) for column in zip(*runs, strict=True))
        spread = f"{min(run.rate for run in runs):,.0f} to {max(run.rate for run in runs):,.0f}"
        lines.append(f"| {way} | {threads} | {cpu:.0f} | {rate:,.0f} | {spread} | {group:.1f} | {sync:.2f} |")
    return "\n".join(lines)


def ratio(
    results: dict[tuple[str, int], list[Result]], own: tuple[str, int], other: tuple[str, int]
) -> float:
    """Return the median of the ratios of the rates within each round."""
    return median(one.rate / two.rate for one, two in zip(results[own], results[other], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.group_sync", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="a folder on the disk to measure"
    )
    options = parser.parse_args()
    with Stage() as stage, stage.broker("one").topic() as where:
        chosen = ways(**where)
        rows = [(way, threads) for way in chosen for threads in THREADS]
        results: dict[tuple[str, int], list[Result]] = {row: [] for row in rows}
        loads = [os.getloadavg()[0]]
        for _ in range(options.rounds):
            for way, threads in random.sample(rows, len(rows)):
                results[way, threads].append(measure(chosen[way], threads, options.folder))
            loads.append(os.getloadavg()[0])
    print(table(results))
    print()
    for own, floor in ((JOURNAL, BARE), (PRODUCER, CLIENT)):
        print(f"{own}: 16 threads vs. one: {ratio(results, (own, 16), (own, 1)):.1f}x (target: at least 3x).")
        for threads in THREADS:
            rate = median(run.rate for run in results[own, threads])
            share = ratio(results, (own, threads), (floor, threads))
            print(
                f"{own}, threads: {threads}: {rate:,.0f} messages/s (target: at least {TARGETS[threads]:,}), {share:.2f}x "
                f"the {floor}."
            )
    print(f"Machine: {hardware()}. Load average: {min(loads):.0f} to {max(loads):.0f}.")


if __name__ == "__main__":
    main()
