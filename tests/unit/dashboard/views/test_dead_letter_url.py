"""Test the address of the dead letters page while the browser and the server have different addresses."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.views import dead_letter_reads, reads
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store, connection_pool
from tests.fixtures.pages import dead_letter, opened, text_of

NOW = 1_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture(autouse=True)
def three_dead_letters(path, monkeypatch):
    # a slow machine must not change what the page shows
    monkeypatch.setattr(connection_pool, "READ_LIMIT", 600.0)
    reads.clear()
    dead_letter_reads.clear()
    DeadLetters(Store.open(path)).add(
        [
            dead_letter(1, failed_at=NOW, value=b"needle"),
            dead_letter(2, failed_at=NOW),
            dead_letter(3, failed_at=NOW),
        ]
    )


@pytest.fixture
def page(path, monkeypatch):
    return opened("dead_letters", path, monkeypatch)


def search(page, text):
    page.text_input(key="dead_letters_body").set_value(text).run()


def browser_at(page, **address):
    """Set the address that the browser sends with its next request."""
    for name in list(page.query_params):
        del page.query_params[name]
    for name, text in address.items():
        page.query_params[name] = text


def clear_button(page):
    found = [one for one in page.button if str(one.key).startswith("clear")]
    assert len(found) == 1, text_of(page)[-1500:]
    return found[0]


def pending(path):
    return DeadLetters(Store.open(path)).count(DeadLetterFilter())


@pytest.mark.slow
def test_a_late_refresh_does_not_undo_a_search(page):
    search(page, "needle")
    assert clear_button(page).label == "Clear 1"

    browser_at(page)
    page.run()

    assert not page.exception
    assert page.text_input(key="dead_letters_body").value == "needle"
    assert clear_button(page).label == "Clear 1"
    assert page.query_params["body"] in ("needle", ["needle"])


@pytest.mark.slow
def test_two_quick_filter_changes_are_both_kept(page):
    page.selectbox(key="dead_letters_topic").set_value("payments").run()

    browser_at(page)
    page.selectbox(key="dead_letters_code").set_value("POLICY_VIOLATION").run()

    assert (
        page.selectbox(key="dead_letters_topic").value,
        page.selectbox(key="dead_letters_code").value,
    ) == (
        "payments",
        "POLICY_VIOLATION",
    )


@pytest.mark.slow
def test_the_back_button_undoes_a_search(page, monkeypatch):
    search(page, "needle")

    browser_at(page)
    monkeypatch.setattr("producer_core.dashboard.views.dead_letter_url._is_history_navigation", lambda: True)
    page.run()
    monkeypatch.setattr("producer_core.dashboard.views.dead_letter_url._is_history_navigation", lambda: False)
    page.run()

    assert not page.text_input(key="dead_letters_body").value
    assert clear_button(page).label == "Clear 3"


@pytest.mark.slow
def test_a_click_is_refused_if_the_address_requests_another_filter(page, path):
    assert clear_button(page).label == "Clear 3"

    browser_at(page, body="needle")
    clear_button(page).click().run()

    assert pending(path) == 3
    assert "No action taken" in text_of(page)
    assert clear_button(page).label == "Clear 1", (
        "the page shows the filter of the address and accepts the next action"
    )


@pytest.mark.slow
def test_a_click_on_a_button_of_the_previous_filter_does_nothing(page, path):
    before = clear_button(page)
    search(page, "needle")

    before.click().run()

    assert pending(path) == 3


@pytest.mark.slow
def test_opening_a_dead_letter_does_not_refuse_the_next_click(page, path):
    search(page, "needle")

    browser_at(page, body="needle", letter="m-payments-POLICY_VIOLATION-1")
    clear_button(page).click().run()

    assert pending(path) == 2


def test_the_filter_ignores_the_list_page_and_the_open_dead_letter():
    query = DeadLetterQuery(DeadLetterFilter(topic="a"), dead_letter="m")
    assert query.filter == DeadLetterQuery(DeadLetterFilter(topic="a")).filter
    assert query.filter != DeadLetterQuery(DeadLetterFilter(topic="b")).filter
    assert query.filter != DeadLetterQuery(DeadLetterFilter(topic="a"), "1 hour").filter
