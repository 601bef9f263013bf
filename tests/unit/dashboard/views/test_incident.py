"""An incident bundle opens at its range, says what it is, and lets no user act."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dashboard.auth import access
from producer_core.dashboard.server.incident import READ_ONLY, is_incident
from producer_core.diagnostics.incident import IncidentBundle, IncidentWindow, export_incident
from producer_core.errors import ProducerError
from tests.fixtures import incidents
from tests.fixtures.overview import opened
from tests.fixtures.pages import text_of


@pytest.fixture
def window(now):
    since = now - 7200
    return IncidentWindow(since, since + incidents.LENGTH)


@pytest.fixture
def bundle(store, window, tmp_path):
    incidents.fill(store, window.since)
    export_incident(store, tmp_path / "INC-42.zip", window, who="ann", origin="cli")
    with IncidentBundle(tmp_path / "INC-42.zip") as opened_bundle:
        yield opened_bundle


@pytest.mark.slow
def test_the_first_page_shows_the_range_of_the_bundle(bundle, window, monkeypatch):
    page = opened(bundle.store_path, monkeypatch)
    assert not page.exception
    text = text_of(page)
    assert "Incident bundle" in text and "Masked, read-only" in text
    view = page.session_state["view"]
    assert (view.start, view.end) == (int(window.since), int(window.until))
    assert "payments" in text


@pytest.mark.slow
def test_an_address_with_another_range_is_respected(bundle, window, monkeypatch):
    since, until = int(window.since) + 100, int(window.since) + 700
    page = opened(bundle.store_path, monkeypatch, since=str(since), until=str(until))
    view = page.session_state["view"]
    assert (view.start, view.end) == (since, until)


@pytest.mark.slow
def test_another_store_has_no_line_about_a_bundle(store, path, window, monkeypatch):
    incidents.fill(store, window.since)
    assert "Incident bundle" not in text_of(opened(path, monkeypatch))


def test_a_server_recognizes_the_store_of_a_bundle(bundle, store, path, tmp_path):
    assert is_incident(bundle.store_path)
    assert not is_incident(path)
    assert not is_incident(tmp_path / "missing.duckdb")


def test_no_user_may_act_on_a_bundle():
    access.set_guard(replace(access.guard(), read_only=READ_ONLY))
    assert access.may_act() == (False, READ_ONLY)
    with pytest.raises(ProducerError, match="read-only"):
        access.actor()
