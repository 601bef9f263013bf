"""Build the tiles of a page, and the headline and topics of the overview, as nodes for `live_dom`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.views import common, header

_SHOWN_TOPICS = 12
_MARKS = {
    3: ("bad", "failing"),
    2: ("warning", "some failures"),
    1: ("quiet", "pending dead letters"),
    0: ("good", "healthy"),
}
_DISCONNECTED = ("bad", "no broker connection")
"""Replaces the mark of a topic without failures while no broker is connected."""
_COLUMNS = (
    ("Topic", ""), ("State", ""), ("Acknowledged", "pc-n"), ("Over the range", "pc-opt"), ("Failed", "pc-n"),
    ("p99", "pc-n pc-opt"), ("Dead letters", "pc-n"), ("Cause", "pc-cause-cell"),
)  # fmt: skip


def tiles(figures: Iterable[charts.Tile], *, css_class: str = "") -> Node:
    return node(
        "div",
        *map(_tile, figures),
        class_=f"pc-tiles {css_class}".strip(),
        role="list",
        aria_label="More figures" if css_class == "pc-more-figures" else "Key figures",
    )


def _tile(tile: charts.Tile) -> Node:
    drawn = []
    if tile.course or tile.counts:
        drawn = [charts.spark(tile.course, tile.counts, wording.course(tile.label))]
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
        *drawn,
        *lines,
        class_="pc-tile",
        role="listitem",
        title=tile.more,
        data_key=tile.label,
    )


def more_figures(figures: Iterable[charts.Tile]) -> Iterator[Node]:
    """Yield the figures below the charts, under their heading."""
    yield node("h2", "More figures", class_="pc-h")
    yield tiles(figures, css_class="pc-more-figures")


def note(text: str, tooltip: str) -> Node:
    """Return small print with a tooltip."""
    return node("p", text, class_="pc-note", title=tooltip)


def headline(page: queries.OverviewPage) -> Node:
    """Return the headline. Screen readers announce it only when its meaning changes, not with every number."""
    headline = wording.headline(page.situation, common.zone())
    return node(
        "div",
        node(
            "div",
            node("p", *map(_part, headline.now), class_="pc-now"),
            *([node("p", *map(_part, headline.past), class_="pc-past")] if headline.past else []),
            class_=f"pc-message pc-headline pc-{headline.tone}",
        ),
        node("span", wording.announcement(headline), class_="pc-screen-reader", role="status"),
    )


def _part(part: wording.HeadlinePart) -> Node:
    if part.page is None:
        return node("span", part.text)
    address = part.page if part.page.startswith("#") else header.link(part.page, **dict(part.query))
    return link(part.text, address, class_="pc-link pc-button-link" if part.button else "pc-link")


def topics(page: queries.OverviewPage) -> Iterator[Node]:
    """Yield the table of topics, those with problems first, with links to dead letters and causes."""
    rows = page.topics[:_SHOWN_TOPICS]
    yield node("h2", "Topics", class_="pc-h")
    if not rows:
        yield node("p", "No messages were sent in this range.", class_="pc-note")
        return
    head = node("tr", *(node("th", name, scope="col", class_=cls) for name, cls in _COLUMNS))
    table = node(
        "table",
        node("thead", head),
        node("tbody", *(_topic(row, page.situation) for row in rows)),
        class_="pc-rows pc-numbers pc-topics",
    )
    yield node(
        "div",
        table,
        class_="pc-wide",
        role="region",
        aria_label="Topics, those with problems first",
        tabindex="0",
    )
    with_problems = sum(row.trouble > 0 for row in page.topics)
    if more := wording.topics_left(len(page.topics), _SHOWN_TOPICS, with_problems):
        yield node("p", more, class_="pc-note")


def _topic(row: queries.TopicRow, now: queries.Situation) -> Node:
    disconnected = row.trouble < 2 and not now.over and now.producers and not now.connected
    tone, mark = _DISCONNECTED if disconnected else _MARKS[row.trouble]
    dead_letters = header.link("dead-letters", topic=row.topic, state="any" if row.replayed else None)
    pending = header.link("dead-letters", topic=row.topic, range=None)
    cells: tuple[Node | str, ...] = (
        link(wording.short(row.topic, 40), header.link(header.FIRST_PAGE, topic=row.topic), title=row.topic),
        node("span", mark, class_=f"pc-mark pc-{tone}"),
        wording.rate(row.throughput),
        charts.spark(row.rates, row.failures, wording.spark(row.topic, row.throughput, row.dead)),
        link(wording.failed(row.dead, row.error_rate), dead_letters) if row.dead else "none",
        wording.milliseconds(row.p99),
        link(wording.count(row.waiting), pending) if row.waiting else "none",
        _cause(row),
    )
    phone_labels = (None, None, None, None, "failed", None, "dead letters", None)
    return node(
        "tr",
        *(
            node("td", cell, class_=f"{cls} pc-none".strip() if cell == "none" else cls, data_label=label)
            for cell, label, (_, cls) in zip(cells, phone_labels, _COLUMNS, strict=True)
        ),
        data_key=row.topic,
    )


def _cause(row: queries.TopicRow) -> Node | str:
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
