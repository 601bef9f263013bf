"""Test in Chromium, without a server, how the selectable table keeps place, order, focus and selection as rows change."""

from __future__ import annotations

import base64

import pytest

from producer_core.dashboard.components import live_dom
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow, table
from producer_core.dashboard.html import node
from producer_core.dashboard.theme import style_sheet
from tests.acceptance.browsing import window

pytestmark = pytest.mark.browser

COLUMNS = (Column("Name"), Column("Text"))
SELECTION = {
    "current": None, "details": "", "scrolls": True, "collapsed": 0, "version": 0, "page": "", "checked": []
}  # fmt: skip


@pytest.fixture
def draw(browser):
    """Return a function that draws rows with these names; its `page` records what the table reports."""
    module = base64.b64encode(live_dom.script().encode()).decode()
    css = style_sheet("live_table") + style_sheet("dead_letters")
    with window(browser, viewport={"width": 900, "height": 700}) as page:
        page.set_content(f"<!doctype html><style>{css}</style><main><div class='pc-live'></div></main>")
        page.evaluate(
            """async address => {
                const { default: draw } = await import(address)
                window.reported = []
                const setStateValue = (...found) => reported.push(found), setTriggerValue = setStateValue
                window.draw = data => draw({ data, parentElement: document.querySelector('main'), setStateValue, setTriggerValue })
            }""",
            f"data:text/javascript;base64,{module}",
        )

        def draw(names, **selection):
            selection = {**SELECTION, **selection}
            rows = [TableRow(name, (TablePart(name, button="expanded"), f"text of {name}")) for name in names]
            look = "pc-dead-letters" if selection["scrolls"] else "pc-groups"
            tree = table(COLUMNS, rows, alt="Rows", look=look, checkboxes=selection["scrolls"])
            if selection["collapsed"]:
                tree[2].append(
                    node("button", node("span", "more"), node("span", "fewer"), class_="pc-toggle")
                )
            page.evaluate("data => draw(data)", {"tree": [tree], "selection": selection})

        vars(draw)["page"] = page
        yield draw
        assert page.errors == []


def names(page):
    """Return the names of the visible rows."""
    return page.locator("tbody tr:visible").evaluate_all("rows => rows.map(row => row.dataset.key)")


def reported(page):
    return page.evaluate("reported.splice(0).map(([name, { id, ids }]) => [name, id ?? ids ?? null])")


def test_a_click_reports_the_row_and_a_second_click_none(draw):
    draw("abc")
    draw.page.get_by_text("text of b").click()
    assert draw.page.get_by_role("button", name="b").get_attribute("aria-expanded") == "true"
    draw("abc")  # a refresh before the answer to the click
    assert draw.page.locator(".pc-selected").get_attribute("data-key") == "b"
    draw("abc", current="b")
    draw.page.get_by_role("button", name="b").click()
    assert reported(draw.page) == [["current", "b"], ["current", None]]
    assert draw.page.locator(".pc-selected").count() == 0


def test_checked_rows_stay_checked_until_a_new_version(draw):
    draw("abc", checked=["z"])
    draw.page.get_by_label("Select b").check()
    draw("xabc")
    everything = draw.page.get_by_label("Select all on this page")
    assert everything.evaluate("box => box.indeterminate")
    everything.check()
    assert [sorted(ids) for _, ids in reported(draw.page)] == [["b", "z"], ["a", "b", "c", "x", "z"]]
    draw("xabc", version=1)
    assert draw.page.locator("input:checked").count() == 0


def test_the_focus_stays_while_rows_appear_and_disappear(draw):
    draw("abcd")
    draw.page.get_by_role("button", name="b").focus()
    draw.page.keyboard.press("ArrowDown")
    draw("xbcd")
    draw("xcd")
    assert draw.page.evaluate("document.activeElement.textContent") == "c"
    assert draw.page.locator("tr.pc-new").get_attribute("data-key") == "x"


def test_the_arrow_keys_open_the_next_row_once_one_is_open(draw):
    draw("abc", details=".details")
    draw.page.get_by_role("button", name="a").focus()
    draw.page.keyboard.press("ArrowDown")
    assert reported(draw.page) == []
    draw.page.keyboard.press("Enter")
    draw("abc", details=".details", current="b")
    draw.page.keyboard.press("ArrowDown")
    assert reported(draw.page) == [["current", "b"], ["current", "c"]]
    assert draw.page.locator(".pc-selected").get_attribute("data-key") == "c"


def test_a_row_under_the_pointer_does_not_move_when_rows_appear_above(draw):
    rows = [f"row-{number:02}" for number in range(60)]
    draw(rows)
    draw.page.locator("tr[data-key=row-40]").scroll_into_view_if_needed()
    draw.page.locator("tr[data-key=row-38]").hover()
    before = draw.page.locator("tr[data-key=row-38]").bounding_box()["y"]
    draw(["new-1", "new-2", *rows])
    assert draw.page.locator("tr[data-key=row-38]").bounding_box()["y"] == pytest.approx(before, abs=1)
    draw(rows, page="2")
    assert draw.page.locator(".pc-table").evaluate("box => box.scrollTop") == 0


def test_the_order_of_rows_under_the_pointer_stays_until_it_leaves(draw):
    draw("abc", scrolls=False)
    draw.page.get_by_text("text of b").hover()
    draw("xcba", scrolls=False)
    assert names(draw.page) == ["a", "b", "c", "x"]
    draw.page.mouse.move(899, 699)
    assert names(draw.page) == ["x", "c", "b", "a"]


def test_a_collapsed_table_shows_its_first_rows_and_the_current_one(draw):
    draw("abcde", scrolls=False, collapsed=2, current="d")
    assert names(draw.page) == ["a", "b", "d"]
    draw.page.get_by_role("button", name="b").focus()
    draw.page.keyboard.press("ArrowDown")
    assert draw.page.evaluate("document.activeElement.textContent") == "d"
    draw.page.get_by_text("more").click()
    draw("abcde", scrolls=False, collapsed=2, current="d")
    assert names(draw.page) == list("abcde")
