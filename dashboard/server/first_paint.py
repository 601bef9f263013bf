"""The first sight of the dashboard: what stands on the page until the browser has what it needs to draw it."""

from __future__ import annotations

import json

SENTENCE = "Opening the dashboard. The first time takes a few seconds, later it is quick."
LATE = (
    "It takes longer than usual: this machine is busy, or the server does not answer. It goes on by itself."
)
_LATE_AFTER = 12_000
"""Milliseconds until it is said that something may be wrong."""

_STYLE = """
#pc-first { position: fixed; inset: 0; z-index: 100; pointer-events: none; padding: 4.2rem 2rem; color-scheme: light dark;
  background: light-dark(#ffffff, #0e1117); color: light-dark(#31333f, #fafafa); font: 1rem/1.5 system-ui, sans-serif; }
#pc-first p { margin: 0 0 1rem; max-width: 60rem; }
#pc-first div { max-width: 1376px; display: grid; gap: 0.5rem; grid-template-columns: repeat(6, minmax(0, 1fr)); }
#pc-first i { height: 4.4rem; border-radius: 6px; background: rgba(128, 128, 128, 0.16); }
@media (max-width: 800px) { #pc-first { padding: 4.2rem 0.9rem; } #pc-first div { grid-template-columns: repeat(3, 1fr); } }
"""
_DRAWN = ".pc-title, .pc-say, [role=dialog], [data-testid=stMain] p, [data-testid=stException]"
"""Any of these is the page itself, or Streamlit saying why there is none."""

_SHAPE = (
    f"<style>{_STYLE}</style><p><strong>producer_core</strong></p>"
    f"<p role='status'>{SENTENCE}</p><p></p><div>{'<i></i>' * 12}</div>"
)
_SCRIPT = """
(() => {
  const first = document.createElement('div'), drawn = () => document.querySelector(DRAWN)
  first.id = 'pc-first'
  first.innerHTML = SHAPE
  document.body.prepend(first)
  const late = setTimeout(() => { first.querySelectorAll('p')[2].textContent = LATE }, AFTER)
  const watch = new MutationObserver(() => { if (drawn()) { watch.disconnect(); clearTimeout(late); first.remove() } })
  watch.observe(document.getElementById('root'), { childList: true, subtree: true })
})()
"""
_ROOT = b'<div id="root"></div>'


def added(page: bytes) -> bytes:
    """The page with the first sight in it: made by a script, so that a browser without scripts says so instead."""
    script = _SCRIPT
    for name, value in (("DRAWN", _DRAWN), ("SHAPE", _SHAPE), ("LATE", LATE), ("AFTER", _LATE_AFTER)):
        script = script.replace(name, json.dumps(value), 1)
    return page.replace(_ROOT, _ROOT + f"<script>{script}</script>".encode(), 1)
