"""Test in Chromium that a million dead letters are listed, opened and archived as quickly as a few."""

from __future__ import annotations

import re

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.acceptance.browsing import button, check, go, message, rows, served, window
from tests.support import eventually

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    from benchmarks import dead_letter_store

    path = tmp_path_factory.mktemp("million") / "store.duckdb"
    dead_letter_store.make(path, 1_000_000)
    return path


@pytest.fixture(scope="module")
def server_url(store):
    with served(store, store.parent) as server:
        yield server.url


@pytest.fixture
def million_page(browser, server_url):
    with window(browser) as page:
        go(page, f"{server_url}dead-letters")
        yield page


def test_a_million_dead_letters_are_counted_grouped_and_paged(million_page):
    million_page.locator(".pc-groups tbody tr").first.wait_for()
    eventually(lambda: rows(million_page).count() == 100)
    million_page.get_by_text(re.compile(r"of [67]\d\d,\d{3} matching dead letters")).wait_for()
    first = rows(million_page).first.get_attribute("data-key")
    button(million_page, "Older").click()
    eventually(
        lambda: (
            rows(million_page).count() == 100 and rows(million_page).first.get_attribute("data-key") != first
        )
    )
    assert "after=" in million_page.url
    million_page.go_back()
    eventually(lambda: rows(million_page).first.get_attribute("data-key") == first)


def test_one_of_a_million_dead_letters_is_opened_and_archived_on_a_small_page(million_page, store):
    eventually(lambda: rows(million_page).count() == 100)
    message_id = rows(million_page).nth(3).get_attribute("data-key")
    check(million_page, message_id)
    rows(million_page).nth(3).locator(".pc-row-button").click()
    million_page.get_by_text("Dead letter details").wait_for()
    button(million_page, "Clear 1").click()
    message(million_page, "Archived 1 ")
    assert DeadLetters(Store.open(store)).get(message_id).state == "archived"
    assert million_page.locator("*").count() < 5_000


def test_an_address_selects_a_topic_among_a_million_dead_letters(server_url, million_page, store):
    go(million_page, f"{server_url}dead-letters?topic=payments&code=POLICY_VIOLATION")
    count = DeadLetters(Store.open(store)).count(DeadLetterFilter(topic="payments", code="POLICY_VIOLATION"))
    button(million_page, f"Clear {count:,}").wait_for()
    eventually(lambda: rows(million_page).count() == min(count, 100))
    assert {row.locator("td").nth(2).inner_text() for row in rows(million_page).all()} == {"payments"}
