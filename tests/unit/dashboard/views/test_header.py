"""Test the header of all pages: time range, filters and links."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard import queries, wording
from producer_core.dashboard.views import application_filter, header
from tests.fixtures import overview as overview_fixtures
from tests.fixtures.overview import opened, shop
from tests.fixtures.store_batches import heartbeat

drawn = overview_fixtures.drawn


@pytest.fixture
def current_view(monkeypatch):
    def set_view(view):
        monkeypatch.setattr(header.st, "session_state", {"view": view})

    return set_view


def test_a_link_keeps_the_current_view(current_view):
    current_view(queries.View("1 hour", "payments"))
    assert header.link("errors") == "errors?topic=payments&range=1+hour"
    assert (
        header.link("dead-letters", group="abc", topic="a&b")
        == "dead-letters?topic=a%26b&range=1+hour&group=abc"
    )
    assert header.link("alerts", alert="x", topic=None, range=None) == "alerts?alert=x"
    assert header.link("errors", since=5.5, until=65) == "errors?topic=payments&since=5&until=65"
    assert header.link(header.FIRST_PAGE, topic="orders") == "./?topic=orders&range=1+hour"


def test_a_link_keeps_a_custom_range(current_view):
    current_view(queries.View(wording.CUSTOM, start=5, end=65))
    assert header.link("errors") == "errors?since=5&until=65"
    assert header.link("errors", range="5 min") == "errors?range=5+min"
    current_view(queries.View())
    assert header.link("errors") == "errors"
    assert header.link(header.FIRST_PAGE) == "./"


@pytest.mark.slow
@pytest.mark.parametrize("address", [{"topic": "nope"}, {"producer": "nope"}])
def test_an_unknown_name_in_the_address_shows_a_warning(path, store, monkeypatch, drawn, address):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch, **address)
    assert not page.exception
    (kind,) = address
    assert any(f"This store has no {kind} nope." in one.proto.body for one in page.get("html"))


@pytest.mark.slow
def test_the_address_opens_a_custom_range_until_another_range_is_chosen(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch, since="86400", until="90000")
    assert not page.exception
    assert "No messages sent from 00:00 to 01:00 on 1970-01-02" in drawn["headline"]
    assert "Past range" in drawn["headline"]
    page.segmented_control(key="range").set_value("5 min").run()
    assert "in the last 5 min" in drawn["headline"]
    assert "since" not in page.query_params


@pytest.mark.slow
def test_a_custom_range_starts_from_the_current_range_and_its_ends_can_be_moved(
    path, store, monkeypatch, drawn
):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    page.segmented_control(key="range").set_value(wording.CUSTOM).run()
    assert not page.exception
    since, until = page.session_state["custom"]
    assert 900 <= until - since <= 1080
    assert str(since) in page.query_params["since"]
    page.datetime_input(key="from").set_value(page.datetime_input(key="to").value).run()
    assert not page.exception
    assert page.session_state["custom"] == (until, 2 * until - since)


@pytest.mark.slow
def test_a_producer_is_chosen_by_name_while_the_address_has_its_id(path, store, monkeypatch, drawn):
    shop(store)
    page = opened(path, monkeypatch, producer="p")
    box = page.selectbox(key="producer")
    assert (box.value, box.options) == ("p", ["All producers", "shop (process 7 on host)"])
    page = box.set_value("All producers").run()
    assert "producer" not in page.query_params
    page = page.selectbox(key="producer").set_value("p").run()
    assert page.query_params["producer"] in ("p", ["p"])
    assert not page.exception
    unknown = opened(path, monkeypatch, producer="gone").selectbox(key="producer")
    assert (unknown.value, unknown.options[-1]) == ("gone", "gone")


@pytest.mark.slow
def test_the_filters_for_application_and_cluster_appear_once_there_are_several(
    path, store, monkeypatch, drawn
):
    shop(store, seen_at=time.time() + 60)
    page = opened(path, monkeypatch)
    assert not [box for box in page.selectbox if box.key in ("application", "cluster")]

    for number, (name, cluster) in enumerate((("checkout", "c"), ("billing", "d"))):
        row = heartbeat(f"q-{number}", time.time(), application=name, cluster_id=cluster)
        store.append(row)
    application_filter.applications.clear()
    application_filter.clusters.clear()
    page = opened(path, monkeypatch, application="checkout", cluster="c")
    assert not page.exception
    assert page.selectbox(key="application").options == ["All applications", "billing", "checkout", "(none)"]
    assert page.session_state["view"].origin == {"producer": None, "application": "checkout", "cluster": "c"}
    page.selectbox(key="application").set_value("(none)").run()
    assert page.session_state["view"].application == ""
