"""Test the selectable table: its data, the checked rows across pages and versions, and the current row."""

from __future__ import annotations

import pytest

from producer_core.dashboard.components import selectable_table as module
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow
from producer_core.dashboard.components.selectable_table import Checkboxes, Selection, selectable_table
from producer_core.dashboard.html import text_of

COLUMNS = (Column("Failed"), Column("Error"))
ROWS = [
    TableRow(f"m-{number}", (TablePart(at=5.0, button="expanded"), f"<b>error {number}</b>"))
    for number in range(3)
]


@pytest.fixture
def browser(monkeypatch):
    """Hold what the component receives, and what it reports."""
    held = {"reported": {}}

    def component(**given):
        held["given"] = given
        return held["reported"]

    monkeypatch.setattr(module, "component", lambda: component)
    monkeypatch.setattr(module.st, "session_state", {})
    return held


def draw(version=0, on_change=print, **more):
    selection = Selection("m-1", on_change, **more)
    return selectable_table(
        COLUMNS, ROWS, selection, Checkboxes(version, page=""), look="pc-list", key="list", alt="Messages"
    )


def elements(tree, tag):
    """Return the attributes of the tree's elements with this tag."""
    if isinstance(tree, str):
        return []
    inner = [found for child in tree[2] for found in elements(child, tag)]
    return [tree[1], *inner] if tree[0] == tag else inner


def test_the_browser_receives_rows_with_a_checkbox_and_a_button_and_the_current_row(browser):
    draw()

    (tree,) = browser["given"]["data"]["tree"]
    assert tree[1]["class"] == "pc-table pc-list"
    assert [row.get("data-key") for row in elements(tree, "tr")] == [None, "m-0", "m-1", "m-2"]
    assert [box["aria-label"] for box in elements(tree, "input")] == [
        "Select all on this page", "Select m-0", "Select m-1", "Select m-2"
    ]  # fmt: skip
    assert {(one["data-at"], one["aria-expanded"]) for one in elements(tree, "button")} == {("5.0", "false")}
    assert "<b>error 1</b>" in text_of(tree)
    assert browser["given"]["data"]["selection"]["current"] == "m-1"


def test_without_checkboxes_no_row_is_checked(browser):
    checked = selectable_table(COLUMNS, ROWS, Selection(None, print), look="pc-list", key="list", alt="List")

    assert checked == ()
    assert elements(browser["given"]["data"]["tree"][0], "input") == []


@pytest.mark.parametrize(("collapsed", "toggles"), [(0, 0), (2, 1), (3, 0)])
def test_a_button_expands_a_collapsed_table_with_more_rows(collapsed, toggles, browser):
    draw(collapsed=collapsed, expand="Show all 3")

    found = elements(browser["given"]["data"]["tree"][0], "button")
    assert [one["class"] for one in found].count("pc-toggle") == toggles


def test_only_a_table_that_scrolls_is_a_focusable_region(browser):
    draw()
    assert browser["given"]["data"]["tree"][0][1]["tabindex"] == "0"

    draw(scrolls=False)
    assert browser["given"]["data"]["tree"][0][1] == {"class": "pc-table pc-list"}


def test_the_checked_rows_include_those_of_other_pages_of_the_list(browser):
    browser["reported"] = {"checked": {"version": 0, "ids": ["m-1", "m-99"]}}

    assert draw() == ("m-1", "m-99")
    draw()
    assert browser["given"]["data"]["selection"]["checked"] == ["m-1", "m-99"]


def test_a_new_version_clears_the_checkboxes(browser):
    browser["reported"] = {"checked": {"version": 0, "ids": ["m-1"]}}
    draw()

    assert draw(version=1) == ()
    assert browser["given"]["data"]["selection"]["checked"] == []


@pytest.mark.parametrize("reported", [{}, {"checked": None}, {"checked": {"version": 0, "ids": None}}])
def test_without_a_report_no_row_is_checked(browser, reported):
    browser["reported"] = reported

    assert draw() == ()


@pytest.mark.parametrize(
    ("reported", "changes"),
    [({"current": {"id": "m-1"}}, ["m-1"]), ({"current": {"id": None}}, [None]), ({"current": None}, []), ({}, [])],
)  # fmt: skip
def test_a_click_makes_a_row_the_current_one_or_none(reported, changes, browser):
    found = []
    draw(on_change=found.append)
    module.st.session_state["list"] = reported

    browser["given"]["on_current_change"]()

    assert found == changes
