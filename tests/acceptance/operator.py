"""An operator of the dashboard, who acts only on visible text, labels and roles. Counts clicks, texts, scrolls and seconds.

$PRODUCER_CORE_PICTURES names a folder for a picture of each step, $PRODUCER_CORE_TIMES a file for the measured values.
"""

from __future__ import annotations

import json
import os
import re
import time

from tests.acceptance.browsing import drawn
from tests.support import eventually

PHONE_WIDTH = 600
_TOP = 64
"""Height of the bar at the top of each page, which covers what is scrolled under it."""


class Operator:
    """One person with one window. The time begins when the address is opened."""

    def __init__(self, page, address, task, *, attempt=1):
        self.page, self.task, self._attempt = page, task, attempt
        self.clicks = self.texts = self.characters = self.scrolls = 0
        self._steps, self._paused, self._began = 0, 0.0, time.monotonic()
        page.goto(address)

    # actions

    def sign_in(self, name, password):
        self.fill("Name", name)
        self.fill("Password", password)
        self.click("Sign in")
        self._picture("signed in")

    def open(self, title):
        """Open a page by the menu, which a phone folds."""
        if self.is_on_phone:
            self._click(self.page.get_by_role("button", name="Expand sidebar"))
        self._click(self.page.get_by_role("link", name=title, exact=True))
        self.page.get_by_role("heading", level=1, name=title).wait_for()
        drawn(self.page)
        self._picture(f"open {title}")

    def click(self, label, *, within=None):
        """Click a button, a link or a tab with this text, in the row or section that contains the text `within`."""
        place = self.page if within is None else self._row(within)
        named = re.compile(rf"^([a-z_]+\s)?{re.escape(label)}$") if isinstance(label, str) else label
        target = place.get_by_role("button", name=named)
        for role in ("link", "radio", "tab"):
            target = target.or_(place.get_by_role(role, name=named))
        self._click(target)
        self._picture(f"click {label if isinstance(label, str) else label.pattern}")

    def click_row(self, text, *, table):
        """Click a row of the table that has this title."""
        rows = self.page.get_by_role("table", name=re.compile(f"^{table}")).get_by_role("row")
        self._click(rows.filter(has_text=text))
        self._picture(f"row {text}")

    def choose(self, field, option):
        """Choose an option of a list."""
        self._click(self.page.get_by_role("combobox", name=re.compile(field)))
        self._click(self.page.get_by_role("option", name=option, exact=True))
        self._picture(f"choose {option}")

    def fill(self, label, text):
        field = self.page.get_by_label(label, exact=True).filter(visible=True).first
        field.wait_for()
        self._scroll_to(field)
        field.fill(text)
        self.texts += 1
        self.characters += len(text)

    def download(self, label, path):
        """Click a button and save the file that the browser receives."""
        with self.page.expect_download() as received:
            self.click(label)
        received.value.save_as(path)

    def read(self, text, *, within=None):
        """Wait until the page shows the text, which may be a pattern. Return the words around it."""
        place = self.page if within is None else self._row(within)
        found = place.get_by_text(text).filter(visible=True).first
        try:
            found.wait_for()
        except Exception as error:
            raise AssertionError(
                f"No {text!r} on {self.page.url}:\n{self.page.inner_text('body')}"
            ) from error
        self._scroll_to(found)
        self._picture("read")
        return found.inner_text()

    def shows(self, text):
        """Return whether the page shows the text now."""
        return self.page.get_by_text(text).filter(visible=True).count() > 0

    # measurements

    def end(self):
        """Stop the time, and write what the task took."""
        values = {
            "task": self.task, "width": self.page.viewport_size["width"], "attempt": self._attempt,
            "seconds": round(self.seconds, 1), "clicks": self.clicks, "texts": self.texts,
            "characters": self.characters, "scrolls": self.scrolls,
        }  # fmt: skip
        if file := os.environ.get("PRODUCER_CORE_TIMES"):
            with open(file, "a") as lines:
                lines.write(f"{json.dumps(values)}\n")

    @property
    def seconds(self):
        """The seconds since the address was opened, without those for pictures."""
        return time.monotonic() - self._began - self._paused

    @property
    def is_on_phone(self):
        return self.page.viewport_size["width"] < PHONE_WIDTH

    # parts of the actions

    def _row(self, text):
        rows = self.page.get_by_role("row").or_(self.page.get_by_role("article")).filter(visible=True)
        return rows.filter(has_text=text).first

    def _click(self, target):
        target = target.filter(visible=True).first
        target.wait_for()
        eventually(target.is_enabled)
        self._scroll_to(target)
        target.click()
        self.clicks += 1

    def _scroll_to(self, target):
        """Scroll until the target is in view, and count it: what is below the fold is easily missed."""
        box = target.bounding_box()
        if box is None or not _TOP <= box["y"] + box["height"] / 2 <= self.page.viewport_size["height"]:
            self.scrolls += 1
            target.scroll_into_view_if_needed()

    def _picture(self, what):
        """Save a picture of the window if $PRODUCER_CORE_PICTURES names a folder."""
        self._steps += 1
        folder = os.environ.get("PRODUCER_CORE_PICTURES")
        if not folder or self._attempt > 1:
            return
        began = time.monotonic()
        self.page.wait_for_timeout(700)
        name = re.sub(r"\W+", "-", f"{self.task} {self.page.viewport_size['width']} {self._steps:02} {what}")
        self.page.screenshot(path=f"{folder}/{name.strip('-')[:110]}.png")
        self._paused += time.monotonic() - began
