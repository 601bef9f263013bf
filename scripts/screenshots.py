"""The screenshots of the README, made from a real run: broker, load with faults, store, dashboard, Chromium.

python scripts/screenshots.py [--seconds 290] [--into docs/screenshots]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from producer_core.simulate.live_run import LiveRun

LIMIT = 200_000
COLOURS = 255
SHOTS = (
    ("overview-light", "light", 1280, 1180),
    ("overview-dark", "dark", 1280, 1180),
    ("narrow", "light", 390, 844),
)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=290, help="how long the load runs before the first picture"
    )
    parser.add_argument("--into", type=Path, default=Path("docs/screenshots"))
    chosen = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is missing: apt-get install chromium", file=sys.stderr)
        return 2
    chosen.into.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        LiveRun(store=Path(folder) / "shop.duckdb", port=8760) as run,
    ):
        run.start()
        print(f"Running for {chosen.seconds:.0f} s …")
        time.sleep(chosen.seconds)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            sizes = [shoot(browser, run.port, chosen.into, *shot) for shot in SHOTS]
            browser.close()
    return 1 if max(sizes) > LIMIT else 0


def shoot(browser: Browser, port: int, into: Path, name: str, scheme: str, width: int, height: int) -> int:
    """One picture of the page as it stands; its size in bytes."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/?range=5+min")
    settle(page)
    target = into / f"{name}.png"
    picture = Image.open(BytesIO(page.screenshot()))
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
    context.close()
    size = target.stat().st_size
    print(f"{target}: {size / 1000:.0f} kB{', too large' if size > LIMIT else ''}")
    return size


def settle(page: Page) -> None:
    """Every chart drawn, every letter listed, fonts there."""
    page.wait_for_function("document.querySelectorAll('.live-plot .main-svg').length >= 10")
    page.locator(".pc-letters tbody tr").first.wait_for()
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(2500)


if __name__ == "__main__":
    sys.exit(main())
