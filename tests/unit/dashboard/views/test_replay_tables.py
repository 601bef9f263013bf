"""Test the addresses in the tables of replays."""

from __future__ import annotations

import pytest

from producer_core.dashboard import queries
from producer_core.dashboard.views import header, replay_tables


@pytest.fixture(autouse=True)
def filtered_page(monkeypatch):
    monkeypatch.setattr(header.st, "session_state", {"view": queries.View("1 hour", "orders", "p-1")})


def test_a_link_to_dead_letters_has_no_filter_of_the_current_page():
    assert replay_tables.dead_letters_address({"ids": "m-1,m-2"}) == "dead-letters?ids=m-1%2Cm-2"
    assert replay_tables.dead_letters_address({"topic": "refunds"}) == "dead-letters?topic=refunds"


def test_a_link_to_one_dead_letter_opens_it_in_any_state():
    assert replay_tables.dead_letter_address("m/1") == "dead-letters?message_id=m%2F1&state=any&letter=m%2F1"


def test_a_link_to_a_replay_keeps_the_filters():
    assert replay_tables.address("o-1") == "replays?topic=orders&producer=p-1&range=1+hour&operation=o-1"
