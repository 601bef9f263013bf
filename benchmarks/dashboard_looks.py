"""The looks that are timed: a page until its first chart, a refresh until nothing moves any more, a click, a notebook."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Locator, Page, Playwright

from benchmarks.dashboard_servers import TOKEN, cells, lab
from producer_core.store import Batch, StatisticsRow, Store

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
CHART = ".live-plot .main-svg"
PEERS_CHART = ".js-plotly-plot .main-svg"
PAGES = {
    "overview": ("", CHART),
    "latency": ("latency", CHART),
    "errors": ("errors", CHART),
    "dead-letters": ("dead-letters", ".pc-dead-letters tbody tr"),
    "fleet": ("fleet", CHART),
}
"""By name: the address, and what counts as the page's first chart."""
PEER = "peer: one chart, nothing else"
MOST = 30.0
"""Seconds that a look may take; then the run fails."""
REFRESHES = 15
_WATCHED = """
(() => {
  const refreshes = window.pcRefreshes = [], moved = () => { if (refreshes.length) refreshes.at(-1).till = performance.now() }
  const Plain = window.WebSocket
  window.WebSocket = class extends Plain {
    constructor(...given) { super(...given); this.addEventListener('message', moved) }
    send(message) { refreshes.push({ from: performance.now(), till: 0 }); super.send(message) }
  }
  addEventListener('DOMContentLoaded', () => new MutationObserver(moved).observe(document.body, { childList: true, subtree: true, characterData: true }))
})()
"""
"""From what the page asks of its server until the last answer has come and the last element has changed."""
_MAKE = """
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

    @property
    def median(self) -> float:
        return median(self.seconds)

    def row(self) -> str:
        fast, slow = min(self.seconds), max(self.seconds)
        return f"| {self.name} | {self.median:.2f} | {fast:.2f} to {slow:.2f} | {len(self.seconds)} |"


@contextlib.contextmanager
def window(browser: Browser, script: str = "") -> Iterator[Page]:
    """A browser that was never here."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    if script:
        context.add_init_script(script)
    page = context.new_page()
    page.set_default_timeout(1000 * MOST)
    try:
        yield page
    finally:
        context.close()


def shown(one: Locator) -> None:
    """Waits until it is seen, to 50 ms: a locator's own wait looks every half second only, once 0.3 s have gone."""
    deadline = time.monotonic() + MOST
    while not one.is_visible():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not seen within {MOST:.0f} s: {one}")
        one.page.wait_for_timeout(40)


# pages


def opened(page: Page, address: str, there: str) -> float:
    """Seconds from the address to what is waited for."""
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    shown(page.locator(there).first)
    return time.perf_counter() - began


def both(browser: Browser, address: str, there: str) -> tuple[float, float]:
    """Cold, in a new browser profile, and warm, again in the same one; the page rests between."""
    with window(browser) as page:
        cold = opened(page, address, there)
        page.wait_for_timeout(700)
        return cold, opened(page, address, there)


def page_lines(browser: Browser, url: str, peer: str | None, names: tuple[str, ...], runs: int) -> list[Line]:
    """Each page cold and warm; pages and the peer take turns, so that what else the machine does falls on all."""
    asked = {name: (url + PAGES[name][0], PAGES[name][1]) for name in names}
    if peer is not None:
        asked[PEER] = peer, PEERS_CHART
    for address, there in asked.values():  # the server's first answer is not counted
        with window(browser) as page:
            opened(page, address, there)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(runs):
        for name, (address, there) in asked.items():
            taken[name].append(both(browser, address, there))
    return [
        Line(f"{name}, {how}", tuple(one[place] for one in looks))
        for name, looks in taken.items()
        for place, how in enumerate(("cold", "warm"))
    ]


# while it is looked at


def live_lines(browser: Browser, url: str, store: Path, runs: int) -> Iterator[Line]:
    """Refreshes, clicks on another range, and what a producer wrote until it is on the screen."""
    with window(browser, _WATCHED) as page:
        opened(page, url, CHART)
        yield Line("overview: refresh", refreshes(page, REFRESHES))
        clicks = [_clicked(page, ("5 min", "15 min")[run % 2]) for run in range(runs)]
        yield Line("overview: click on another range, until it is drawn", tuple(clicks))
        written = [_appeared(page, Store.open(store), f"new-{run}") for run in range(runs)]
        yield Line("overview: written to the store, until it is on the screen", tuple(written))


def refreshes(page: Page, number: int) -> tuple[float, ...]:
    """Seconds of each; the page refreshes by itself, and the first after it was opened are not counted."""
    page.wait_for_timeout(2500)
    page.evaluate("pcRefreshes.length = 0")
    page.wait_for_function(f"pcRefreshes.length > {number}", timeout=2000 * number + 10_000)
    taken = page.evaluate(f"pcRefreshes.slice(0, {number}).map(one => (one.till - one.from) / 1000)")
    return tuple(seconds for seconds in taken if seconds > 0)


def _clicked(page: Page, name: str) -> float:
    page.wait_for_timeout(700)
    began = time.perf_counter()
    page.get_by_role("radio", name=name, exact=True).click()
    shown(page.locator(".pc-headline", has_text=f"in the last {name}"))
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
    shown(page.locator(".pc-topics td", has_text=topic).first)
    return time.perf_counter() - began


# the notebook


def notebook_line(
    playwright: Playwright, chromium: str, folder: Path, runs: int, enough: Callable[[], bool]
) -> Line:
    """A cell with a monitor, from the key until its first chart, in a notebook and a kernel of its own each time."""
    taken: list[float] = []
    with lab(folder) as address:
        for run in range(runs):
            if taken and enough():
                break
            (folder / f"run{run}.ipynb").write_text(cells(_MAKE, "monitor"))
            context = playwright.chromium.launch_persistent_context(
                str(folder / f"profile{run}"), executable_path=chromium, args=ARGUMENTS, headless=True
            )
            try:
                taken.append(_first_chart(context.pages[0], f"{address}/lab/tree/run{run}.ipynb"))
            finally:
                context.close()
    return Line("notebook: a monitor's cell, until its first chart", tuple(taken))


def _first_chart(page: Page, address: str) -> float:
    page.set_default_timeout(60_000)
    page.goto(f"{address}?token={TOKEN}&reset")
    cell = page.locator(".jp-Notebook .jp-CodeCell")
    cell.first.wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    _run(page, 0, to_its_end=True)
    page.wait_for_timeout(1500)
    began = _run(page, 1)
    shown(page.locator(".pc-monitor.pc-live svg rect").first)
    return time.perf_counter() - began


def _run(page: Page, number: int, *, to_its_end: bool = False) -> float:
    """Presses until the cell begins, or has ended; when it was pressed last. What is pressed too early is lost."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputPrompt").first
    pressed, deadline = -MOST, time.monotonic() + 2 * MOST
    while not re.search(r"\d" if to_its_end else r"[*\d]", now := prompt.inner_text()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"cell {number} of the notebook was not run; it says {now}")
        if "*" not in now and time.perf_counter() - pressed > 5.0:
            cell.locator(".jp-InputArea-editor").click()
            pressed = time.perf_counter()
            page.keyboard.press("Control+Enter")
        page.wait_for_timeout(20)
    return pressed
