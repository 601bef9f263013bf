"""Test the page of one group of dead letters."""

from __future__ import annotations

import pytest

from tests.fixtures.errors import POLICY, fill
from tests.fixtures.pages import links, opened, text_of


@pytest.mark.slow
def test_the_address_opens_one_group(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", group=POLICY)
    assert not page.exception
    text = text_of(page)
    assert "2 dead letters, unchanged" in text and "4 dead" in text
    assert f"dead-letters?group={POLICY}" in links(page)


def test_a_missing_group_shows_a_note(path, store, monkeypatch):
    page = opened("errors", path, monkeypatch, group="<b>missing</b>")
    assert not page.exception
    assert "No dead letter in this store has the cause &lt;b&gt;missing&lt;/b&gt;" in text_of(page)
