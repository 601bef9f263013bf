"""Test the body search of the dead letters page."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from tests.fixtures.dead_letter_pages import dead_letter, page_of
from tests.fixtures.pages import html_of


@pytest.mark.slow
def test_a_body_search_shows_its_progress(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1, value=b"needle"), dead_letter(2)])
    page = page_of(path, monkeypatch, body="needle")
    assert "Searched 2 dead letters: 1 found." in html_of(page)
    page = page_of(path, monkeypatch, body="nothing")
    assert "Searched 2 dead letters: 0 found." in html_of(page)
    assert page.button(key="clear").disabled
