"""Looking at ten million dead letters: how long a listing, a later page, a count and the groups take, by every filter.

    python -m benchmarks.dead_letters --count 10000000 --runs 9

Makes a store in a temporary folder (or in --folder, where a second run finds it again), then asks each question several
times in an order drawn anew, each time as a command does: borrow the store, ask, let go.
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

from benchmarks import dead_letter_store as made
from benchmarks.machine import hardware
from producer_core.dlq import DeadLetterFilter, DeadLetters, PageCursor
from producer_core.events import DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.store import Store

DAY = 86_400.0
BOUND = 0.3
_PATIENCE = 60.0
"""Seconds until a query of the benchmark is cancelled: a slow one is to be seen, not to end the run."""


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of the processor."""

    wall: float
    cpu: float


Question = Callable[[DeadLetters, DeadLetterFilter], object]
Answers = Mapping[tuple[str, str], Sequence[Took]]

QUESTIONS: Mapping[str, Question] = {
    "list": lambda dead, where: dead.page(where, limit=50),
    "later page": lambda dead, where: dead.page(
        where, limit=50, after=PageCursor(made.START + made.SPAN / 2, "")
    ),
    "count": lambda dead, where: dead.count(where),
    "count by verdict": lambda dead, where: dead.count_by(where, "verdict"),
    "groups": lambda dead, where: dead.groups(where, limit=20),
}


def filters(count: int) -> Mapping[str, DeadLetterFilter]:
    """One selection for each field, and some together; what there is much of rather than little."""
    middle, number = made.START + made.SPAN / 2, count // 2
    code, _, text = made.CODES[2]
    one = made.message_id(number)
    hundred = tuple(made.message_id(number + step) for step in range(100))
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
        "since: the last hour": DeadLetterFilter(since=made.START + made.SPAN - 3600),
        "topic, verdict, since": DeadLetterFilter(topic="orders", verdict="rejected", since=middle),
        "key": DeadLetterFilter(key="customer-4711"),
        "message_id": DeadLetterFilter(message_id=one, state=None),
        "ids: a hundred": DeadLetterFilter(ids=hundred, state=None),
        "text in the error (no index)": DeadLetterFilter(text="ELECTION"),
    }


def measure(
    dead: DeadLetters, chosen: Mapping[str, DeadLetterFilter], *, runs: int, tell: Callable[[str], None]
) -> Answers:
    """Every question of every filter `runs` times, once a round, in an order drawn anew."""
    asked = [(name, question) for name in chosen for question in QUESTIONS]
    answers: dict[tuple[str, str], list[Took]] = {one: [] for one in asked}
    for number in range(runs):
        random.Random(number).shuffle(asked)
        for name, question in asked:
            answers[name, question].append(timed(partial(QUESTIONS[question], dead, chosen[name])))
        tell(f"round {number + 1} of {runs}")
    return answers


def timed(act: Callable[[], object]) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)


class Patient(Store):
    """A store whose readers are not cancelled after two seconds, so that what is too slow is measured."""

    def borrow(self, *, write: bool = False, timeout: float = _PATIENCE, limit: float | None = None):  # type: ignore[no-untyped-def]
        return super().borrow(write=write, timeout=timeout, limit=limit or _PATIENCE)


def table(answers: Answers, matched: Mapping[str, int]) -> str:
    """Median, and the spread from the quickest to the slowest, in milliseconds by the clock."""
    head = f"| filter | dead letters | {' | '.join(QUESTIONS)} |"
    lines = [head, f"| --- | ---: |{' ---: |' * len(QUESTIONS)}"]
    for name, number in matched.items():
        cells = [_cell([one.wall for one in answers[name, question]]) for question in QUESTIONS]
        lines.append(f"| {name} | {number:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def processor(answers: Answers, matched: Mapping[str, int]) -> str:
    """The median of the processor's time: what else the machine does disturbs it least."""
    lines = [f"| filter | {' | '.join(QUESTIONS)} |", f"| --- |{' ---: |' * len(QUESTIONS)}"]
    for name in matched:
        cells = [
            f"{1000 * median(one.cpu for one in answers[name, question]):,.0f}" for question in QUESTIONS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(seconds: Sequence[float]) -> str:
    over = " **over**" if median(seconds) > BOUND else ""
    return f"{1000 * median(seconds):,.0f} ({1000 * min(seconds):,.0f} to {1000 * max(seconds):,.0f}){over}"


def searches(dead: DeadLetters, count: int) -> Iterator[str]:
    """What a search in bodies says of how far it looked, in its ordinary bound."""
    wheres = {
        "the last hour": DeadLetterFilter(since=made.START + made.SPAN - 3600),
        "everything that is dead": DeadLetterFilter(),
        "a topic": DeadLetterFilter(topic="prices"),
    }
    for name, where in wheres.items():
        begun = time.perf_counter()
        found = dead.search(replace(where, body=f'"order":{count - 17},'), limit=10)
        yield f"| {name} | {time.perf_counter() - begun:.1f} s | {found.text} |"


def writes(folder: Path, path: Path, *, runs: int) -> Iterator[str]:
    """A thousand dead letters a write, into copies: as it is, without triggers, and with an index of the keys beside them."""
    ways = {
        "as it is": "",
        "without the counts (no triggers)": "".join(
            f"DROP TRIGGER dead_letters_{name} ON dead_letters;" for name in ("in", "out", "changed")
        ),
        "with an index of the keys": "CREATE INDEX dead_letters_by_key ON dead_letters (key)",
    }
    for name, sql in ways.items():
        copy = Path(shutil.copy(path, folder / "copy.duckdb"))
        store = Patient(copy, create=False, clock=time.time)
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
    """A thousand dead letters of one outage."""
    at, chance = made.START + made.SPAN + number, random.Random(number)
    code, kind, text = made.CODES[number % 7]
    return [
        DeadLetter(
            message_id=f"0192a4c0-7b1e-7d44-9c3a-ffffffffffff-{number * 1000 + step}",
            cluster_id="prod-eu", producer_id="0192a4c0-7b1e-7d44-9c3a-ffffffffffff",
            topic=chance.choice(made.TOPICS), key=f"customer-{chance.randrange(2_000_000)}".encode(),
            value=b'{"order": 1}' * 16, headers=(("trace", b"1"),), partition=None, timestamp_ms=None,
            verdict="possibly_persisted", verdict_reason="The broker may have it.", kind=kind, code=code,  # type: ignore[arg-type]
            error_text=text, fingerprint=fingerprint(code, text), attempts=(),
            accepted_at=at, failed_at=at + step / 1000, host="host", version="0.3.0",
        )
        for step in range(1000)
    ]  # fmt: skip


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def machine() -> str:
    """What this ran on, without its name."""
    return f"{hardware()}, DuckDB {duckdb.__version__} with one thread and 1 GB, as every command has it"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dead_letters", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--count", type=int, default=10_000_000, help="letters in the store")
    parser.add_argument("--runs", type=int, default=9, help="how often each question is asked")
    parser.add_argument("--folder", type=Path, help="where the store is kept for another run")
    parser.add_argument("--writes", action="store_true", help="measure writing too, into copies of the store")
    given = parser.parse_args()
    loads: list[float] = []

    def tell(text: str) -> None:
        loads.append(os.getloadavg()[0])
        print(f"{text}, load {loads[-1]:.0f}", flush=True)

    with _place(given.folder) as folder:
        path = folder / f"dead-letters-{given.count}.duckdb"
        begun = time.monotonic()
        if not path.exists():
            made.make(path, given.count)
            tell(f"made {given.count:,} dead letters in {time.monotonic() - begun:.0f} s")
        store = Patient(path, create=False, clock=time.time)
        dead, chosen = DeadLetters(store), filters(given.count)
        matched = {name: dead.count(where) for name, where in chosen.items()}
        loads.clear()
        answers = measure(dead, chosen, runs=given.runs, tell=tell)
        print(
            f"\nMilliseconds by the clock, median (quickest to slowest) of {given.runs}:\n\n{table(answers, matched)}"
        )
        print(f"\nMilliseconds of the processor, median:\n\n{processor(answers, matched)}")
        print(
            "\nA search in bodies for one value, as `dlq list --body` does it:\n\n| among | took | it says |"
        )
        print("| --- | ---: | --- |", *searches(dead, given.count), sep="\n")
        if given.writes:
            print(
                "\nA thousand dead letters a write:\n\n| way | milliseconds | of the processor |\n| --- | ---: | ---: |"
            )
            print(*writes(folder, path, runs=given.runs), sep="\n", flush=True)
        size = path.stat().st_size / 1e9
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\nMachine: {machine()}. Load average while it asked: {min(loads):.0f} to {max(loads):.0f}.")
    print(f"Store: {given.count:,} dead letters, {size:.1f} GB. Most memory of the process: {memory:.1f} GB.")
    print(f"Command: python -m benchmarks.dead_letters --count {given.count} --runs {given.runs}"
          f"{' --writes' if given.writes else ''}")  # fmt: skip


if __name__ == "__main__":
    main()
