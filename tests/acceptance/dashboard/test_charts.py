"""Test live charts and numbers in Chromium: no flicker, no jump, and zoom and legend survive."""

from __future__ import annotations

import pytest

from tests.acceptance.browsing import go, message
from tests.support import eventually

pytestmark = pytest.mark.browser

RANGE = "plot => plot._fullLayout.xaxis.range.map(String)"
POINTS = "plot => String(plot.data[0].y.at(-1)) + plot.data[0].x.at(-1)"


def drag(page, chart):
    box = chart.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.5, steps=8)
    page.mouse.up()
    return box


def await_refreshes(chart, count):
    """Wait until the chart has received new data `count` times."""
    for _ in range(count):
        before = chart.evaluate(POINTS)
        eventually(lambda before=before: chart.evaluate(POINTS) != before)


@pytest.fixture
def chart(page, address):
    go(page, f"{address}?range=5+min")
    found = page.locator('.live-plot[aria-label^="Latency"]')
    eventually(lambda: found.evaluate("plot => plot.data?.[0]?.y?.length > 1"))
    return found


def test_zoom_legend_and_chart_survive_ten_refreshes(page, chart):
    chart.evaluate("plot => { plot.marked = true }")
    chart.locator(".legendtoggle").first.click()
    hidden = "plot => plot._fullData[0].visible"
    eventually(lambda: chart.evaluate(hidden) == "legendonly")
    whole = chart.evaluate(RANGE)
    box = drag(page, chart)
    zoomed = eventually(lambda: (now := chart.evaluate(RANGE)) != whole and now)
    await_refreshes(chart, 10)
    assert chart.evaluate(RANGE) == zoomed
    assert chart.evaluate(hidden) == "legendonly"
    assert chart.evaluate("plot => plot.marked")
    page.mouse.dblclick(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    since = "plot => new Date(plot._fullLayout.xaxis.range[0]).getTime()"
    zoomed_since = chart.evaluate(f"() => new Date({zoomed[0]!r}).getTime()")
    eventually(lambda: chart.evaluate(since) < zoomed_since)


def test_nothing_fades_or_moves_while_the_page_refreshes(page, chart):
    await_refreshes(chart, 1)
    page.evaluate(
        """() => { window.faintest = 1; window.places = new Set()
            const main = document.querySelector('[data-testid="stMain"]')
            const heads = [...document.querySelectorAll('h2.pc-h')]
            main.scrollTop = 200
            const sample = () => {
                for (const part of document.querySelectorAll('[data-stale="true"]'))
                    window.faintest = Math.min(window.faintest, +getComputedStyle(part).opacity)
                window.places.add([main.scrollTop, ...heads.map(head => head.isConnected && Math.round(head.offsetLeft))].join())
                requestAnimationFrame(sample) }
            requestAnimationFrame(sample) }"""
    )
    await_refreshes(chart, 5)
    assert page.evaluate("window.faintest") == 1
    assert page.evaluate("window.places.size") == 1


def test_a_paused_page_stops_and_resumes(page, chart):
    page.get_by_role("switch", name="Live").or_(page.get_by_role("checkbox", name="Live")).first.click(
        force=True
    )
    message(page, ".")
    page.get_by_text("Paused", exact=False).first.wait_for()
    other = page.context.new_page()  # a live page shows that the store has new data
    go(other, page.url.split("?")[0] + "?range=5+min")
    live = other.locator('.live-plot[aria-label^="Latency"]')
    eventually(lambda: live.evaluate("plot => plot.data?.[0]?.y?.length > 1"))
    await_refreshes(live, 3)  # the redraw caused by the click is done by then
    before = chart.evaluate(POINTS)
    await_refreshes(live, 3)
    assert chart.evaluate(POINTS) == before
    page.get_by_role("switch", name="Live").or_(page.get_by_role("checkbox", name="Live")).first.click(
        force=True
    )
    eventually(lambda: chart.evaluate(POINTS) != before)
