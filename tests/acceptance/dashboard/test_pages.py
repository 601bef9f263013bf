"""Test every page in Chromium: layout, accessibility, escaping, addresses and keyboard."""

from __future__ import annotations

import re
import time
from urllib.parse import parse_qs, urlparse

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.dlq import DeadLetterFilter
from producer_core.store import Store
from tests.acceptance.browsing import (
    HOSTILE,
    PAGES,
    button,
    check,
    drawn,
    external_requests,
    go,
    listed,
    message,
    replay,
    rows,
    violations,
    window,
)
from tests.fixtures.audits import audited, job
from tests.support import eventually

pytestmark = pytest.mark.browser

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


@pytest.fixture(scope="module")
def full(load):
    """Fill the store so that every page has content."""
    load.fail("pages", 3)
    load.fail("hostile", 1, {"comment": HOSTILE, "password": "hunter2", "email": "ada@example.com"},
              key=HOSTILE, headers={HOSTILE: HOSTILE})  # fmt: skip
    store = Store.open(load.store)
    one = alert("weak_replication", "pages", 1.0, text=HOSTILE)
    AlertLog(store).record(follow({}, [one], 1.0), told_by="test")
    (dead_letter, *_) = load.dead_letters.find(DeadLetterFilter(topic="pages"), limit=1)
    audited(store, "audit-of-pages", topic="pages", at=time.time() - 60, lost=2, duplicated=1, reordered=1, expired=3,
            sentence="pages: of 1,000 messages acknowledged 2 are lost.", path="findings/audit-of-pages",
            findings=[*(("lost", f"lost-{n}", n, 10 + n, "acknowledged, but not in the log") for n in range(2)),
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
    """Return one window for all pages of a colour scheme and size, so that they share its cache."""
    with full.running(), window(browser, **LOOKS[request.param]) as opened:
        yield opened


@pytest.mark.parametrize("title", PAGES)
def test_each_page_opens_fits_and_is_accessible(title, look, address, axe):
    look.requested.clear()
    look.errors.clear()
    look.failed.clear()
    go(look, address + PAGES[title])
    assert look.locator("h1.pc-title").inner_text() == title
    assert look.get_by_test_id("stException").count() == 0
    assert look.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(look, axe) == []
    assert look.errors == look.failed == []
    assert external_requests(look) == []


def test_on_a_phone_nothing_covers_the_page_and_no_text_is_truncated(browser, full, address):
    with full.running(), window(browser, **LOOKS["narrow"]) as phone:
        go(phone, address)
        age, title = phone.locator(".pc-data-age").bounding_box(), phone.locator("h1.pc-title").bounding_box()
        assert age["y"] + age["height"] <= title["y"]
        assert phone.locator(".pc-topics td:visible", has_text=re.compile("^none$")).count() == 0
        go(phone, address + "dead-letters")
        phone.locator(".pc-groups tbody tr").first.wait_for()
        cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
        assert phone.locator(".pc-groups .pc-wide-cell .pc-line").evaluate_all(cut) == 0


@pytest.mark.parametrize("title", PAGES)
def test_texts_of_messages_and_alerts_are_never_markup(title, page, full, address):
    go(page, address + PAGES[title] + ("?topic=hostile" if title == "Dead letters" else ""))
    if title == "Dead letters":
        page.locator("tr", has_text="evil.example").locator(".pc-row-button").first.click()
        page.get_by_text("Dead letter details").wait_for()
        code = page.get_by_test_id("stCode").filter(has_text="comment")
        assert "<script>" in code.inner_text() and "**bold**" in code.inner_text()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src*=evil], a[href*='evil.example'], script:text('pwned'), .katex").count() == 0
    assert "hunter2" not in page.content() and "ada@example.com" not in page.content()
    assert external_requests(page) == []


# an audit


def test_an_audit_has_an_address_and_links_to_its_dead_letters(look, full, address, axe):
    go(look, f"{address}fleet?topic=pages")
    look.get_by_role("table", name="The last audit of each topic").get_by_role("link", name="pages").click()
    look.wait_for_url(re.compile("audit=audit-of-pages"))
    message(look, "2 are lost")
    look.get_by_role("cell", name="lost-0").wait_for()
    assert violations(look, axe) == []
    assert look.evaluate("document.documentElement.scrollWidth <= innerWidth")
    look.get_by_role("link", name="Duplicated").click()
    look.wait_for_url(re.compile("kind=duplicated"))
    look.get_by_role("link", name="dead letter, pending").wait_for()
    here = look.url
    look.reload()
    drawn(look)
    look.get_by_role("link", name="dead letter, pending").click()
    look.wait_for_url(re.compile("dead-letters.*letter="))
    look.get_by_text("Dead letter details").wait_for()
    look.go_back()
    look.wait_for_url(here)
    message(look, "2 are lost")
    look.get_by_role("link", name="Fleet and all audits").click()
    look.get_by_role("table", name="The last audit of each topic").wait_for()
    assert "audit=" not in look.url


# addresses


@pytest.mark.parametrize(
    ("address_of", "shown"),
    [
        ("?range=1+hour", "1 hour"),
        ("errors?range=6+hours&topic=pages", "pages"),
        ("errors?fold=Codes", "Codes"),
        ("latency?topic=pages", "pages"),
        ("fleet?range=24+hours", "24 hours"),
        ("alerts?show=Rules", "Rules"),
        ("dead-letters?topic=pages", "pages"),
    ],
)
def test_an_address_restores_the_view(address_of, shown, page, full, address):
    go(page, address + address_of)
    chosen = page.locator('[aria-checked="true"], [data-testid="stSelectbox"]').filter(has_text=shown)
    chosen.or_(page.locator(f'input[value="{shown}"]')).first.wait_for()
    asked = parse_qs(urlparse(address + address_of).query)
    assert {name: parse_qs(urlparse(page.url).query).get(name) for name in asked} == asked
    page.reload()
    drawn(page)
    chosen.or_(page.locator(f'input[value="{shown}"]')).first.wait_for()
    assert {name: parse_qs(urlparse(page.url).query).get(name) for name in asked} == asked


def test_the_list_of_issues_is_folded_and_leads_to_the_dead_letters(page, full, address):
    go(page, f"{address}errors?topic=pages")
    issues = page.get_by_role("table", name=re.compile("^Issues"))
    issues.get_by_role("link", name="Details").first.wait_for()
    page.get_by_text("Codes", exact=True).first.click()
    page.get_by_role("table", name=re.compile("^Error codes")).wait_for()
    issues.wait_for(state="detached")
    assert parse_qs(urlparse(page.url).query).get("fold") == ["Codes"]
    page.get_by_text("Issues", exact=True).last.click()
    issues.get_by_role("link", name="Replay or clear").first.click()
    page.wait_for_url(re.compile("dead-letters.*code="))


def test_the_selected_time_range_is_in_the_address(page, full, address):
    go(page, address)
    page.get_by_text("1 hour", exact=True).first.click()
    eventually(lambda: parse_qs(urlparse(page.url).query).get("range") == ["1 hour"])
    message(page, "in the last hour")


def test_the_back_button_closes_the_details_and_clears_the_group(page, full, address):
    go(page, f"{address}dead-letters")
    rows(page).first.wait_for()
    everything = rows(page).count()
    page.locator(".pc-groups .pc-row-button").first.click()
    page.wait_for_url(re.compile("group="))
    rows(page).first.locator(".pc-row-button").click()
    page.wait_for_url(re.compile("letter="))
    page.get_by_text("Dead letter details").wait_for()
    page.go_back()
    page.get_by_text("Dead letter details").wait_for(state="detached")
    assert "group=" in page.url
    page.go_back()
    eventually(lambda: "group=" not in page.url)
    eventually(lambda: rows(page).count() >= everything)


def test_an_alert_links_to_its_dead_letters_and_their_replay(page, load, address):
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
        objective="99.9%",
    )
    AlertLog(store).record(follow({}, [found], began), told_by="test")

    go(page, f"{address}alerts?alert={found.alert_id}")
    page.get_by_role("link", name="Dead letters from that time").click()
    page.wait_for_url(re.compile("dead-letters.*topic=linked"))
    listed(page, 2)
    load.broker.accept("linked")
    replay(page, 2)
    page.get_by_text("Replay details").first.click()
    page.wait_for_url(re.compile("replays.*operation="))
    message(page, "Replayed 2 of 2")
    page.locator('.live-plot[aria-label="Records over time: 2 succeeded, 0 failed, of 2"]').wait_for()
    page.locator(".pc-mark", has_text="All delivered").wait_for()
    here = page.url
    page.reload()
    message(page, "Replayed 2 of 2")
    assert page.url == here
    page.go_back()
    page.wait_for_url(re.compile("dead-letters"))
    page.locator("h1.pc-title", has_text="Dead letters").wait_for()
    assert load.pending("linked") == 0


def test_the_producers_of_the_fleet_fit_a_window_of_1280_pixels(full, page, address):
    go(page, f"{address}fleet")
    table = page.locator('.pc-table[aria-label="Producers, unhealthy ones first"]')
    table.wait_for()
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth")


def test_the_retention_is_changed_after_a_confirmation(load, page, address):
    store = Store.open(load.store)
    go(page, f"{address}settings")
    button(page, "Edit retention").click()
    page.get_by_label("keep_ledger", exact=True).fill("8")
    page.keyboard.press("Enter")
    button(page, "Review change").click()
    page.get_by_text("keep_ledger: 7 days → 8 days.").wait_for()
    assert "keep_ledger" not in store.settings()
    button(page, "Change retention").click()
    message(page, "Retention changed: keep_ledger is 8 days")
    assert store.settings()["keep_ledger"] == 8 * 86_400
    store.change_settings({"keep_ledger": None}, who="test", origin="test")


# keyboard


def test_pages_and_dead_letters_are_selected_by_keyboard(page, load, address):
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
    eventually(lambda: page.locator(".pc-dead-letters tbody input:checked").count() == 2)
    button(page, "Clear 2").wait_for()
    page.keyboard.press("Space")
    button(page, "Clear 1").press("Enter")
    message(page, "Archived 1 ")
    assert load.dead_letters.get(first).state == "archived"
    assert load.dead_letters.get(second).state == "dead"


def tab_to(page, text, most=40):
    """Press Tab until the focused element has this text."""
    page.locator("body").focus()
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText?.trim()") == text:
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{text} is not focused after {most} presses of Tab")


def test_a_dead_letter_is_opened_by_keyboard_and_marked_as_expanded(page, full, address):
    go(page, f"{address}dead-letters?topic=pages")
    look = rows(page).first.locator(".pc-row-button")
    look.focus()
    page.keyboard.press("Enter")
    page.get_by_text("Dead letter details").wait_for()
    assert look.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.className") == "pc-row-button"


def test_a_selection_survives_arriving_dead_letters(page, full, address):
    go(page, f"{address}dead-letters?topic=pages")
    count = full.pending("pages")
    chosen = listed(page, count)[-1]
    check(page, chosen)
    button(page, "Clear 1").wait_for()
    full.fail("pages", 2)
    assert chosen in listed(page, count + 2)
    assert page.locator(f'.pc-dead-letters tr[data-key="{chosen}"] input').is_checked()
    assert page.locator(".pc-dead-letters tbody input:checked").count() == 1
