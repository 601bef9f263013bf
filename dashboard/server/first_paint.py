"""Show a placeholder on the page until the browser has loaded what it needs to draw the dashboard."""

from __future__ import annotations

import json

LOADING = "Opening the dashboard. The first time takes a few seconds."
DELAYED = "This takes longer than usual: the machine is busy, or the server does not respond. The page opens by itself."
_DELAYED_AFTER = 12_000
"""Milliseconds after which the page shows `DELAYED`."""

_STYLE = """
#pc-first { position: fixed; inset: 0; z-index: 100; pointer-events: none; padding: 4.2rem 2rem; color-scheme: light dark;
  background: light-dark(#ffffff, #0e1117); color: light-dark(#31333f, #fafafa); font: 1rem/1.5 system-ui, sans-serif; }
#pc-first p { margin: 0 0 1rem; max-width: 60rem; }
#pc-first div { max-width: 1376px; display: grid; gap: 0.5rem; grid-template-columns: repeat(6, minmax(0, 1fr)); }
#pc-first i { height: 4.4rem; border-radius: 6px; background: rgba(128, 128, 128, 0.16); }
@media (max-width: 800px) { #pc-first { padding: 4.2rem 0.9rem; } #pc-first div { grid-template-columns: repeat(3, 1fr); } }
"""
_DRAWN = ".pc-title, .pc-message, [role=dialog], [data-testid=stMain] p, [data-testid=stException]"
"""Each selector matches the drawn page, or a message of Streamlit that it cannot be drawn."""

_PLACEHOLDER = (
    f"<style>{_STYLE}</style><p><strong>producer_core</strong></p>"
    f"<p role='status'>{LOADING}</p><p></p><div>{'<i></i>' * 12}</div>"
)
_SCRIPT = """
(() => {
  const placeholder = document.createElement('div'), drawn = () => document.querySelector(DRAWN)
  placeholder.id = 'pc-first'
  placeholder.innerHTML = PLACEHOLDER
  document.body.prepend(placeholder)
  const timer = setTimeout(() => { placeholder.querySelectorAll('p')[2].textContent = DELAYED }, DELAYED_AFTER)
  const observer = new MutationObserver(() => {
    if (drawn()) { observer.disconnect(); clearTimeout(timer); placeholder.remove() }
  })
  observer.observe(document.getElementById('root'), { childList: true, subtree: true })
})()
"""
_ROOT = b'<div id="root"></div>'


def with_first_paint(page: bytes) -> bytes:
    """Return the page with the placeholder. A script adds it, so that a browser without scripts shows its own notice."""
    values = {
        "DRAWN": _DRAWN, "PLACEHOLDER": _PLACEHOLDER, "DELAYED_AFTER": _DELAYED_AFTER, "DELAYED": DELAYED,
    }  # fmt: skip
    script = _SCRIPT
    for name, value in values.items():
        script = script.replace(name, json.dumps(value), 1)
    return page.replace(_ROOT, _ROOT + f"<script>{script}</script>".encode(), 1)
