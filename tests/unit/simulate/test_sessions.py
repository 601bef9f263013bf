"""Visits end, and belong to one user."""

from __future__ import annotations

from datetime import timedelta

from tests.fixtures.shop import START


def test_sessions_end_and_their_number_is_bounded(shop):
    events = shop.generate_user_events(5000, START, START + timedelta(days=20))

    sessions = {event["session_id"] for event in events}
    assert len(sessions) > 100
    assert len(shop.sessions) <= 2000
    assert shop.get_statistics()["active_sessions"] < shop.get_statistics()["total_sessions"]


def test_a_session_belongs_to_one_user(shop):
    owners = {}
    for event in shop.generate_user_events(3000):
        assert owners.setdefault(event["session_id"], event["user_id"]) == event["user_id"]
