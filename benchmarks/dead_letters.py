"""Measure listing, paging, counting and grouping of ten million dead letters, by every filter.

    python -m benchmarks.dead_letters --count 10000000 --runs 9

The benchmark creates a store in a temporary folder, or in --folder, where a later run reuses it. Then it runs each query
several times in random order. Each query borrows and returns the store, as a command does.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import duckdb

from benchmarks import dead_letter_store
from benchmarks.machine import hardware
from producer_core.dlq import DeadLetterFilter, DeadLetters, PageCursor
from producer_core.events import DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.store import Store

DAY = 86_400.0
BOUND = 0.3
_TIMEOUT_S = 60.0
"""Seconds until a query is cancelled; long enough to measure slow queries."""


@dataclass(frozen=True)
class Timing:
    """Wall time and CPU time in seconds."""

    wall: float
    cpu: float


Query = Callable[[DeadLetters, DeadLetterFilter], object]
Timings = Mapping[tuple[str, str], Sequence[Timing]]

QUERIES: Mapping[str, Query] = {
    "list": lambda dead, where: dead.page(where, limit=50),
    "later page": lambda dead, where: dead.page(
        where, limit=50, after=PageCursor(dead_letter_store.START + dead_letter_store.SPAN / 2, "")
    ),
    "count": lambda dead, where: dead.count(where),
    "count by verdict": lambda dead, where: dead.count_by(where, "verdict"),
    "groups": lambda dead, where: dead.groups(where, limit=20),
}


def filters(count: int) -> Mapping[str, DeadLetterFilter]:
    """Return one filter per field and some combinations; the values are frequent ones."""
    middle, number = dead_letter_store.START + dead_letter_store.SPAN / 2, count // 2
    code, _, text = dead_letter_store.CODES[2]
    one = dead_letter_store.message_id(number)
    hundred = tuple(dead_letter_store.message_id(number + step) for step in range(100))
    return {
        "state: dead (the default)": DeadLetterFilter(),
        "state: any": DeadLetterFilter(state=None),
        "topic": DeadLetterFilter(topic="orders"),
        "group": DeadLetterFilter(group=fingerprint(code, text.replace("{n}", "7"))),
        "code": DeadLetterFilter(code="_MSG_TIMED_OUT"),
        "verdict": DeadLetterFilter(verdict="rejected"),
        "cluster_id": DeadLetterFilter(cluster_id="prod-eu"),
        "producer_id": DeadLetterFilter(producer_id=one.rpartition("-")[0]),
        "since, until: a week, to the millisecond": DeadLetterFilter(
            since=middle - 5 * DAY + 0.123, until=middle + 2 * DAY + 0.456
        ),
        "since: the last hour": DeadLetterFilter(
            since=dead_letter_store.START + dead_letter_store.SPAN - 3600
        ),
        "topic, verdict, since": DeadLetterFilter(topic="orders", verdict="rejected", since=middle),
        "key": DeadLetterFilter(key="customer-4711"),
        "message_id": DeadLetterFilter(message_id=one, state=None),
        "ids: a hundred": DeadLetterFilter(ids=hundred, state=None),
        "text in the error (no index)": DeadLetterFilter(text="ELECTION"),
    }


def measure(
    dead: DeadLetters, chosen: Mapping[str, DeadLetterFilter], *, runs: int, log: Callable[[str], None]
) -> Timings:
    """Run every query with every filter `runs` times, once per round, in random order."""
    pairs = [(name, query) for name in chosen for query in QUERIES]
    timings: dict[tuple[str, str], list[Timing]] = {pair: [] for pair in pairs}
    for number in range(runs):
        random.Random(number).shuffle(pairs)
        for name, query in pairs:
            timings[name, query].append(timed(partial(QUERIES[query], dead, chosen[name])))
        log(f"round {number + 1} of {runs}")
    return timings


def timed(act: Callable[[], object]) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


class SlowQueryStore(Store):
    """A store that cancels queries after a minute instead of two seconds, so that slow queries are measured."""

    def borrow(self, *, write: bool = False, timeout: float = _TIMEOUT_S, limit: float | None = None):  # type: ignore[no-untyped-def]
        return super().borrow(write=write, timeout=timeout, limit=limit or _TIMEOUT_S)


def wall_table(timings: Timings, matched: Mapping[str, int]) -> str:
    """Return the median, lowest and highest wall time in milliseconds."""
    head = f"| filter | dead letters | {' | '.join(QUERIES)} |"
    lines = [head, f"| --- | ---: |{' ---: |' * len(QUERIES)}"]
    for name, number in matched.items():
        cells = [_cell([one.wall for one in timings[name, query]]) for query in QUERIES]
        lines.append(f"| {name} | {number:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cpu_table(timings: Timings, matched: Mapping[str, int]) -> str:
    """Return the median CPU time in milliseconds, which background load affects least."""
    lines = [f"| filter | {' | '.join(QUERIES)} |", f"| --- |{' ---: |' * len(QUERIES)}"]
    for name in matched:
        cells = [f"{1000 * median(one.cpu for one in timings[name, query]):,.0f}" for query in QUERIES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(seconds: Sequence[float]) -> str:
    over = " **over**" if median(seconds) > BOUND else ""
    return f"{1000 * median(seconds):,.0f} ({1000 * min(seconds):,.0f} to {1000 * max(seconds):,.0f}){over}"


def searches(dead: DeadLetters, count: int) -> Iterator[str]:
    """Yield a row per search in bodies, with the message about how far it searched within its usual time limit."""
    wheres = {
        "the last hour": DeadLetterFilter(since=dead_letter_store.START + dead_letter_store.SPAN - 3600),
        "all pending dead letters": DeadLetterFilter(),
        "one topic": DeadLetterFilter(topic="prices"),
    }
    for name, where in wheres.items():
        started = time.perf_counter()
        found = dead.search(replace(where, body=f'"order":{count - 17},'), limit=10)
        yield f"| {name} | {time.perf_counter() - started:.1f} s | {found.text} |"


def writes(folder: Path, path: Path, *, runs: int) -> Iterator[str]:
    """Yield a row per variant of the schema: writes of a thousand dead letters into copies of the store."""
    ways = {
        "current schema": "",
        "without counts (no triggers)": "".join(
            f"DROP TRIGGER dead_letters_{name} ON dead_letters;" for name in ("in", "out", "changed")
        ),
        "with an index on the key": "CREATE INDEX dead_letters_by_key ON dead_letters (key)",
    }
    for name, sql in ways.items():
        copy = Path(shutil.copy(path, folder / "copy.duckdb"))
        store = SlowQueryStore(copy, create=False, clock=time.time)
        if sql:
            with store.borrow(write=True) as connection:
                connection.execute(sql)
        dead = DeadLetters(store)
        took = [timed(partial(dead.add, batch(number))) for number in range(runs)]
        wall = [1000 * one.wall for one in took]
        spread = f"{median(wall):,.0f} ({min(wall):,.0f} to {max(wall):,.0f})"
        yield f"| {name} | {spread} | {1000 * median(one.cpu for one in took):,.0f} |"
        store.close()
        copy.unlink()


def batch(number: int) -> list[DeadLetter]:
    """Return a thousand dead letters of one outage."""
    at, chance = dead_letter_store.START + dead_letter_store.SPAN + number, random.Random(number)
    code, kind, text = dead_letter_store.CODES[number % 7]
    return [
        DeadLetter(
            message_id=f"0192a4c0-7b1e-7d44-9c3a-ffffffffffff-{number * 1000 + step}",
            cluster_id="prod-eu", producer_id="0192a4c0-7b1e-7d44-9c3a-ffffffffffff",
            topic=chance.choice(dead_letter_store.TOPICS), key=f"customer-{chance.randrange(2_000_000)}".encode(),
            value=b'{"order": 1}' * 16, headers=(("trace", b"1"),), partition=None, timestamp_ms=None,
            verdict="possibly_persisted", verdict_reason="The broker may have it.", kind=kind, code=code,  # type: ignore[arg-type]
            error_text=text, fingerprint=fingerprint(code, text), attempts=(),
            accepted_at=at, failed_at=at + step / 1000, host="host", version="0.3.0",
        )
        for step in range(1000)
    ]  # fmt: skip


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Create the given folder, or a temporary one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def machine() -> str:
    """Describe the machine and DuckDB, without the host name."""
    return f"{hardware()}, DuckDB {duckdb.__version__} with one thread and 1 GB, as in every command"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dead_letters", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--count", type=int, default=10_000_000, help="dead letters in the store")
    parser.add_argument("--runs", type=int, default=9, help="runs of each query")
    parser.add_argument("--folder", type=Path, help="folder that keeps the store for later runs")
    parser.add_argument("--writes", action="store_true", help="also measure writes, into copies of the store")
    options = parser.parse_args()
    loads: list[float] = []

    def log(text: str) -> None:
        loads.append(os.getloadavg()[0])
        print(f"{text}, load {loads[-1]:.0f}", flush=True)

    with _place(options.folder) as folder:
        path = folder / f"dead-letters-{options.count}.duckdb"
        started = time.monotonic()
        if not path.exists():
            dead_letter_store.make(path, options.count)
            log(f"created {options.count:,} dead letters in {time.monotonic() - started:.0f} s")
        store = SlowQueryStore(path, create=False, clock=time.time)
        dead, chosen = DeadLetters(store), filters(options.count)
        matched = {name: dead.count(where) for name, where in chosen.items()}
        loads.clear()
        timings = measure(dead, chosen, runs=options.runs, log=log)
        print(f"\nWall time in ms, median (lowest to highest) of {options.runs}:\n")
        print(wall_table(timings, matched))
        print(f"\nCPU time in ms, median:\n\n{cpu_table(timings, matched)}")
        print("\nSearch in bodies for one value, as `dlq list --body` does:\n\n| among | time | result |")
        print("| --- | ---: | --- |", *searches(dead, options.count), sep="\n")
        if options.writes:
            print("\nWrites of a thousand dead letters:\n\n| schema | ms | CPU, ms |\n| --- | ---: | ---: |")
            print(*writes(folder, path, runs=options.runs), sep="\n", flush=True)
        size = path.stat().st_size / 1e9
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\nMachine: {machine()}. Load average during the run: {min(loads):.0f} to {max(loads):.0f}.")
    print(
        f"Store: {options.count:,} dead letters, {size:.1f} GB. Peak memory of the process: {memory:.1f} GB."
    )
    print(f"Command: python -m benchmarks.dead_letters --count {options.count} --runs {options.runs}"
          f"{' --writes' if options.writes else ''}")  # fmt: skip


if __name__ == "__main__":
    main()
