"""Every page in a real Chromium: it opens, it fits, everybody can use it, and nothing in a message is markup."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.dlq import DeadLetterFilter
from producer_core.store import Store
from tests.services.browsing import (
    HOSTILE,
    PAGES,
    button,
    check,
    go,
    listed,
    outside,
    replay,
    rows,
    says,
    stands,
    window,
)
from tests.support import eventually
from tests.unit.auditing import audited, job

pytestmark = pytest.mark.browser

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


@pytest.fixture(scope="module")
def full(load):
    """A store in which each page has something to show."""
    load.fail("pages", 3)
    load.fail("hostile", 1, {"comment": HOSTILE, "password": "hunter2", "email": "ada@example.com"},
              key=HOSTILE, headers={HOSTILE: HOSTILE})  # fmt: skip
    store = Store.open(load.store)
    one = alert("weak_replication", "pages", 1.0, text=HOSTILE)
    AlertLog(store).record(follow({}, [one], 1.0), told_by="test")
    (dead_letter, *_) = load.dead_letters.find(DeadLetterFilter(topic="pages"), limit=1)
    audited(store, "audit-of-pages", topic="pages", at=time.time() - 60, lost=2, duplicated=1, reordered=1, expired=3,
            sentence="pages: of 1,000 messages acknowledged 2 are lost.", path="findings/audit-of-pages",
            findings=[*(("lost", f"lost-{n}", n, 10 + n, "acknowledged, and not on the log") for n in range(2)),
                      ("duplicated", dead_letter.message_id, 0, 7, "a copy at partition 0, offset 7")])  # fmt: skip
    audited(store, "audit-of-hostile", topic=HOSTILE, at=time.time() - 50, auditable=False, sentence=HOSTILE)
    job(
        store,
        f"integrity {HOSTILE}",
        "integrity",
        began=time.time() - 900,
        seen=time.time() - 300,
        message=HOSTILE,
    )
    return load


@pytest.fixture(scope="module", params=LOOKS)
def look(request, browser, full):
    """One window for all pages of a look, so that they come from its cache."""
    with full.going(), window(browser, **LOOKS[request.param]) as opened:
        yield opened


@pytest.fixture(scope="module")
def axe():
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("title", PAGES)
def test_a_page_opens_fits_and_axe_finds_no_violation(title, look, address, axe):
    look.asked.clear()
    look.wrong.clear()
    look.refused.clear()
    go(look, address + PAGES[title])
    assert look.locator("h1.pc-title").inner_text() == title
    assert look.get_by_test_id("stException").count() == 0
    assert look.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(look, axe) == []
    assert look.wrong == look.refused == []
    assert outside(look) == []


def test_on_a_phone_nothing_lies_over_the_page_and_no_line_is_cut(browser, full, address):
    with full.going(), window(browser, **LOOKS["narrow"]) as phone:
        go(phone, address)
        pill, lead = phone.locator(".pc-stays").bounding_box(), phone.locator("h1.pc-title").bounding_box()
        assert pill["y"] + pill["height"] <= lead["y"]
        assert phone.locator(".pc-topics td:visible", has_text=re.compile("^none$")).count() == 0
        go(phone, address + "dead-letters")
        phone.locator(".pc-groups li").first.wait_for()
        cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
        assert phone.locator(".pc-groups .pc-means, .pc-groups .pc-sample").evaluate_all(cut) == 0


def violations(page, axe):
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("title", PAGES)
def test_nothing_that_a_message_or_an_alert_says_is_markup(title, page, full, address):
    go(page, address + PAGES[title] + ("?topic=hostile" if title == "Dead letters" else ""))
    if title == "Dead letters":
        page.locator("tr", has_text="evil.example").locator(".pc-look").first.click()
        page.get_by_text("Inside the dead letter").wait_for()
        code = page.get_by_test_id("stCode").filter(has_text="comment")
        assert "<script>" in code.inner_text() and "**bold**" in code.inner_text()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src*=evil], a[href*='evil.example'], script:text('pwned'), .katex").count() == 0
    assert "hunter2" not in page.content() and "ada@example.com" not in page.content()
    assert outside(page) == []


# an audit


def test_an_audit_is_opened_from_the_fleet_has_an_address_and_leads_to_the_letter_and_back(
    look, full, address, axe
):
    go(look, f"{address}fleet?topic=pages")
    look.get_by_role("table", name="The last audit of each topic").get_by_role("link", name="pages").click()
    look.wait_for_url(re.compile("audit=audit-of-pages"))
    says(look, "2 are lost")
    look.get_by_role("cell", name="lost-0").wait_for()
    assert violations(look, axe) == []
    assert look.evaluate("document.documentElement.scrollWidth <= innerWidth")
    look.get_by_role("link", name="Duplicated").click()
    look.wait_for_url(re.compile("kind=duplicated"))
    look.get_by_role("link", name="dead letter, pending").wait_for()
    here = look.url
    look.reload()
    stands(look)
    look.get_by_role("link", name="dead letter, pending").click()
    look.wait_for_url(re.compile("dead-letters.*letter="))
    look.get_by_text("Inside the dead letter").wait_for()
    look.go_back()
    look.wait_for_url(here)
    says(look, "2 are lost")
    look.get_by_role("link", name="The fleet and all audits").click()
    look.get_by_role("table", name="The last audit of each topic").wait_for()
    assert "audit=" not in look.url


# addresses


@pytest.mark.parametrize(
    ("address_of", "shown"),
    [
        ("?range=1+hour", "1 hour"),
        ("errors?range=6+hours&topic=pages", "pages"),
        ("latency?topic=pages", "pages"),
        ("fleet?range=24+hours", "24 hours"),
        ("alerts?show=Rules", "Rules"),
        ("dead-letters?topic=pages", "pages"),
    ],
)
def test_an_address_opens_the_same_view_again(address_of, shown, page, full, address):
    go(page, address + address_of)
    chosen = page.locator('[aria-checked="true"], [data-testid="stSelectbox"]').filter(has_text=shown)
    chosen.or_(page.locator(f'input[value="{shown}"]')).first.wait_for()
    asked = parse_qs(urlparse(address + address_of).query)
    assert {name: parse_qs(urlparse(page.url).query).get(name) for name in asked} == asked
    page.reload()
    stands(page)
    chosen.or_(page.locator(f'input[value="{shown}"]')).first.wait_for()
    assert {name: parse_qs(urlparse(page.url).query).get(name) for name in asked} == asked


def test_a_time_range_that_is_chosen_is_in_the_address(page, full, address):
    go(page, address)
    page.get_by_text("1 hour", exact=True).first.click()
    eventually(lambda: parse_qs(urlparse(page.url).query).get("range") == ["1 hour"])
    says(page, "in the last hour")


def test_back_leads_from_one_letter_to_the_list_and_from_a_cause_to_all(page, full, address):
    go(page, f"{address}dead-letters")
    rows(page).first.wait_for()
    everything = rows(page).count()
    page.locator(".pc-groups .pc-pick").first.click()
    page.wait_for_url(re.compile("group="))
    rows(page).first.locator(".pc-look").click()
    page.wait_for_url(re.compile("letter="))
    page.get_by_text("Inside the dead letter").wait_for()
    page.go_back()
    page.get_by_text("Inside the dead letter").wait_for(state="detached")
    assert "group=" in page.url
    page.go_back()
    eventually(lambda: "group=" not in page.url)
    eventually(lambda: rows(page).count() >= everything)


def test_from_an_alert_to_its_records_to_their_replay_and_back_again(page, load, address):
    load.fail("linked", 2)
    store = Store.open(load.store)
    began = time.time() - 60
    found = alert(
        "error_budget_fast",
        "linked",
        began,
        value=0.5,
        threshold=0.0144,
        long="1 hour",
        factor=500,
        objective="99.9 %",
    )
    AlertLog(store).record(follow({}, [found], began), told_by="test")

    go(page, f"{address}alerts?alert={found.alert_id}")
    page.get_by_role("link", name="Dead letters of that time").click()
    page.wait_for_url(re.compile("dead-letters.*topic=linked"))
    listed(page, 2)
    load.broker.accept("linked")
    replay(page, 2)
    page.get_by_text("All about this replay").first.click()
    page.wait_for_url(re.compile("replays.*operation="))
    says(page, "Replayed 2 of 2")
    here = page.url
    page.reload()
    says(page, "Replayed 2 of 2")
    assert page.url == here
    page.go_back()
    page.wait_for_url(re.compile("dead-letters"))
    page.locator("h1.pc-title", has_text="Dead letters").wait_for()
    assert load.waiting("linked") == 0


# keyboard


def test_a_page_is_reached_and_its_letters_are_chosen_by_the_keyboard_alone(page, load, address):
    load.fail("keys", 2)
    go(page, address)
    tab_to(page, "Dead letters")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("dead-letters"))
    go(page, f"{address}dead-letters?topic=keys")
    first, second = listed(page, 2)
    rows(page).first.locator("input").focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    eventually(lambda: page.locator(".pc-letters tbody input:checked").count() == 2)
    button(page, "Clear 2").wait_for()
    page.keyboard.press("Space")
    button(page, "Clear 1").focus()
    page.keyboard.press("Enter")
    says(page, "Archived 1 ")
    assert load.dead_letters.get(first).state == "archived"
    assert load.dead_letters.get(second).state == "dead"


def tab_to(page, text, most=40):
    """Press Tab until what has the focus reads like this."""
    page.locator("body").focus()
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText?.trim()") == text:
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{text} is not reached by {most} presses of Tab")


def test_a_letter_is_opened_by_the_keyboard_and_its_list_says_so(page, full, address):
    go(page, f"{address}dead-letters?topic=pages")
    look = rows(page).first.locator(".pc-look")
    look.focus()
    page.keyboard.press("Enter")
    page.get_by_text("Inside the dead letter").wait_for()
    assert look.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.className") == "pc-look"


def test_choosing_by_hand_outlives_the_letters_that_come(page, full, address):
    go(page, f"{address}dead-letters?topic=pages")
    count = full.waiting("pages")
    chosen = listed(page, count)[-1]
    check(page, chosen)
    button(page, "Clear 1").wait_for()
    full.fail("pages", 2)
    assert chosen in listed(page, count + 2)
    assert page.locator(f'.pc-letters tr[data-id="{chosen}"] input').is_checked()
    assert page.locator(".pc-letters tbody input:checked").count() == 1
