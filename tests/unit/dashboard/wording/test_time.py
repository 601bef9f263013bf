"""Test the texts of times and ages."""

from __future__ import annotations

import pytest

from producer_core.dashboard import wording


def test_times_are_in_the_viewers_zone_with_utc_in_the_tooltip():
    at = 1_795_274_157.0
    assert wording.stamp(at, "Asia/Kolkata") == ("2026-11-21 20:45:57", "2026-11-21 15:15:57 UTC")
    assert wording.stamp(at, "Asia/Kolkata", at + 60).text == "20:45:57"
    assert wording.stamp(at, "Asia/Kolkata", at + 86_400).text == "2026-11-21 20:45:57"
    assert wording.stamp(at, None).text == wording.stamp(at, "No/Such_Zone").text == "2026-11-21 15:15:57"


def test_a_zone_has_an_abbreviation():
    assert [wording.zone_name(name, 1_795_274_157.0) for name in ("Europe/Berlin", "Asia/Dubai", None)] == [
        "CET", "UTC+04:00", "UTC",
    ]  # fmt: skip


def test_a_time_range_reads_as_a_phrase():
    day = 86_400.0
    assert wording.during("15 min", 0, 900) == "in the last 15 min"
    assert wording.during(wording.CUSTOM, 0, 5400) == "from 00:00 to 01:30 on 1970-01-01"
    assert wording.during(wording.CUSTOM, 0, day + 30) == "from 1970-01-01 00:00:00 to 1970-01-02 00:00:30"
    assert wording.during(wording.CUSTOM, 0, 5400, "Asia/Dubai") == "from 04:00 to 05:30 on 1970-01-01"


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (wording.age(40), "40 s"),
        (wording.age(600), "10 min"),
        (wording.age(86_400), "24 h"),
        (wording.age(-3), "0 s"),
        (wording.data_age(None, 100.0), "no data yet"),
        (wording.data_age(99.0, 100.0), "data is live"),
        (wording.data_age(40.0, 100.0), "data is 60 s old"),
        (wording.moment(0.0), "1970-01-01 00:00:00"),
    ],
)
def test_ages_and_moments_have_units_without_false_precision(formatted, expected):
    assert formatted == expected


def test_times_in_alert_texts_are_shown_in_local_time_and_utc():
    text = "shop has given no sign of life since 2026-11-21 15:15:57 UTC and was not closed"
    at = 1_795_274_157.0
    assert wording.local(text, "Asia/Kolkata", at + 60) == (
        "shop has given no sign of life since 20:45:57 IST (2026-11-21 15:15:57 UTC) and was not closed"
    )
    assert wording.local("silenced by ada until 2026-11-21 15:15:57Z: known", "Asia/Kolkata", at).endswith(
        "until 20:45:57 IST (2026-11-21 15:15:57Z): known"
    )
    for zone in (None, "UTC", "No/Such_Zone"):
        assert wording.local(text, zone, at) == text
    assert (
        wording.local("until 2026-99-99 15:15:57 UTC", "Asia/Kolkata", at) == "until 2026-99-99 15:15:57 UTC"
    )
