"""Show a placeholder on the page until the browser has loaded what it needs to draw the dashboard."""

from __future__ import annotations

import json

from producer_core.dashboard.theme import asset

LOADING = "Loading the dashboard. The first load takes a few seconds."
DELAYED = (
    "Loading is taking longer than usual: the machine is busy, or the server is not responding. "
    "The dashboard opens automatically."
)
_DELAYED_AFTER = 12_000
"""Milliseconds after which the page shows `DELAYED`."""

_DRAWN = ".pc-title, .pc-message, [role=dialog], [data-testid=stMain] p, [data-testid=stException]"
"""Each selector matches the drawn page, or a message from Streamlit that the page cannot be drawn."""

_ROOT = b'<div id="root"></div>'


def with_first_paint(page: bytes) -> bytes:
    """Return the page with the placeholder. A script adds it, so that a browser without scripts shows its own notice."""
    values = {
        "DRAWN": _DRAWN, "PLACEHOLDER": _placeholder(), "DELAYED_AFTER": _DELAYED_AFTER, "DELAYED": DELAYED,
    }  # fmt: skip
    script = asset("server/first_paint.js")
    for name, value in values.items():
        script = script.replace(name, json.dumps(value), 1)
    return page.replace(_ROOT, _ROOT + f"<script>{script}</script>".encode(), 1)


def _placeholder() -> str:
    return (
        f"<style>{asset('server/first_paint.css')}</style><p><strong>producer_core</strong></p>"
        f"<p role='status'>{LOADING}</p><p></p><div>{'<i></i>' * 12}</div>"
    )
