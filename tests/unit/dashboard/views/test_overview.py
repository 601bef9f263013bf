"""Test the overview page."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.views import overview
from producer_core.errors import StoreLocked
from tests.fixtures import overview as overview_fixtures
from tests.fixtures.overview import opened, shop
from tests.fixtures.pages import html_of

drawn = overview_fixtures.drawn


@pytest.mark.slow
def test_the_page_shows_the_failing_topic_and_every_section(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "are failing on payments: the message, or the batch" in drawn["headline"]
    for part in (
        "Error rate",
        "p99.9",
        "Pending",
        "3 rejected",
        "Suppressed duplicates",
        "Memory",
        "some fail",
    ):
        assert part in "".join(drawn[key] for key in ("figures", "topics", "more-figures"))
    assert "connected" in drawn["producers"]


def test_an_empty_store_shows_the_first_steps(path, store, monkeypatch, drawn):
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "No producer has written to this store yet" in drawn["headline"]
    assert f"--store {path}" in page.code[0].value
    assert "ReliableKafkaProducer" in page.code[1].value


@pytest.mark.slow
def test_a_failed_panel_does_not_affect_the_others(path, store, monkeypatch, drawn):
    def locked(*_):
        raise StoreLocked

    shop(store, seen_at=time.time() + 60)
    monkeypatch.setattr(overview.firing_alerts, "show", locked)
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "Another process holds the store" in " ".join(element.body for element in page.get("html"))
    assert "payments" in drawn["headline"] and "shop" in drawn["producers"]


@pytest.mark.slow
def test_the_page_keeps_its_data_while_the_store_is_unavailable(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    drawn.clear()

    def unavailable(*_):
        raise StoreLocked

    monkeypatch.setattr(overview.reads, "overview", unavailable)
    page.run()
    assert not page.exception
    assert "payments" in drawn["headline"]
    assert "Store unavailable; showing data as of" in drawn["headline"]


@pytest.mark.slow
def test_the_address_opens_a_range_and_a_topic(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    opened(path, monkeypatch, range="1 hour", topic="orders")
    assert "in the last hour" in drawn["headline"]
    assert "orders" in drawn["topics"] and "payments" not in drawn["topics"]


@pytest.mark.slow
def test_a_paused_page_shows_the_time_of_its_data(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    page.toggle(key="live").set_value(False).run()
    assert "Paused; data as of" in drawn["headline"]


@pytest.mark.slow
def test_a_paused_page_never_calls_its_data_live(path, store, monkeypatch, drawn):
    """Once the page showed "Paused" and "data is live" with a green dot."""
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert 'class="pc-data-age">Data is live' in html_of(page)

    page.toggle(key="live").set_value(False).run()

    assert "data is live" not in f"{html_of(page)} {drawn['headline']}".lower()
    assert 'class="pc-data-age pc-old">Paused' in html_of(page)


@pytest.mark.slow
def test_the_tab_names_the_failing_topic(path, store, monkeypatch, drawn):
    titles = []
    monkeypatch.setattr(
        overview.header.st, "set_page_config", lambda *, page_title, **_: titles.append(page_title)
    )
    shop(store, seen_at=time.time() + 60)
    opened(path, monkeypatch)
    assert titles[-1] == "▲ payments · Overview"


@pytest.mark.slow
def test_filters_are_folded_on_a_phone_until_one_is_set(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    assert not opened(path, monkeypatch).toggle(key="pc-fold").value
    assert opened(path, monkeypatch, topic="orders").toggle(key="pc-fold").value
