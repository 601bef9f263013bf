"""How long a person waits: a page until its first chart, cold and warm, a refresh, a click, the notebook.

    python -m benchmarks.dashboard_pages --runs 7
    python -m benchmarks.dashboard_pages --page overview --only pages

A real Chromium opens the real dashboard over a store with a day of history, to which a producer writes all the time.
Cold is a browser that was never here, warm one that was. The server has answered once before anything is counted.
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

from benchmarks.dashboard_looks import ARGUMENTS, PAGES, PEER, Line, live_lines, notebook_line, page_lines
from benchmarks.dashboard_servers import dashboard, peer, shop
from benchmarks.machine import hardware
from scripts.browser import find_chromium

PARTS = ("pages", "live", "notebook")


def main() -> int:
    chosen = _options()
    chromium = find_chromium()
    loads, begun = [os.getloadavg()[0]], time.monotonic()
    lines: list[Line] = []

    def tell(line: Line) -> None:
        lines.append(line)
        loads.append(os.getloadavg()[0])
        print(f"{line.name}: {line.median:.2f} s, load {loads[-1]:.1f}", file=sys.stderr, flush=True)

    def enough() -> bool:
        return time.monotonic() - begun > float(chosen.within)

    with tempfile.TemporaryDirectory(prefix="pages-") as folder, sync_playwright() as playwright:
        os.environ["XDG_STATE_HOME"] = folder
        if {"pages", "live"} & set(chosen.only):
            for line in _of_the_dashboard(playwright, chromium, Path(folder), chosen):
                tell(line)
        if "notebook" in chosen.only:
            tell(notebook_line(playwright, chromium, Path(folder), chosen.runs, enough))
    print("| what | median s | from to | runs |\n| --- | ---: | ---: | ---: |")
    print("\n".join(line.row() for line in lines))
    for name, ratio in _ratios(lines):
        print(f"\n{name}: {ratio:.2f} times the peer's (median of the ratios in each round).")
    print(f"\nMachine: {machine(chromium)}. Load average while it ran: {min(loads):.1f} to {max(loads):.1f}.")
    print(
        f"Command: python -m benchmarks.dashboard_pages {' '.join(sys.argv[1:])} ({time.monotonic() - begun:.0f} s)."
    )
    return 0


def _of_the_dashboard(
    playwright: Playwright, chromium: str, folder: Path, chosen: argparse.Namespace
) -> list[Line]:
    lines: list[Line] = []
    with shop(folder) as store, dashboard(store) as url, peer(folder) as other:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        if "pages" in chosen.only:
            lines += page_lines(browser, url, other, tuple(chosen.page), chosen.runs)
        if "live" in chosen.only:
            lines += live_lines(browser, url, store, chosen.runs)
        browser.close()
    return lines


def _ratios(lines: list[Line]) -> list[tuple[str, float]]:
    """Each page against the peer in the same round."""
    taken = {line.name: line.seconds for line in lines}
    return [
        (
            f"{page}, {how}",
            median(ours / others for ours, others in zip(taken[f"{page}, {how}"], peers, strict=True)),
        )
        for how in ("cold", "warm")
        if (peers := taken.get(f"{PEER}, {how}"))
        for page in PAGES
        if f"{page}, {how}" in taken
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dashboard_pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="of each; the median is given")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="leave the others out")
    parser.add_argument(
        "--page", action="append", choices=PAGES, default=None, help="only this page; may be given again"
    )
    parser.add_argument(
        "--within", type=float, default=300, help="seconds after which no further notebook is begun"
    )
    chosen = parser.parse_args()
    chosen.page = chosen.page or list(PAGES)
    return chosen


def machine(chromium: str) -> str:
    """What this ran on, without its name."""
    named = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=False)
    parts = [
        hardware(),
        f"Streamlit {version('streamlit')}", f"DuckDB {version('duckdb')}", " ".join(named.stdout.split()[:2]),
    ]  # fmt: skip
    return f"{', '.join(parts)}; browser, server, producer and broker share it"


if __name__ == "__main__":
    sys.exit(main())
