"""Test how the pages mark a cause as resolved, and show a resolved cause that is back."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dlq import DeadLetters
from producer_core.dlq.resolve_cause import resolve_cause
from producer_core.store.resolved_causes import cause_status
from tests.fixtures.dead_letter_pages import dead_letter, page_of
from tests.fixtures.pages import opened, rows_of, text_of

GROUP = "0f1e2d3c4b5a"


def failed(number, seconds_ago, version):
    at = time.time() - seconds_ago
    return dead_letter(
        number, failed_at=at, accepted_at=at, attempts=(), fingerprint=GROUP, application_version=version
    )


@pytest.fixture
def returned(store):
    """Return a store with a cause that was resolved and is back."""
    DeadLetters(store).add([failed(1, 100, "4.2.0")])
    resolve_cause(
        store, GROUP, who="bob", origin="cli", now=time.time() - 60, fixed_in="4.2.1", note="Schema fixed."
    )
    DeadLetters(store).add([failed(2, 30, "4.2.1")])
    return store


@pytest.mark.slow
def test_a_cause_is_resolved_and_reopened_on_the_page_of_its_group(path, store, monkeypatch):
    DeadLetters(store).add([failed(1, 100, "4.2.0")])
    page = opened("errors", path, monkeypatch, group=GROUP)
    page.text_input(key="resolution-version").set_value("4.2.1")
    page.text_input(key="resolution-note").set_value("Schema fixed.")
    page.button(key="resolution-resolve").click().run()

    assert not page.exception
    present = cause_status(store, GROUP).present
    assert (present.fixed_in, present.note, present.who) == ("4.2.1", "Schema fixed.", access.user())
    assert "Marked as resolved. 1 dead letter stays as before." in text_of(page)
    assert "fixed in 4.2.1. Schema fixed." in text_of(page)

    page.button(key="resolution-reopen").click().run()
    assert cause_status(store, GROUP).present is None and "reopened it" in text_of(page)


@pytest.mark.slow
def test_a_cause_that_is_back_shows_its_version_and_its_history(path, returned, monkeypatch):
    page = opened("errors", path, monkeypatch, group=GROUP, range="15 min")

    text = text_of(page)
    assert "Back since version 4.2.1, at " in text and "1 failure, 1 pending. It was resolved at " in text
    assert "by bob, fixed in 4.2.1. Schema fixed. Back since version 4.2.1" in text
    (issue,) = rows_of(page, "Issues, a code on a topic, most dead letters first")
    assert "back since 4.2.1" in issue[0]


@pytest.mark.slow
def test_the_dead_letters_page_shows_that_a_cause_is_back(path, returned, monkeypatch):
    page = page_of(path, monkeypatch)

    assert "Back since version 4.2.1, at " in text_of(page)


@pytest.mark.slow
def test_read_only_users_cannot_resolve_a_cause(path, returned, monkeypatch):
    monkeypatch.setattr(access, "_guards", [access.AccessGuard(AccessRules(read_only=("*",)))])

    page = opened("errors", path, monkeypatch, group=GROUP)

    assert page.button(key="resolution-resolve").disabled
