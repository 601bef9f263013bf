"""Test the texts of the overview."""

from __future__ import annotations

from producer_core.dashboard import wording


def test_a_shortened_list_counts_the_topics_left_out():
    assert wording.topics_left(12, 12, 3) == ""
    assert wording.topics_left(14, 12, 3) == "and 2 more topics, none with problems; select one above"
    assert "3 with problems" in wording.topics_left(20, 12, 15)


def test_a_producer_is_connected_silent_closed_or_disconnected():
    row = {"seen_at": 60.0, "closed_at": None, "connected": True, "connection_error": None}
    assert wording.producer_state(row, 61.0) == "connected"
    assert wording.producer_state(row, 100.0) == "not seen for 40 s"
    assert wording.producer_state({**row, "closed_at": 60.0}, 100.0) == "closed 40 s ago"
    refused = {**row, "connected": False, "connection_error": "refused"}
    assert wording.producer_state(refused, 61.0) == "no connection: refused"
    refusing = {
        **row,
        "circuit": "The circuit of the cluster is open: 5 of 5 failed. New messages are refused.",
    }
    assert wording.producer_state(refusing, 61.0) == (
        "circuit of the cluster is open: 5 of 5 failed. New messages are refused"
    )
    assert [wording.producer_tone(one, 61.0) for one in (row, refused, refusing)] == ["good", "bad", "bad"]
