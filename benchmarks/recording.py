"""Measure the cost of recording and of an open dashboard for a producer.

    python -m benchmarks.recording --rounds 5

The first part sends a thousand messages per second to five topics and reads the CPU time of each thread from the kernel.
The second part sends at full speed without a dashboard, with the dashboard's server, and with a browser that shows the
overview.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame import (
    Bench,
    Case,
    Outcome,
    Runs,
    Target,
    at_least,
    at_most,
    main,
    markdown,
    spread,
    times,
)
from benchmarks.guarantees import message
from benchmarks.stage import KINDS, Broker

QUESTION = "What do recording and an open dashboard cost a producer?"
LIMITATIONS = (
    "a store on a slow disk; many producers on one store, which write in turn; the cost of the browser, which runs "
    "at the lowest priority here, because it usually runs on a different machine from the producer."
)
_TOPICS = 5
_LIBRARY = "rdk:"
_OF_RECORDING = ("producer-core-recorder", "native")
"""The recorder's thread, and native threads outside librdkafka, which are DuckDB's."""
_STARTS_WITHIN = 60.0
_SETTLE = 2.0
"""Seconds that the page runs before the measurement starts."""


# a share of a core


def steady(*, store: bool, rate: float, seconds: float, servers: str, topic: str) -> dict[str, float]:
    """Return the percentage of a core at a steady rate, for the process and by role of its threads."""
    from producer_core import ReliableKafkaProducer

    with tempfile.TemporaryDirectory() as folder:
        with ReliableKafkaProducer(
            servers, store=Path(folder) / "store.duckdb" if store else None
        ) as producer:
            if producer.store is not None:  # otherwise the creation of the store counts as a recent read
                os.utime(producer.store.path.with_name("store.duckdb.gate"), (0, 0))
            ended = threading.Event()
            sender = threading.Thread(target=_send_evenly, args=(producer, topic, rate, ended), name="sender")
            sender.start()
            time.sleep(min(3.0, seconds))
            started, before, cpu = time.perf_counter(), threads(), time.process_time()
            time.sleep(seconds)
            took, after, spent = time.perf_counter() - started, threads(), time.process_time() - cpu
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
    """Send in steps of ten milliseconds, so that the pacing itself costs little."""
    number, start = 0, time.perf_counter()
    while not ended.wait(0.01):
        due = int((time.perf_counter() - start) * rate)
        while number < due:
            producer.send_message(f"{topic}-{number % _TOPICS}", message(number), f"key-{number % 1000}")
            number += 1


def threads() -> dict[str, float]:
    """Return the CPU seconds of this process by thread name, with one sum for librdkafka and one for other native threads."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            native = "librdkafka" if (task / "comm").read_text().startswith(_LIBRARY) else "native"
            found[names.get(int(task.name), native)] += nanoseconds  # type: ignore[call-overload]
    return {name: nanoseconds / 1e9 for name, nanoseconds in found.items()}


# an open dashboard


def flat_out(*, store: str, seconds: float, servers: str, topic: str) -> dict[str, float]:
    """Send at full speed; return messages per second and the CPU time per message in microseconds."""
    from producer_core import ReliableKafkaProducer

    values = [message(number) for number in range(10_000)]
    with ReliableKafkaProducer(servers, store=store) as producer:
        warm_up(producer, topic, values)
        return send_for(producer, topic, values, seconds)


def warm_up(producer: Any, topic: str, values: Sequence[Any]) -> None:
    """Send a thousand messages and wait for them, so that the measurement begins with open connections."""
    for number in range(1_000):
        producer.send_message(topic, values[number], "warm")
    producer.flush(60)


def send_for(producer: Any, topic: str, values: Sequence[Any], seconds: float) -> dict[str, float]:
    """Send for this time, flush, and return messages per second and microseconds of CPU time per message."""
    started, cpu, count = time.perf_counter(), time.process_time(), 0
    end = started + seconds
    while time.perf_counter() < end:
        for place in range(1_000):
            producer.send_message(topic, values[place], f"key-{place}")
        count += 1_000
    producer.flush(120)
    took, spent = time.perf_counter() - started, time.process_time() - cpu
    return {"rate": count / took, "cpu": 1e6 * spent / count}


@contextmanager
def served(store: Path, folder: Path) -> Iterator[str]:
    """Run the dashboard's server on a store and yield its address."""
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
def displayed(address: str, folder: Path) -> Iterator[None]:
    """Show the live overview in a browser at the lowest priority."""
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
            page.wait_for_timeout(1000 * _SETTLE)
            yield
        finally:
            chromium.close()


def browser() -> str | None:
    """Return the path of Chromium, or None without Chromium or Playwright."""
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
        f"On {KINDS[broker.kind]}, at 1,000 messages per second to {_TOPICS} topics, in % of a core:\n\n{_share_table(shares)}"
        f"\n\nSending at full speed:\n\n{_watched_table(watched)}"
    )
    if browser() is None:
        text += "\n\nSkipped: an open browser, because Chromium or Playwright is not installed."
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
        yield {"servers": broker.servers, "topic": "recorded"}  # created on first use, and not deleted

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
                    _add_row(store)
                    stack.enter_context(displayed(address, folder))
            yield {**where, "store": str(store)}

    return bench.run("dashboard", cases, around=around)


def _add_row(store: Path) -> None:
    """Add a row, so that the page shows charts instead of its introduction for an empty store."""
    from producer_core.metrics.batch import Batch, StatisticsRow
    from producer_core.store import Store

    row = StatisticsRow(
        int(time.time()) - 60, "bench", "producer", "orders", 1, 1, 0, 0, 0, 0, 0, 0, 200, 0.01
    )
    opened = Store.open(store)
    opened.append(Batch("producer", 0, statistics=(row,)))
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
            "whole process with a store, minus without", 1, runs.differences("with a store", "`store=None`", "process"),
            "% of a core", ".2f",
        ),
    ]  # fmt: skip


_TITLES = {"closed": "no dashboard", "server": "dashboard server only", "open": "overview open in a browser"}


def _watched_table(runs: Runs) -> str:
    rows = [
        (
            title,
            spread(runs.numbers(name, "rate")),
            times(runs.ratio(name, "closed")),
            spread(runs.numbers(name, "cpu"), ".1f"),
        )
        for name, title in _TITLES.items()
        if name in runs
    ]
    return markdown(("", "msg/s", "x no dashboard", "CPU, µs per message"), rows)


def _watched_targets(runs: Runs) -> list[Target]:
    return [at_least("throughput with the dashboard open vs. closed", 0.97, runs.ratios("open", "closed"))]


if __name__ == "__main__":
    main(sys.modules[__name__])
