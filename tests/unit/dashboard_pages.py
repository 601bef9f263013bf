"""Render pages with Streamlit's AppTest, and read their visible content."""

from __future__ import annotations

import json
import time

from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import failure_of, fingerprint
from producer_core.store import ProducerRow, StatisticsRow

HOSTILE = '<img src=x onerror="alert(1)"> **bold** <a href="https://evil.example">x</a>'


def opened(name, path, monkeypatch, **address):
    """Run the page `producer_core.dashboard.views.<name>` on a store, at an address."""
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(path)])
    page = f"from pathlib import Path\nfrom producer_core.dashboard.views import {name}\n\n{name}.show(Path({str(path)!r}))\n"
    app = AppTest.from_string(page, default_timeout=240)
    for key, value in address.items():
        app.query_params[key] = value
    return app.run()


def trees(page):
    """Return the node trees of the page."""
    found = []
    for element in page.get("bidi_component"):
        data = json.loads(element.proto.json or element.proto.mixed.json or "{}")
        found += data.get("tree", [])
    return found


def text_of(page):
    """Return the HTML of the page and the text of its trees."""
    html = [element.body for element in page.get("html")]
    return " ".join([*html, *(_text(tree) for tree in trees(page))])


def tiles_of(page):
    """Return label and value of each tile, in order."""
    return [
        (_text(tile[2][0]), _text(tile[2][1]))
        for tree in trees(page)
        if not isinstance(tree, str) and "pc-tiles" in tree[1].get("class", "")
        for tile in tree[2]
    ]


def _text(tree):
    return tree if isinstance(tree, str) else " ".join(_text(child) for child in tree[2])


def links(page):
    """Return every link target in the trees."""
    return [href for tree in trees(page) for href in _links(tree)]


def _links(tree):
    if isinstance(tree, str):
        return []
    own = [tree[1]["href"]] if "href" in tree[1] else []
    return own + [href for child in tree[2] for href in _links(child)]


def rows_of(page, label):
    """Return the cell texts of each row of the table with that label."""
    for tree in trees(page):
        if not isinstance(tree, str) and tree[1].get("aria-label") == label:
            body = tree[2][0][2][1]
            return [[" ".join(_text(cell).split()) for cell in row[2]] for row in body[2]]
    return []


def counts(at, topic, *, producer="p", acknowledged=0, dead=0, failed=None, saved=0):
    attempts = dead if failed is None else failed
    return StatisticsRow(
        int(at),
        "c",
        producer,
        topic,
        acknowledged + dead,
        acknowledged,
        dead,
        attempts,
        0,
        saved,
        0,
        0,
        10,
        0.1,
    )


def producer(name="p", now=None, **changes):
    now = float(int(time.time())) if now is None else now
    row = ProducerRow(
        name, "c", "shop", "host", 7, "0.1", now - 60, now, None, True, None, 3, 1, 4, 100_000, 2**27, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    return row._replace(**changes)


def dead_letter(
    number,
    *,
    failed_at,
    topic="payments",
    code="POLICY_VIOLATION",
    text="Broker: Policy violation",
    **changes,
):
    known = {
        "message_id": f"m-{topic}-{code}-{number}", "cluster_id": "c", "producer_id": "p", "topic": topic, "key": b"k",
        "value": b"{}", "headers": (), "partition": None, "timestamp_ms": None, "verdict": "rejected",
        "verdict_reason": "one transmission", "kind": failure_of(code).kind, "code": code, "error_text": text,
        "fingerprint": fingerprint(code, text), "attempts": (Attempt(failed_at, code, text),),
        "accepted_at": failed_at - 1, "failed_at": failed_at,
    }  # fmt: skip
    return DeadLetter(**{**known, **changes})
