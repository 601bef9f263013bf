"""Test the app on a real store, a missing one and a damaged one."""

from __future__ import annotations

import time

import pytest

from producer_core.dlq import DeadLetters
from tests.fixtures.dead_letter_pages import dead_letter
from tests.fixtures.overview import fill, opened
from tests.fixtures.pages import opened as opened_page
from tests.fixtures.pages import text_of

NOW = 0.0


@pytest.mark.slow
def test_a_live_store_shows_its_dead_letters(path, store, monkeypatch):
    fill(store, seen_at=time.time() + 60)
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 5)])
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "Data is live" in text_of(page)
    page = opened_page("dead_letters", path, monkeypatch)
    assert page.button(key="replay").label == "Replay 1"
    assert page.button(key="clear").label == "Clear 1"
    assert not page.button(key="replay").disabled


@pytest.mark.slow
def test_the_page_waits_for_a_missing_store(path, monkeypatch):
    page = opened(path, monkeypatch)
    assert not page.exception
    assert f"There is no store at {path} yet" in text_of(page)
    assert not path.exists()


def test_a_newer_or_damaged_store_shows_a_message(path, store, tmp_path, monkeypatch):
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE schema_migrations SET version = 999 WHERE version = 1")
    newer = opened(path, monkeypatch)
    assert not newer.exception
    assert "newer" in text_of(newer)
    damaged = tmp_path / "damaged.duckdb"
    damaged.write_bytes(b"not a database" * 1000)
    page = opened(damaged, monkeypatch)
    assert not page.exception
    assert "damaged" in text_of(page)
