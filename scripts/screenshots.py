"""Create the screenshots of the documentation: every page in light, dark and narrow, from a shop with an incident.

Two producers send to an embedded broker. The broker rejects product updates for a while. That fault is fixed and its
dead letters are partly replayed. Then the broker rejects payments, which is not fixed yet. The store also has a day of
earlier history.

python scripts/screenshots.py [--seconds 200] [--into docs/screenshots] [--only overview,errors]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import shop_history
from browser import answers, find_chromium
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from producer_core import ReliableKafkaProducer, replay
from producer_core.alerts import AlertLog
from producer_core.brokers import embedded
from producer_core.dashboard.server import command
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.simulate.faults import (
    BrokerExecutor,
    FaultRun,
    FaultSchedule,
    RejectFault,
    SlowFault,
    Window,
)
from producer_core.simulate.load import ShopLoad, topic_names
from producer_core.store import Store

LIMIT = 1_500_000
"""The maximum size of all screenshots together, in bytes."""
COLOURS = 255
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
LOOKS = {"light": (1280, 1000), "dark": (1280, 1000), "narrow": (390, 844)}
MENDED = 45.0
"""The second from which product updates are accepted again."""
BROKEN = 75.0
"""The second from which payments are rejected."""


@dataclass(frozen=True)
class Shot:
    """A page: its address, the content to wait for, the element to click, and the content that the click opens."""

    name: str
    address: str
    there: str
    press: str = ""
    opens: str = ""


SHOTS = (
    Shot("overview", "", ".live-plot .main-svg"),
    Shot("latency", "latency", ".live-plot .main-svg"),
    Shot("errors", "errors", ".live-plot .main-svg"),
    Shot("dead-letters", "dead-letters", ".pc-dead-letters tbody tr"),
    Shot(
        "letter",
        "dead-letters?topic=payments",
        ".pc-dead-letters tbody tr",
        press=".pc-dead-letters .pc-row-button",
        opens=".pc-facts",
    ),
    Shot("replays", "replays", ".pc-table"),
    Shot("alerts", "alerts", "[role=article]"),
    Shot("fleet", "fleet", ".live-plot .main-svg"),
    Shot("settings", "settings", "h2.pc-h"),
)


def main() -> int:
    chosen = _options()
    chromium = find_chromium()
    chosen.into.mkdir(parents=True, exist_ok=True)
    shots = [shot for shot in SHOTS if not chosen.only or shot.name in chosen.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        store = Path(folder) / "shop.duckdb"
        with incident(store, chosen.seconds), dashboard(store) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            for look in LOOKS:
                shoot(browser, url, chosen.into, look, shots)
            browser.close()
    total = sum(picture.stat().st_size for picture in chosen.into.glob("*.png"))
    print(f"{total / 1000:,.0f} kB in total{', too large' if total > LIMIT else ''}")
    return 1 if total > LIMIT else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=200, help="duration of the incident before the first screenshot"
    )
    parser.add_argument("--into", type=Path, default=Path("docs/screenshots"))
    parser.add_argument("--only", default="", help="names of pages, separated by commas")
    return parser.parse_args()


# the incident


def schedule() -> FaultSchedule:
    """Reject product updates and accept them again, slow the responses for a moment, then reject payments."""
    return FaultSchedule(
        (
            Window(RejectFault("product-updates", "INVALID_RECORD"), 10, MENDED),
            Window(RejectFault("user-events", "THROTTLING_QUOTA_EXCEEDED", share=0.1), 50, 60),
            Window(SlowFault(0.2), 62, 68),
            Window(RejectFault("payments", "POLICY_VIOLATION"), BROKEN, 86_400),
        ),
        cycle=86_400,
    )


@contextlib.contextmanager
def incident(path: Path, seconds: float) -> Iterator[None]:
    """Run the shop, its load and its faults for this number of seconds, and then until the context exits."""
    store = Store.open(path)
    shop_history.write(store, now=time.time())
    with contextlib.ExitStack() as parts:
        broker = parts.enter_context(embedded.start(topics=topic_names()))
        for name, rate in (("checkout-1", 120.0), ("storefront-1", 180.0)):
            producer = ReliableKafkaProducer(
                broker.bootstrap_servers,
                {"client.id": name, "max_block_ms": 1000},
                store=path,
                cluster_id=broker.cluster_id,
                health_check_interval=5,
            )
            parts.callback(producer.close, 4.0)
            load = ShopLoad(producer, rate=rate)
            parts.callback(load.stop)
            load.start()
        faults = FaultRun(schedule(), [BrokerExecutor(broker)])
        parts.callback(faults.stop)
        faults.start()
        print(f"Running for {seconds:.0f} s …")
        _wait(MENDED + 10)
        _replay_some(store)
        _wait(max(0.0, seconds - MENDED - 10))
        _acknowledge(store)
        yield


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _replay_some(store: Store) -> None:
    """Replay half of the fixed dead letters at once, as a page does, and the rest slowly, so that it is visible in progress."""
    dead_letters = DeadLetters(store)
    waiting = dead_letters.find(DeadLetterFilter(topic="product-updates"), limit=1_000)
    half = tuple(one.message_id for one in waiting[::2])
    _plan(store, DeadLetterFilter(ids=half))
    _plan(store, DeadLetterFilter(topic="product-updates"), rate=0.8)


def _plan(store: Store, where: DeadLetterFilter, rate: float | None = None) -> None:
    one = replay.plan(
        store, where, who="ada", origin="dashboard", rate=rate, canary=0, reason="schema is fixed"
    )
    while rate is None and not replay.get(store, one.operation_id).ended:
        _wait(0.5)


def _acknowledge(store: Store) -> None:
    """Acknowledge the first alert that fired."""
    log = AlertLog(store)
    firing = sorted(log.firing().values(), key=lambda one: one.started_at)
    if firing:
        log.acknowledge(firing[0].alert_id, who="ada", origin="dashboard")


# the screenshots


@contextlib.contextmanager
def dashboard(store: Path) -> Iterator[str]:
    """Serve the store from a separate home folder, so that no screenshot contains a path of this machine."""
    port = command.free_port(8760)
    own = {"XDG_CONFIG_HOME": "/etc", "PRODUCER_CORE_USER": "ada", "USER": "ada", "LOGNAME": "ada"}
    process = subprocess.Popen(
        command.command(store, port),
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        while not answers(f"http://127.0.0.1:{port}/_stcore/health"):
            _wait(0.2)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


def shoot(browser: Browser, url: str, into: Path, look: str, shots: list[Shot]) -> None:
    """Take the screenshots of all pages in one color scheme and width, from one window."""
    width, height = LOOKS[look]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if look == "dark" else "light"
    )
    page = context.new_page()
    for shot in shots:
        page.goto(url + shot.address)
        settle(page, shot)
        target = into / f"{shot.name}-{look}.png"
        picture = Image.open(BytesIO(page.screenshot()))
        picture.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE
        ).save(target, optimize=True)
        print(f"{target}: {target.stat().st_size / 1000:.0f} kB")
    context.close()


def settle(page: Page, shot: Shot) -> None:
    """Wait until every chart is drawn, the fonts are loaded, and no placeholder is left."""
    page.locator("h1.pc-title").first.wait_for(timeout=120_000)
    page.locator(shot.there).first.wait_for(timeout=120_000)
    page.wait_for_function(
        """() => !document.querySelector('[data-testid="stSkeleton"]')
            && [...document.querySelectorAll('.live-plot')].every(plot => plot.querySelector('.main-svg'))""",
        timeout=120_000,
    )
    if shot.press:
        page.locator(shot.press).first.click()
        page.locator(shot.opens).first.wait_for(timeout=120_000)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(2500)


if __name__ == "__main__":
    sys.exit(main())
