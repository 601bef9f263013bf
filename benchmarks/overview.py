"""Measure one refresh of the overview in the dashboard's server, by the number of messages sent.

    python -m benchmarks.overview --rounds 5

The stores contain the statistics of one million and of a hundred million messages: a thousand per second over five topics,
one dead letter in ten thousand, rolled up as the recorder does. A refresh is the work that the page does each
second: query the store and draw the figures. The clock advances by a second each time, so that no figure comes from a
cache.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks import history_store
from benchmarks.frame import Bench, Case, Outcome, Runs, Target, at_most, main, markdown, spread

QUESTION = (
    "How long does a live refresh of the overview take after a million messages, and after a hundred million?"
)
LIMITATIONS = (
    "the network and the browser (see `dashboard_pages`); many browsers at once; a store on a slow disk; concurrent writes "
    "by producers."
)
SIZES: Mapping[str, int] = {"1 M": 1_000_000, "100 M": 100_000_000}
WINDOWS = ("15 min", "1 hour", "24 hours", "30 days")
_RATE = 1_000


def one(*, store: str, window: str, looks: int) -> dict[str, float]:
    """Return the wall time of a refresh, as median and 95th percentile, and its CPU time, in milliseconds."""
    from producer_core.dashboard import charts, queries
    from producer_core.store import Store

    opened, view = Store.open(store), queries.View(window)
    before = queries.earlier(opened, view, history_store.NOW)
    took: list[float] = []
    cpu = 0.0
    for number in range(looks + 3):
        started, spent = time.perf_counter(), time.process_time()
        # Each second of the clock may start a new window of the chart, as it does on a real clock.
        shown = queries.overview(opened, view, history_store.NOW + number, before)
        charts.overview_lines(charts.lines_of(shown))
        charts.waiting(shown.dead_by_code, "No dead letters are pending.")
        charts.tiles(shown)
        if number >= 3:  # the first ones import and compile modules
            took.append(time.perf_counter() - started)
            cpu += time.process_time() - spent
    took.sort()
    return {
        "ms": 1000 * median(took),
        "p95 ms": 1000 * took[int(0.95 * (len(took) - 1))],
        "cpu ms": 1000 * cpu / looks,
    }


def measure(bench: Bench) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, str] = {}
        for name, messages in SIZES.items():
            path = Path(folder) / f"{messages}.duckdb"
            history_store.make(path, bench.size(messages, messages // 1_000) // _RATE, _RATE)
            stores[name] = str(path)
        cases = [
            Case(f"{name}, {window}", "overview:one", {"window": window, "looks": bench.size(60, 3)})
            for name in SIZES
            for window in (WINDOWS[:1] if bench.quick else WINDOWS)
        ]
        runs = bench.run("refresh", cases, around=lambda case: _At(stores[case.name.partition(",")[0]]))
        sizes = {name: Path(path).stat().st_size / 1e6 for name, path in stores.items()}
    listed = ", ".join(f"{name} messages {size:.0f} MB" for name, size in sizes.items())
    return Outcome(f"{_table(runs)}\n\nStore sizes: {listed}.", _targets(runs))


class _At:
    """A context that passes the store to a run as its argument."""

    def __init__(self, store: str) -> None:
        self._store = store

    def __enter__(self) -> Mapping[str, str]:
        return {"store": self._store}

    def __exit__(self, *_: object) -> None:
        """Keep the store for the next run."""


def _table(runs: Runs) -> str:
    small, large = SIZES
    rows = [
        (
            window,
            *(spread(runs.numbers(f"{name}, {window}", "ms"), ",.1f") for name in SIZES),
            *(spread(runs.numbers(f"{name}, {window}", "p95 ms"), ",.1f") for name in SIZES),
            f"{runs.ratio(f'{large}, {window}', f'{small}, {window}', 'ms'):.2f}",
        )
        for window in WINDOWS
        if f"{large}, {window}" in runs
    ]
    head = (
        "range",
        *(f"{name}: ms" for name in SIZES),
        *(f"{name}: p95 ms" for name in SIZES),
        f"{large} / {small}",
    )
    return markdown(head, rows)


def _targets(runs: Runs) -> list[Target]:
    small, large = SIZES
    live = WINDOWS[0]
    return [
        at_most(f"live refresh of the overview ({live}) after {large}", 100, runs.numbers(f"{large}, {live}", "ms"), "ms"),
        at_most(
            f"the same vs. {small}", 1.2, runs.ratios(f"{large}, {live}", f"{small}, {live}", "ms"), "x", ".2f"
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main(sys.modules[__name__])
