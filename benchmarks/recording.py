"""What recording costs: the recorder's and the store's share of a core, and what an open dashboard takes from a producer.

    python -m benchmarks.recording --rounds 5

First a producer sends a thousand messages a second to five topics, and the processor time of each of its threads is read
from the kernel. Then one sends as fast as it is let, while nobody looks at its store, while the dashboard's server runs,
and while a browser shows the overview.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame import (
    Bench,
    Case,
    Outcome,
    Runs,
    Target,
    alone,
    at_least,
    at_most,
    markdown,
    spread,
    times,
)
from benchmarks.guarantees import message
from benchmarks.stage import KINDS, Broker

QUESTION = "What do recording and an open dashboard cost a producer?"
SHOWS_NOT = (
    "a store on a slow disk; many producers on one store, which write in turn; the cost of the browser, which runs "
    "at the lowest priority here, because it usually runs on another machine than the producer."
)
_TOPICS = 5
_LIBRARY = "rdk:"
_OF_RECORDING = ("producer-core-recorder", "native")
"""The recorder's thread, and threads that are no Python's and not librdkafka's: DuckDB's own."""
_STARTS_WITHIN = 60.0
_LOOKED = 2.0
"""Seconds that the page is left alone before a run begins."""


# a share of a core


def steady(*, store: bool, rate: float, seconds: float, servers: str, topic: str) -> dict[str, float]:
    """Per cent of a core, of the whole process and of its threads by what they do, while messages come evenly."""
    from producer_core import ReliableKafkaProducer

    with tempfile.TemporaryDirectory() as folder:
        with ReliableKafkaProducer(
            servers, store=Path(folder) / "store.duckdb" if store else None
        ) as producer:
            if producer.store is not None:  # what makes a store has also just been at its gate
                os.utime(producer.store.path.with_name("store.duckdb.gate"), (0, 0))
            ended = threading.Event()
            sender = threading.Thread(target=_send_evenly, args=(producer, topic, rate, ended), name="sender")
            sender.start()
            time.sleep(min(3.0, seconds))
            begun, before, cpu = time.perf_counter(), threads(), time.process_time()
            time.sleep(seconds)
            took, after, spent = time.perf_counter() - begun, threads(), time.process_time() - cpu
            ended.set()
            sender.join()
    used = Counter(after)
    used.subtract(Counter(before))
    share = {name: 100 * used[name] / took for name in used}
    return {
        "process": 100 * spent / took,
        "recording": sum(share.get(name, 0.0) for name in _OF_RECORDING),
        "alerts, replays": share.get("alerts", 0.0) + share.get("replay", 0.0),
        "poll": share.get("producer-core-poll", 0.0),
        "sender": share.get("sender", 0.0),
        "librdkafka": share.get("librdkafka", 0.0),
    }


def _send_evenly(producer: Any, topic: str, rate: float, ended: threading.Event) -> None:
    """In steps of ten milliseconds, so that the pacing itself costs little."""
    number, start = 0, time.perf_counter()
    while not ended.wait(0.01):
        due = int((time.perf_counter() - start) * rate)
        while number < due:
            producer.send_message(f"{topic}-{number % _TOPICS}", message(number), f"key-{number % 1000}")
            number += 1


def threads() -> dict[str, float]:
    """Seconds of the processor by thread's name, of this process: librdkafka's together, other native ones too."""
    ours = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            native = "librdkafka" if (task / "comm").read_text().startswith(_LIBRARY) else "native"
            found[ours.get(int(task.name), native)] += nanoseconds  # type: ignore[call-overload]
    return {name: nanoseconds / 1e9 for name, nanoseconds in found.items()}


# an open dashboard


def flat_out(*, store: str, seconds: float, servers: str, topic: str) -> dict[str, float]:
    """As fast as it is let for some seconds: messages a second, and microseconds of the processor for each."""
    from producer_core import ReliableKafkaProducer

    values = [message(number) for number in range(10_000)]
    with ReliableKafkaProducer(servers, store=store) as producer:
        for number in range(1_000):
            producer.send_message(topic, values[number], "warm")
        producer.flush(60)
        begun, cpu, count = time.perf_counter(), time.process_time(), 0
        end = begun + seconds
        while time.perf_counter() < end:
            for place in range(1_000):
                producer.send_message(topic, values[place], f"key-{place}")
            count += 1_000
        producer.flush(120)
        took, spent = time.perf_counter() - begun, time.process_time() - cpu
    return {"rate": count / took, "cpu": 1e6 * spent / count}


@contextmanager
def served(store: Path, folder: Path) -> Iterator[str]:
    """The dashboard's server over a store: its address."""
    from producer_core.dashboard.server import command

    port = command.free_port(8700)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    process = subprocess.Popen(
        command.command(store, port), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )  # fmt: skip
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the dashboard did not start")


@contextmanager
def looked_at(address: str, folder: Path) -> Iterator[None]:
    """A browser at the lowest priority that shows the overview, following it."""
    from playwright.sync_api import sync_playwright

    program = browser()
    assert program is not None
    gentle = folder / "browser"
    gentle.write_text(f'#!/bin/sh\nexec nice -n 19 {program} "$@"\n')
    gentle.chmod(0o700)
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=gentle, args=options)
        try:
            page = chromium.new_page()
            page.goto(address)
            page.locator(".live-plot .main-svg").first.wait_for(timeout=60_000)
            page.wait_for_timeout(1000 * _LOOKED)
            yield
        finally:
            chromium.close()


def browser() -> str | None:
    """Chromium, and what opens it; None where one of them is missing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


# the question


def measure(bench: Bench) -> Outcome:
    broker = bench.stage.broker("one")
    shares = _shares(bench, broker)
    watched = _watched(bench, broker)
    text = (
        f"On {KINDS[broker.kind]}, at 1,000 messages per second to {_TOPICS} topics, percent of a core:\n\n{_share_table(shares)}"
        f"\n\nSending at full speed:\n\n{_watched_table(watched)}"
    )
    if browser() is None:
        text += "\n\nThere is no Chromium with Playwright here: nobody looked at the page."
    return Outcome(text, [*_share_targets(shares), *_watched_targets(watched)])


_STEADY: Mapping[str, Mapping[str, Any]] = {
    "with a store": {"store": True, "rate": 1000.0},
    "`store=None`": {"store": False, "rate": 1000.0},
    "with a store, nothing sent": {"store": True, "rate": 0.0},
}


def _shares(bench: Bench, broker: Broker) -> Runs:
    cases = [
        Case(name, "recording:steady", {**settings, "seconds": bench.size(20, 1)})
        for name, settings in _STEADY.items()
    ]

    @contextmanager
    def around(case: Case) -> Iterator[Mapping[str, Any]]:
        yield {"servers": broker.servers, "topic": "recorded"}  # made by being used, and kept

    return bench.run("share of a core", cases, around=around)


def _watched(bench: Bench, broker: Broker) -> Runs:
    names = ["closed", "server"] + (["open"] if browser() else [])
    cases = [Case(name, "recording:flat_out", {"seconds": bench.size(10, 1)}) for name in names]

    @contextmanager
    def around(case: Case) -> Iterator[Mapping[str, Any]]:
        from producer_core.store import Store

        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = folder / "store.duckdb"
            where = stack.enter_context(broker.topic())
            if case.name != "closed":
                Store.open(store).close()
                address = stack.enter_context(served(store, folder))
                if case.name == "open":
                    _remember_somebody(store)
                    stack.enter_context(looked_at(address, folder))
            yield {**where, "store": str(store)}

    return bench.run("dashboard", cases, around=around)


def _remember_somebody(store: Path) -> None:
    """A page over an empty store says how to begin; with a row there are charts from the start."""
    from producer_core.metrics.batch import Batch, StatisticsRow
    from producer_core.store import Store

    row = StatisticsRow(
        int(time.time()) - 60, "bench", "somebody", "orders", 1, 1, 0, 0, 0, 0, 0, 0, 200, 0.01
    )
    opened = Store.open(store)
    opened.append(Batch("somebody", 0, statistics=(row,)))
    opened.close()


def _share_table(runs: Runs) -> str:
    columns = ("process", "recording", "alerts, replays", "poll", "sender", "librdkafka")
    rows = [
        (name, *(spread(runs.numbers(name, column), ".2f") for column in columns))
        for name in _STEADY
        if name in runs
    ]
    return markdown(("", *columns), rows)


def _share_targets(runs: Runs) -> list[Target]:
    return [
        at_most("recorder and store at 1 Hz", 1, runs.numbers("with a store", "recording"), "% of a core", ".2f"),
        at_most(
            "the whole process with a store, less without", 1, runs.differences("with a store", "`store=None`", "process"),
            "% of a core", ".2f",
        ),
    ]  # fmt: skip


_WORDS = {"closed": "no dashboard", "server": "its server runs", "open": "a browser shows the overview"}


def _watched_table(runs: Runs) -> str:
    rows = [
        (
            words,
            spread(runs.numbers(name, "rate")),
            times(runs.ratio(name, "closed")),
            spread(runs.numbers(name, "cpu"), ".1f"),
        )
        for name, words in _WORDS.items()
        if name in runs
    ]
    return markdown(("", "msg/s", "x no dashboard", "CPU, µs a message"), rows)


def _watched_targets(runs: Runs) -> list[Target]:
    return [at_least("throughput with the dashboard open, of closed", 0.97, runs.ratios("open", "closed"))]


if __name__ == "__main__":
    alone(sys.modules[__name__])
