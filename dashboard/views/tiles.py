"""The tiles of a page, and the topics of the overview, as nodes that are brought up to date in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.views import common, header

_TOPICS = 12
_MARKS = {
    3: ("bad", "failing"),
    2: ("warning", "some fail"),
    1: ("quiet", "letters wait"),
    0: ("good", "fine"),
}
_AWAY = ("bad", "waits for a broker")
"""While no broker is there a topic on which nothing fails is not fine."""
_HEAD = (
    ("Topic", ""), ("State", ""), ("Acknowledged", "pc-n"), ("Over the range", "pc-opt"), ("Failed", "pc-n"),
    ("p99", "pc-n pc-opt"), ("Dead letters", "pc-n"), ("Why", "pc-why-cell"),
)  # fmt: skip


def tiles(shown: Iterable[charts.Tile], *, look: str = "") -> Node:
    return node(
        "div",
        *map(_tile, shown),
        class_=f"pc-tiles {look}".strip(),
        role="list",
        aria_label="Key figures",
    )


def _tile(tile: charts.Tile) -> Node:
    value: Node | str = (
        tile.value if tile.page is None else link(tile.value, header.link(tile.page, range=None))
    )
    lines = []
    if tile.change.text:
        lines.append(
            node(
                "span",
                tile.change.text,
                class_=f"pc-change pc-{tile.change.tone or 'same'}",
                aria_label=tile.change.aloud,
            )
        )
    if tile.note:
        lines.append(node("span", tile.note, class_="pc-change"))
    return node(
        "div",
        node("span", tile.label, class_="pc-label"),
        node("span", value, class_="pc-value"),
        *lines,
        class_="pc-tile",
        role="listitem",
        title=tile.more,
        data_key=tile.label,
    )


def small(text: str, more: str) -> Node:
    """Small print, with `more` under the pointer."""
    return node("p", text, class_="pc-note", title=more)


def headline(shown: queries.OverviewPage) -> Node:
    """The sentence on top; read aloud only when its sense changes, not with every number."""
    found = wording.headline(shown.situation, common.zone())
    return node(
        "div",
        node("p", *map(_piece, found.pieces), class_=f"pc-say pc-lead pc-{found.tone}"),
        node("span", wording.announcement(found), class_="pc-aloud", role="status"),
    )


def _piece(piece: wording.HeadlinePart) -> Node:
    if piece.page is None:
        return node("span", piece.text)
    address = piece.page if piece.page.startswith("#") else header.link(piece.page, **dict(piece.query))
    return link(piece.text, address, class_="pc-link pc-go" if piece.button else "pc-link")


def topics(shown: queries.OverviewPage) -> Iterator[Node]:
    """The most troubled first; each leads to that topic, to its dead letters and to the group that fails."""
    rows = shown.topics[:_TOPICS]
    yield node("h2", "Topics", class_="pc-h")
    if not rows:
        yield node("p", "No topic was written to in this range.", class_="pc-note")
        return
    head = node("tr", *(node("th", name, scope="col", class_=cls) for name, cls in _HEAD))
    table = node(
        "table",
        node("thead", head),
        node("tbody", *(_topic(row, shown.situation) for row in rows)),
        class_="pc-rows pc-numbers pc-topics",
    )
    yield node(
        "div",
        table,
        class_="pc-wide",
        role="region",
        aria_label="Topics, the most troubled first",
        tabindex="0",
    )
    if more := wording.topics_left(len(shown.topics), _TOPICS, sum(row.trouble > 0 for row in shown.topics)):
        yield node("p", more, class_="pc-note")


def _topic(row: queries.TopicRow, now: queries.Situation) -> Node:
    away = row.trouble < 2 and not now.over and now.producers and not now.connected
    tone, mark = _AWAY if away else _MARKS[row.trouble]
    dead_letters = header.link("dead-letters", topic=row.topic, state="any" if row.replayed else None)
    waiting = header.link("dead-letters", topic=row.topic, range=None)
    cells: tuple[Node | str, ...] = (
        link(wording.short(row.topic, 40), header.link(header.FIRST, topic=row.topic), title=row.topic),
        node("span", mark, class_=f"pc-mark pc-{tone}"),
        wording.rate(row.throughput),
        charts.spark(row.rates, row.failures, wording.spark(row.topic, row.throughput, row.dead)),
        link(wording.failed(row.dead, row.error_rate), dead_letters) if row.dead else "none",
        wording.milliseconds(row.p99),
        link(wording.count(row.waiting), waiting) if row.waiting else "none",
        _why(row),
    )
    said = (None, None, None, None, "failed", None, "letters", None)
    return node(
        "tr",
        *(
            node("td", cell, class_=f"{cls} pc-none".strip() if cell == "none" else cls, data_label=label)
            for cell, label, (_, cls) in zip(cells, said, _HEAD, strict=True)
        ),
        data_key=row.topic,
    )


def _why(row: queries.TopicRow) -> Node | str:
    if row.cause is None:
        return ""
    reason = wording.reason(row.cause.meaning)
    query = {"topic": row.topic, "group": row.cause.fingerprint or None}
    if not row.cause.left:
        query["state"] = "any"
    more = wording.more_reasons(row.causes - 1) + wording.replayed_note(row.replayed, row.dead)
    return node(
        "span", link(reason, header.link("dead-letters", **query)), node("span", more, class_="pc-dim")
    )
