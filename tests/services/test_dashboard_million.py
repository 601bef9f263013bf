"""A million dead letters behind the dashboard, in a real Chromium: one finds, opens and acts as on a few."""

from __future__ import annotations

import re

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.services.browsing import button, check, go, rows, says, served, window
from tests.support import eventually

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    from benchmarks import dead_letter_store

    path = tmp_path_factory.mktemp("million") / "store.duckdb"
    dead_letter_store.make(path, 1_000_000)
    return path


@pytest.fixture(scope="module")
def crowded(store):
    with served(store, store.parent) as server:
        yield server.url


@pytest.fixture
def crowd(browser, crowded):
    with window(browser) as opened:
        go(opened, f"{crowded}dead-letters")
        yield opened


def test_a_million_letters_are_counted_grouped_and_paged(crowd):
    crowd.locator(".pc-groups li").first.wait_for()
    eventually(lambda: rows(crowd).count() == 100)
    crowd.get_by_text(re.compile(r"of [67]\d\d,\d{3} that match")).wait_for()
    first = rows(crowd).first.get_attribute("data-id")
    button(crowd, "Older").click()
    eventually(lambda: rows(crowd).count() == 100 and rows(crowd).first.get_attribute("data-id") != first)
    assert "after=" in crowd.url
    crowd.go_back()
    eventually(lambda: rows(crowd).first.get_attribute("data-id") == first)


def test_one_of_a_million_is_opened_and_put_aside_and_the_page_stays_small(crowd, store):
    eventually(lambda: rows(crowd).count() == 100)
    chosen = rows(crowd).nth(3).get_attribute("data-id")
    check(crowd, chosen)
    rows(crowd).nth(3).locator(".pc-open-button").click()
    crowd.get_by_text("Dead letter details").wait_for()
    button(crowd, "Clear 1").click()
    says(crowd, "Archived 1 ")
    assert DeadLetters(Store.open(store)).get(chosen).state == "archived"
    assert crowd.locator("*").count() < 5_000


def test_a_topic_of_a_million_letters_is_chosen_by_its_address(crowded, crowd, store):
    go(crowd, f"{crowded}dead-letters?topic=payments&code=POLICY_VIOLATION")
    count = DeadLetters(Store.open(store)).count(DeadLetterFilter(topic="payments", code="POLICY_VIOLATION"))
    button(crowd, f"Clear {count:,}").wait_for()
    eventually(lambda: rows(crowd).count() == min(count, 100))
    assert {row.locator("td").nth(2).inner_text() for row in rows(crowd).all()} == {"payments"}
