"""Test in Chromium the menu that copies actions as code: with the keyboard, on a phone, and what it copies."""

from __future__ import annotations

import re

import pytest

from producer_core.dlq import DeadLetterFilter
from tests.acceptance.browsing import button, check, go, listed, violations, window
from tests.support import eventually

pytestmark = pytest.mark.browser

_CLIPBOARD = "navigator.clipboard.writeText = async text => { window.taken = text }"
_IN_VIEW = """menu => {
  const { left, top, right, bottom } = menu.getBoundingClientRect()
  return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight
}"""


@pytest.fixture
def failed(load):
    """Two dead letters of a topic, which the test leaves archived."""
    load.fail("copied", 2)
    yield load
    load.dead_letters.archive(DeadLetterFilter(topic="copied"), who="test", origin="test")


def menu_of(page):
    """Return the button of the menu beside the actions of the selection."""
    return page.locator(".st-key-pc-dead-letters-bar").get_by_role("button", name="Copy as code")


def test_an_action_is_copied_with_the_keyboard_and_does_the_same(failed, page, address, axe):
    go(page, f"{address}dead-letters?topic=copied")
    page.evaluate(_CLIPBOARD)
    chosen = listed(page, 2)[1]
    check(page, chosen)
    button(page, "Clear 1").wait_for()
    menu_of(page).focus()
    page.keyboard.press("Enter")
    items = page.get_by_role("menuitem")
    eventually(lambda: items.first.evaluate("item => item === document.activeElement"))
    names = [(one.locator("..").get_attribute("aria-label"), one.inner_text()) for one in items.all()]
    assert names == [
        (action, text) for action in ("Replay", "Clear") for text in ("Copy as command", "Copy as Python")
    ]
    assert violations(page, axe) == []

    page.keyboard.press("Escape")
    assert not items.first.is_visible() and menu_of(page).evaluate("one => one === document.activeElement")

    page.keyboard.press("Enter")
    for key in ("End", "ArrowUp", "ArrowDown", "Enter"):  # the last one: Clear as Python
        page.keyboard.press(key)
    page.get_by_role("button", name="Copied", exact=True).wait_for()
    text = page.evaluate("taken")
    assert f"DeadLetterFilter(ids=('{chosen}',))" in text and ".clear(" in text
    menu_of(page).wait_for()  # the button has its name again
    exec(compile(text, "<copied>", "exec"), {})
    assert failed.dead_letters.get(chosen).state == "archived"
    listed(page, 1)


def test_on_a_dark_phone_the_menu_is_in_view_and_stays_open_through_a_refresh(failed, browser, address, axe):
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}
    with failed.running(), window(browser, **options) as phone:
        go(phone, f"{address}dead-letters?topic=copied")
        phone.evaluate(_CLIPBOARD)
        listed(phone, 2)
        menu_of(phone).tap()
        menu = phone.locator(".pc-copy-menu:popover-open")
        menu.wait_for()
        menu_of(phone).tap()
        menu.wait_for(state="hidden")
        menu_of(phone).tap()
        menu.wait_for()
        assert menu.evaluate(_IN_VIEW) and menu_of(phone).bounding_box()["height"] >= 40
        assert violations(phone, axe) == []

        failed.fail("copied", 1)
        button(phone, "Clear 3").wait_for()
        assert menu.is_visible()
        phone.get_by_role("menuitem", name="Copy as command").last.tap()
        phone.get_by_role("button", name="Copied", exact=True).wait_for()
        assert re.match(
            r"producer-core dlq archive --topic=copied --until=@\d+\.\d+ --yes --store=",
            phone.evaluate("taken"),
        )
