"""Test the texts and numbers of the dashboard."""

from __future__ import annotations

import pytest

from producer_core.dashboard import wording


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (wording.percent(None), "–"),
        (wording.percent(0.0), "0.00 %"),
        (wording.percent(0.00001), "< 0.01 %"),
        (wording.percent(0.0042), "0.42 %"),
        (wording.percent(0.5), "50.0 %"),
        (wording.milliseconds(None), "–"),
        (wording.milliseconds(0.0057), "5.7 ms"),
        (wording.milliseconds(0.75), "750 ms"),
        (wording.milliseconds(1.04), "1.0 s"),
        (wording.milliseconds(12.0), "12 s"),
        (wording.rate(574.2), "574 /s"),
        (wording.rate(0.5), "0.5 /s"),
        (wording.compact(2_500_000), "2.5 M"),
        (wording.size(128.3 * 2**20), "128.3 MiB"),
        (wording.size(12), "12 B"),
        (wording.age(40), "40 s"),
        (wording.age(600), "10 min"),
        (wording.age(86_400), "24 h"),
        (wording.age(-3), "0 s"),
        (wording.data_age(None, 100.0), "no data yet"),
        (wording.data_age(99.0, 100.0), "data is live"),
        (wording.data_age(40.0, 100.0), "data is 60 s old"),
        (wording.button_label("Replay", 43), "Replay 43"),
        (wording.button_label("Replay", 0), "Replay"),
        (wording.moment(0.0), "1970-01-01 00:00:00"),
    ],
)
def test_numbers_have_units_without_false_precision(formatted, expected):
    assert formatted == expected


def test_the_disabled_replay_button_has_a_reason():
    assert wording.why_no_replay("dead", 3, 1) is None
    assert "running producer" in wording.why_no_replay("dead", 3, 0)
    assert wording.why_no_replay("dead", 0, 1) == "Nothing to replay."
    assert "pending" in wording.why_no_replay("archived", 3, 1)


def test_binary_data_is_shown_in_hexadecimal_and_shortened():
    assert wording.hex_dump(b"text") is None
    assert wording.hex_dump(bytes([0, 255, 16])) == "00000000  00 ff 10"
    assert wording.hex_dump(bytes([255]) * 5000).splitlines()[-1] == "… 5,000 bytes in total"


def test_long_values_are_shortened_with_a_note():
    assert wording.pretty({"a": [1, None]}, 100) == '{\n  "a": [\n    1,\n    null\n  ]\n}'
    assert wording.pretty("x" * 30, 10) == f"{'x' * 10}\n… 30 characters in total"


def test_a_producer_is_connected_silent_closed_or_disconnected():
    row = {"seen_at": 60.0, "closed_at": None, "connected": True, "connection_error": None}
    assert wording.producer_state(row, 61.0) == "connected"
    assert wording.producer_state(row, 100.0) == "not seen for 40 s"
    assert wording.producer_state({**row, "closed_at": 60.0}, 100.0) == "closed 40 s ago"
    refused = {**row, "connected": False, "connection_error": "refused"}
    assert wording.producer_state(refused, 61.0) == "no connection: refused"
