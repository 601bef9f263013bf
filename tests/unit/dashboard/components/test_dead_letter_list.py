"""Test the list of dead letters: its selection across pages and versions."""

from __future__ import annotations

import pytest

from producer_core.dashboard.components import dead_letter_list as module
from producer_core.dashboard.components.dead_letter_list import DeadLetterRow, dead_letter_list


@pytest.fixture
def browser(monkeypatch):
    """Hold what the component receives, and what it reports."""
    held = {"reported": {}}

    def component(**given):
        held["given"] = given
        return held["reported"]

    monkeypatch.setattr(module, "_component", lambda: component)
    monkeypatch.setattr(module.st, "session_state", {})
    return held


def draw(version=0, opened=print):
    rows = [DeadLetterRow("m-1", 5.0, ("orders", "too large"))]
    return dead_letter_list(
        ("Topic", "Error"), rows, key="list", version=version, page="", open=None, on_open=opened, alt="Dead letters"
    )  # fmt: skip


def test_the_selection_includes_dead_letters_of_other_pages_of_the_list(browser):
    browser["reported"] = {"selected": {"version": 0, "ids": ["m-1", "m-99"]}}

    assert draw() == ("m-1", "m-99")
    draw()
    assert browser["given"]["data"]["selected"] == ["m-1", "m-99"]


def test_a_new_version_clears_the_selection(browser):
    browser["reported"] = {"selected": {"version": 0, "ids": ["m-1"]}}
    draw()

    assert draw(version=1) == ()
    assert browser["given"]["data"]["selected"] == []


@pytest.mark.parametrize("reported", [{}, {"selected": None}, {"selected": {"version": 0, "ids": None}}])
def test_without_a_report_nothing_is_selected(browser, reported):
    browser["reported"] = reported

    assert draw() == ()


def test_a_click_opens_a_dead_letter(browser):
    opened = []
    draw(opened=opened.append)
    module.st.session_state["list"] = {"open": {"id": "m-1"}}

    browser["given"]["on_open_change"]()

    assert opened == ["m-1"]
