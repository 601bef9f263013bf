"""How long a person waits: a page until its first chart, cold and warm, a click, what was just written, the notebook.

    python -m benchmarks.dashboard_pages --runs 7

A real Chromium opens the real dashboard over a store with a day of history, to which a producer writes all the time.
Cold is a browser that was never here, warm one that was. The server has answered once before anything is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from benchmarks.machine import hardware
from dashboard import serve
from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.store import Batch, StatisticsRow, Store
from scripts import shop_history
from scripts.browser import answers, find_chromium

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
CHART = ".live-plot .main-svg"
PAGES = {
    "Overview": ("", CHART),
    "Latency": ("latency", CHART),
    "Errors": ("errors", CHART),
    "Dead letters (its list)": ("dead-letters", ".pc-letters tbody tr"),
    "Fleet": ("fleet", CHART),
}
"""By title: the address, and what counts as the page's first chart."""
RATE = 100.0
"""Messages a second that the producer sends meanwhile."""
TOKEN = "benchmark"
MAKE = """
from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
broker = embedded.start(topics={"orders": 2})
producer = ReliableKafkaProducer(broker.bootstrap_servers, store="s.duckdb", cluster_id=broker.cluster_id)
for n in range(500):
    producer.send_message("orders", {"n": n})
producer.flush()
monitor = producer.monitor()
"""


@dataclass(frozen=True)
class Line:
    """What was waited for, and seconds of each run."""

    name: str
    seconds: tuple[float, ...]

    def row(self) -> str:
        fast, slow = min(self.seconds), max(self.seconds)
        return (
            f"| {self.name} | {median(self.seconds):.2f} | {fast:.2f} to {slow:.2f} | {len(self.seconds)} |"
        )


def main() -> int:
    chosen = _options()
    chromium = find_chromium()
    loads, begun = [os.getloadavg()[0]], time.monotonic()

    def tell(line: Line) -> Line:
        loads.append(os.getloadavg()[0])
        print(f"{line.name}: {median(line.seconds):.2f} s, load {loads[-1]:.1f}", file=sys.stderr, flush=True)
        return line

    with tempfile.TemporaryDirectory(prefix="pages-") as folder, sync_playwright() as playwright:
        os.environ["XDG_STATE_HOME"] = folder
        lines: list[Line] = []
        if chosen.only != "notebook":
            with shop(Path(folder)) as store, dashboard(store) as url:
                browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
                lines += [tell(line) for line in pages(browser, url, chosen.runs)]
                lines += [tell(line) for line in live(browser, url, store, chosen.runs)]
                browser.close()
        if chosen.only != "pages":
            lines.append(tell(notebook(playwright, chromium, Path(folder), chosen.runs)))
    print("| what | median s | from to | runs |\n| --- | ---: | ---: | ---: |")
    print("\n".join(line.row() for line in lines))
    print(f"\nMachine: {machine(chromium)}. Load average while it ran: {min(loads):.1f} to {max(loads):.1f}.")
    words = f" --runs {chosen.runs}{f' --only {chosen.only}' if chosen.only else ''}"
    print(f"Command: python -m benchmarks.dashboard_pages{words} ({time.monotonic() - begun:.0f} s).")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dashboard_pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="of each; the median is given")
    parser.add_argument("--only", choices=("pages", "notebook"), help="leave the other out")
    return parser.parse_args()


# pages


def pages(browser: Browser, url: str, runs: int) -> Iterator[Line]:
    """Each page cold (a new browser profile each time) and warm (the same one again)."""
    with _window(browser) as first:
        _opened(first, url, CHART)
    for title, (address, there) in PAGES.items():
        cold, warm = [], []
        for _ in range(runs):
            with _window(browser) as page:
                cold.append(_opened(page, url + address, there))
                warm.append(_opened(page, url + address, there))
        yield Line(f"{title}: open, cold", tuple(cold))
        yield Line(f"{title}: open, warm", tuple(warm))


def _opened(page: Page, address: str, there: str) -> float:
    """Seconds from the address to what is waited for; then the page may rest."""
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(there).first.wait_for()
    took = time.perf_counter() - began
    page.wait_for_timeout(1500)
    return took


@contextlib.contextmanager
def _window(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    try:
        yield page
    finally:
        context.close()


# while it is looked at


def live(browser: Browser, url: str, store: Path, runs: int) -> Iterator[Line]:
    """A click on another range until the page says so, and what a producer wrote until it is on the screen."""
    with _window(browser) as page:
        _opened(page, url, CHART)
        clicks = [_clicked(page, ("5 min", "15 min")[run % 2]) for run in range(runs)]
        yield Line("Overview: a click on another range, until it is drawn", tuple(clicks))
        written = [_appeared(page, Store.open(store), f"new-{run}") for run in range(runs)]
        yield Line("Overview: written to the store, until it is on the screen", tuple(written))


def _clicked(page: Page, window: str) -> float:
    page.wait_for_timeout(700)
    began = time.perf_counter()
    page.get_by_role("radio", name=window, exact=True).click()
    page.locator(".pc-lead", has_text=f"in the last {window}").wait_for()
    return time.perf_counter() - began


def _appeared(page: Page, store: Store, topic: str) -> float:
    """A topic that nobody knew stands in the list of topics as soon as something was sent to it; the page asks once a
    second, so about half of one is waiting.
    """
    page.wait_for_timeout(313)  # at another place of the second each time
    now = int(time.time())
    row = StatisticsRow(now, "shop", topic, topic, 1, 1, 0, 0, 0, 0, 0, 0, 10, 0.001)
    store.append(Batch(topic, 0, (row,)))
    began = time.perf_counter()
    page.locator(".pc-topics td", has_text=topic).first.wait_for()
    return time.perf_counter() - began


# the notebook


def notebook(playwright: Playwright, chromium: str, folder: Path, runs: int) -> Line:
    """A cell with a monitor, from the key until its first chart, in a notebook and a kernel of its own each time."""
    taken = []
    with lab(folder) as address:
        for run in range(runs):
            (folder / f"run{run}.ipynb").write_text(_cells(MAKE, "monitor"))
            context = playwright.chromium.launch_persistent_context(
                str(folder / f"profile{run}"), executable_path=chromium, args=ARGUMENTS, headless=True
            )
            try:
                taken.append(_first_chart(context.pages[0], f"{address}/lab/tree/run{run}.ipynb"))
            finally:
                context.close()
    return Line("Notebook: a monitor's cell, until its first chart", tuple(taken))


def _first_chart(page: Page, address: str) -> float:
    page.set_default_timeout(120_000)
    page.goto(f"{address}?token={TOKEN}&reset")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    cells.first.wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    _run(page, 0)
    cells.nth(0).locator(".jp-InputPrompt", has_text="[1]").wait_for()
    page.wait_for_timeout(2000)
    began = _run(page, 1)
    page.locator(".pc-monitor.pc-live svg rect").first.wait_for()
    return time.perf_counter() - began


def _run(page: Page, number: int) -> float:
    """Presses until the cell begins; when it was pressed last."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputPrompt").first
    before = prompt.inner_text()
    while True:
        cell.locator(".jp-InputArea-editor").click()
        began = time.perf_counter()
        page.keyboard.press("Control+Enter")
        while time.perf_counter() - began < 5.0:
            if prompt.inner_text() != before:
                return began
            page.wait_for_timeout(20)


def _cells(*sources: str) -> str:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{place}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for place, source in enumerate(sources)
    ]  # fmt: skip
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[str]:
    """A JupyterLab on loopback that touches nothing of the user's."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {
        **os.environ,
        **{name: str(folder / name.lower()) for name in own},
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    options = {
        "ServerApp.port": port, "ServerApp.ip": "127.0.0.1", "ServerApp.port_retries": 0,
        "ServerApp.open_browser": False, "ServerApp.root_dir": folder, "IdentityProvider.token": TOKEN,
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyter", "lab", "--allow-root", *(f"--{name}={value}" for name, value in options.items()),
    ]  # fmt: skip
    with _process(command, environment, lambda: answers(f"http://127.0.0.1:{port}/api")):
        yield f"http://127.0.0.1:{port}"


# what is looked at


@contextlib.contextmanager
def shop(folder: Path) -> Iterator[Path]:
    """A store with a day of history, and a producer that sends to it all the time; payments are refused."""
    path, ended = folder / "shop.duckdb", threading.Event()
    shop_history.write(Store.open(path), now=time.time())
    with embedded.start(topics={"orders": 4, "payments": 2}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, store=path, cluster_id=broker.cluster_id)
        broker.reject("payments", "POLICY_VIOLATION")

        def send() -> None:
            number = 0
            while not ended.wait(1 / RATE):
                number += 1
                producer.send_message("payments" if number % 50 == 0 else "orders", {"n": number})

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield path
        finally:
            ended.set()
            sending.join()
            producer.close(10)


@contextlib.contextmanager
def dashboard(store: Path) -> Iterator[str]:
    port = serve.free_port(8860)
    command = serve.command(store, port)
    with _process(command, dict(os.environ), lambda: answers(f"http://127.0.0.1:{port}/_stcore/health")):
        yield f"http://127.0.0.1:{port}/"


@contextlib.contextmanager
def _process(
    command: Sequence[str], environment: dict[str, str], ready: Callable[[], bool]
) -> Iterator[None]:
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 90
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[2]} does not answer")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
