"""List the producers of the last day with their state, queue and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from producer_core.dashboard import queries, wording
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.views import header

_SHOWN = 12
_COLUMNS = (
    ("Producer", ""), ("State", ""), ("Host", "pc-opt"), ("Pending", "pc-n"), ("Client queue", "pc-n pc-opt"),
    ("Memory", "pc-n"), ("Delivery", "pc-opt"),
)  # fmt: skip


def table(page: queries.OverviewPage, now: float) -> Iterator[Node]:
    yield node("h2", "Producers", class_="pc-h", id="producers")
    if not page.producers:
        yield node("p", "None in the last day.", class_="pc-note")
        return
    head = node("tr", *(node("th", name, scope="col", class_=cls) for name, cls in _COLUMNS))
    rows = [_row(row, now) for row in page.producers[:_SHOWN]]
    content = node("table", node("thead", head), node("tbody", *rows), class_="pc-rows pc-numbers")
    yield node("div", content, class_="pc-wide", role="region", aria_label="Producers", tabindex="0")
    if len(page.producers) > _SHOWN:
        yield node("p", f"{len(page.producers) - _SHOWN:,} more in the last day.", class_="pc-note")


def _row(row: Mapping[str, Any], now: float) -> Node:
    state = node(
        "span", wording.producer_state(row, now), class_=f"pc-mark pc-{wording.producer_tone(row, now)}"
    )
    cells: tuple[Node | str, ...] = (
        link(
            wording.short(row["client_id"], 40),
            header.link(header.FIRST_PAGE, producer=row["producer_id"]),
            title=row["client_id"],
        ),
        state,
        f"{row['host']}, process {row['pid']}",
        wording.count(row["pending"]),
        f"{wording.count(row['queue_messages'])} of {wording.compact(row['queue_limit'])}",
        wording.of_limit(row["memory_bytes"], row["memory_limit"]),
        wording.sentence_case(row["delivery"].replace("_", " ")),
    )
    pairs = zip(cells, _COLUMNS, strict=True)
    return node(
        "tr", *(node("td", cell, class_=cls) for cell, (_, cls) in pairs), data_key=row["producer_id"]
    )
