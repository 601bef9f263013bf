"""Measure page loads until the first chart, refreshes, clicks, and the first chart of a notebook."""

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
"""Address and selector of the first chart, by page."""
PEER = "peer: minimal page with one chart"
TIMEOUT_S = 30.0
"""Seconds after which a measurement fails."""
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
"""Records each request of the page to its server, and the time of the last response or change of an element."""
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
class Measurement:
    """A name and the seconds of each run."""

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
    """Open a window in a new browser profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    if script:
        context.add_init_script(script)
    page = context.new_page()
    page.set_default_timeout(1000 * TIMEOUT_S)
    try:
        yield page
    finally:
        context.close()


def wait_visible(element: Locator) -> None:
    """Wait until the element is visible, checking every 40 ms. Playwright checks only every half second after 0.3 s."""
    deadline = time.monotonic() + TIMEOUT_S
    while not element.is_visible():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not visible after {TIMEOUT_S:.0f} s: {element}")
        element.page.wait_for_timeout(40)


# pages


def load(page: Page, address: str, selector: str) -> float:
    """Return the seconds from the navigation until the selector is visible."""
    page.goto("about:blank")
    started = time.perf_counter()
    page.goto(address, wait_until="commit")
    wait_visible(page.locator(selector).first)
    return time.perf_counter() - started


def load_cold_and_warm(browser: Browser, address: str, selector: str) -> tuple[float, float]:
    """Load a page in a new browser profile, and after a pause again in the same one."""
    with window(browser) as page:
        cold = load(page, address, selector)
        page.wait_for_timeout(700)
        return cold, load(page, address, selector)


def page_loads(
    browser: Browser, url: str, peer: str | None, names: tuple[str, ...], runs: int
) -> list[Measurement]:
    """Measure each page cold and warm. The pages and the peer take turns, so that background load affects all of them."""
    targets = {name: (url + PAGES[name][0], PAGES[name][1]) for name in names}
    if peer is not None:
        targets[PEER] = peer, PEERS_CHART
    for address, selector in targets.values():  # the server's first response is not measured
        with window(browser) as page:
            load(page, address, selector)
    loads: dict[str, list[tuple[float, float]]] = {name: [] for name in targets}
    for _ in range(runs):
        for name, (address, selector) in targets.items():
            loads[name].append(load_cold_and_warm(browser, address, selector))
    return [
        Measurement(f"{name}, {state}", tuple(pair[place] for pair in pairs))
        for name, pairs in loads.items()
        for place, state in enumerate(("cold", "warm"))
    ]


# an open page


def live_updates(browser: Browser, url: str, store: Path, runs: int) -> Iterator[Measurement]:
    """Measure refreshes, clicks on another range, and the time until a new row of the store is displayed."""
    with window(browser, _WATCHED) as page:
        load(page, url, CHART)
        yield Measurement("overview: refresh", refreshes(page, REFRESHES))
        clicks = [_select_range(page, ("5 min", "15 min")[run % 2]) for run in range(runs)]
        yield Measurement("overview: change of the range until displayed", tuple(clicks))
        written = [_write_topic(page, Store.open(store), f"new-{run}") for run in range(runs)]
        yield Measurement("overview: write to the store until displayed", tuple(written))


def refreshes(page: Page, number: int) -> tuple[float, ...]:
    """Return the seconds of each automatic refresh, without the first ones after the page load."""
    page.wait_for_timeout(2500)
    page.evaluate("pcRefreshes.length = 0")
    page.wait_for_function(f"pcRefreshes.length > {number}", timeout=2000 * number + 10_000)
    taken = page.evaluate(f"pcRefreshes.slice(0, {number}).map(one => (one.till - one.from) / 1000)")
    return tuple(seconds for seconds in taken if seconds > 0)


def _select_range(page: Page, name: str) -> float:
    page.wait_for_timeout(700)
    started = time.perf_counter()
    page.get_by_role("radio", name=name, exact=True).click()
    wait_visible(page.locator(".pc-headline", has_text=f"in the last {name}"))
    return time.perf_counter() - started


def _write_topic(page: Page, store: Store, topic: str) -> float:
    """Return the seconds until a new topic is in the list of topics.

    The page refreshes once a second, so about half a second of the result is waiting.
    """
    page.wait_for_timeout(313)  # a different phase of the refresh each time
    now = int(time.time())
    row = StatisticsRow(now, "shop", topic, topic, 1, 1, 0, 0, 0, 0, 0, 0, 10, 0.001)
    store.append(Batch(topic, 0, (row,)))
    started = time.perf_counter()
    wait_visible(page.locator(".pc-topics td", has_text=topic).first)
    return time.perf_counter() - started


# the notebook


def notebook_start(
    playwright: Playwright, chromium: str, folder: Path, runs: int, timed_out: Callable[[], bool]
) -> Measurement:
    """Measure a monitor's cell from the key press to its first chart, each time in a new notebook and kernel."""
    seconds: list[float] = []
    with lab(folder) as address:
        for run in range(runs):
            if seconds and timed_out():
                break
            (folder / f"run{run}.ipynb").write_text(cells(_MAKE, "monitor"))
            context = playwright.chromium.launch_persistent_context(
                str(folder / f"profile{run}"), executable_path=chromium, args=ARGUMENTS, headless=True
            )
            try:
                seconds.append(_first_chart(context.pages[0], f"{address}/lab/tree/run{run}.ipynb"))
            finally:
                context.close()
    return Measurement("notebook: monitor cell until its first chart", tuple(seconds))


def _first_chart(page: Page, address: str) -> float:
    page.set_default_timeout(60_000)
    page.goto(f"{address}?token={TOKEN}&reset")
    cell = page.locator(".jp-Notebook .jp-CodeCell")
    cell.first.wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    _run(page, 0, until_finished=True)
    page.wait_for_timeout(1500)
    started = _run(page, 1)
    wait_visible(page.locator(".pc-monitor.pc-live svg rect").first)
    return time.perf_counter() - started


def _run(page: Page, number: int, *, until_finished: bool = False) -> float:
    """Run a cell and return the time of the key press.

    JupyterLab ignores a key press that is too early, so the press is repeated until the cell starts or has finished.
    """
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputPrompt").first
    pressed, deadline = -TIMEOUT_S, time.monotonic() + 2 * TIMEOUT_S
    while not re.search(r"\d" if until_finished else r"[*\d]", now := prompt.inner_text()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"cell {number} of the notebook did not run; its prompt is {now}")
        if "*" not in now and time.perf_counter() - pressed > 5.0:
            cell.locator(".jp-InputArea-editor").click()
            pressed = time.perf_counter()
            page.keyboard.press("Control+Enter")
        page.wait_for_timeout(20)
    return pressed
