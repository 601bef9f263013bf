"""Test the tree of a table."""

from __future__ import annotations

from producer_core.dashboard.components.live_table import Column, TablePart, TableRow, table
from producer_core.dashboard.html import text_of

COLUMNS = (Column("Topic"), Column("Failed", number=True, tooltip="Messages that failed."))


def body_of(tree):
    return tree[2][0][2][1][2]


def test_a_table_without_rows_keeps_its_columns_and_its_description():
    tree = table(COLUMNS, [], alt="Topics")

    assert (tree[1]["role"], tree[1]["aria-label"]) == ("region", "Topics")
    assert text_of(tree) == "TopicFailed"
    assert body_of(tree) == []


def test_a_row_is_found_by_its_id_and_a_selected_one_is_highlighted():
    rows = [TableRow("orders", ("orders", "3")), TableRow("refunds", ("refunds", "0"), selected=True)]

    first, second = body_of(table(COLUMNS, rows, alt="Topics"))

    assert (first[1]["data-key"], second[1]["data-key"]) == ("orders", "refunds")
    assert "class" not in first[1] and second[1]["class"] == "pc-selected"
    assert [cell[1].get("class") for cell in first[2]] == [None, "pc-num"]


def test_a_cell_has_lines_and_a_line_has_parts():
    cell = [["orders", TablePart(" late", "badge")], TablePart("3 failed", "small", href="errors"), ""]
    ((row),) = body_of(table((Column("Topic"),), [TableRow("orders", (cell,))], alt="Topics"))
    first, second = row[2][0][2][0][2]

    assert (text_of(first), text_of(second)) == ("orders late", "3 failed")
    assert second[2][0] == ["a", {"href": "errors", "class": "pc-link pc-l-small"}, ["3 failed"]]


def test_bars_are_in_proportion_and_a_zero_has_none():
    part = TablePart(bars=(0, 1, 1_000_000), tooltip="1,000,001 failed")
    ((row),) = body_of(table((Column("Trend"),), [TableRow("orders", (part,))], alt="Trends"))
    svg = row[2][0][2][0][2][0][2][0]
    bars = [child[1] for child in svg[2] if child[0] == "rect"]

    assert svg[1]["aria-label"] == "1,000,001 failed"
    assert [(bar["x"], bar["height"]) for bar in bars] == [("1.1", "2.0"), ("2.1", "23.0")]
