"""Measure the response times of the dashboard and the notebook: page loads, refreshes, clicks, and a monitor's cell.

    python -m benchmarks.dashboard_pages --runs 7
    python -m benchmarks.dashboard_pages --page overview --only pages

Chromium opens the dashboard on a store with a day of history, to which a producer writes continuously. A cold load uses a
new browser profile, a warm one reuses it. The server has answered once before the measurement starts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

from playwright.sync_api import Playwright, sync_playwright

from benchmarks.dashboard_looks import (
    ARGUMENTS,
    PAGES,
    PEER,
    Measurement,
    live_updates,
    notebook_start,
    page_loads,
)
from benchmarks.dashboard_servers import dashboard, peer, shop
from benchmarks.machine import hardware
from scripts.browser import find_chromium

PARTS = ("pages", "live", "notebook")


def main() -> int:
    options = _options()
    chromium = find_chromium()
    loads, started = [os.getloadavg()[0]], time.monotonic()
    results: list[Measurement] = []

    def log(result: Measurement) -> None:
        results.append(result)
        loads.append(os.getloadavg()[0])
        print(f"{result.name}: {result.median:.2f} s, load {loads[-1]:.1f}", file=sys.stderr, flush=True)

    def timed_out() -> bool:
        return time.monotonic() - started > float(options.within)

    with tempfile.TemporaryDirectory(prefix="pages-") as folder, sync_playwright() as playwright:
        os.environ["XDG_STATE_HOME"] = folder
        if {"pages", "live"} & set(options.only):
            for result in _measure_dashboard(playwright, chromium, Path(folder), options):
                log(result)
        if "notebook" in options.only:
            log(notebook_start(playwright, chromium, Path(folder), options.runs, timed_out))
    print("| measurement | median, s | lowest to highest | runs |\n| --- | ---: | ---: | ---: |")
    print("\n".join(result.row() for result in results))
    for name, ratio in _ratios(results):
        print(f"\n{name}: {ratio:.2f} x peer (median of the ratios within the rounds).")
    print(
        f"\nMachine: {machine(chromium)}. Load average during the run: {min(loads):.1f} to {max(loads):.1f}."
    )
    print(
        f"Command: python -m benchmarks.dashboard_pages {' '.join(sys.argv[1:])} ({time.monotonic() - started:.0f} s)."
    )
    return 0


def _measure_dashboard(
    playwright: Playwright, chromium: str, folder: Path, options: argparse.Namespace
) -> list[Measurement]:
    results: list[Measurement] = []
    with shop(folder) as store, dashboard(store) as url, peer(folder) as other:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        if "pages" in options.only:
            results += page_loads(browser, url, other, tuple(options.page), options.runs)
        if "live" in options.only:
            results += live_updates(browser, url, store, options.runs)
        browser.close()
    return results


def _ratios(results: list[Measurement]) -> list[tuple[str, float]]:
    """Compare each page with the peer in the same round."""
    seconds = {result.name: result.seconds for result in results}
    return [
        (
            f"{page}, {state}",
            median(own / other for own, other in zip(seconds[f"{page}, {state}"], peers, strict=True)),
        )
        for state in ("cold", "warm")
        if (peers := seconds.get(f"{PEER}, {state}"))
        for page in PAGES
        if f"{page}, {state}" in seconds
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dashboard_pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each measurement (default 5)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure only these parts")
    parser.add_argument(
        "--page", action="append", choices=PAGES, default=None, help="measure only this page; repeatable"
    )
    parser.add_argument(
        "--within", type=float, default=300, help="seconds after which no further notebook starts"
    )
    options = parser.parse_args()
    options.page = options.page or list(PAGES)
    return options


def machine(chromium: str) -> str:
    """Describe the machine and the versions, without the host name."""
    browser = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=False)
    parts = [
        hardware(),
        f"Streamlit {version('streamlit')}", f"DuckDB {version('duckdb')}", " ".join(browser.stdout.split()[:2]),
    ]  # fmt: skip
    return f"{', '.join(parts)}; shared by browser, server, producer and broker"


if __name__ == "__main__":
    sys.exit(main())
