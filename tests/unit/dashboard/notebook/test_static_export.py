"""Test the static view of the monitor."""

from __future__ import annotations

import re
from base64 import b64decode

from producer_core import Monitor
from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dlq import DeadLetters
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures.notebook import HOSTILE, dead_letter

now, store = notebook_fixtures.now, notebook_fixtures.store


def test_plain_html_is_the_static_view(store):
    page = Monitor(store)._repr_html_()
    assert "10 of 100" in page and "<script" not in page and "data:image/svg+xml;base64" in page


def test_names_and_errors_are_escaped_and_masked(store, now):
    DeadLetters(store).add(
        [dead_letter(99, topic=HOSTILE, failed_at=now, text=f"{HOSTILE} password=hunter2")]
    )
    state = widget_state.moment(store, now=now)
    page = static_export.page(state, "x")
    picture = b64decode(re.search(r"base64,([^']+)'", page)[1]).decode()

    assert "<img src=x" not in page and "&lt;img src=x" in page
    assert "<img" not in picture
    assert "hunter2" not in page and "hunter2" not in widget_state.text(state)
    assert "hunter2" not in str(state.as_json())
