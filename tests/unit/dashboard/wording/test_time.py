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


def test_a_time_with_milliseconds_has_them_in_the_tooltip_too():
    found = wording.stamp(1_795_274_157.0625, "Asia/Kolkata", milliseconds=True)
    assert found == ("2026-11-21 20:45:57.062", "2026-11-21 15:15:57.062 UTC")


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "2 h"), (129_600, "2 days"), (1e9, "11574 days")],
)  # fmt: skip
def test_an_age_is_in_its_largest_unit(seconds, text):
    assert wording.age(seconds) == text


@pytest.mark.parametrize(
    ("seen_at", "live"), [(None, False), (95.0, False), (95.1, True), (100.0, True), (200.0, True)]
)
def test_data_is_live_for_five_seconds(seen_at, live):
    assert wording.live(seen_at, 100.0) is live


def test_a_relative_range_reads_as_a_phrase():
    assert [wording.last(name) for name in ("5 min", "1 hour", "30 days")] == [
        "the last 5 min", "the last hour", "the last 30 days",
    ]  # fmt: skip


def test_a_finding_has_its_beginning_its_end_and_its_length():
    assert wording.when(0, 0, 900, lasted=0, ongoing=False) == ""
    assert wording.when(600, 900, 900, lasted=300, ongoing=True) == "Ongoing since 00:10:00 UTC (5 min ago)."
    assert wording.when(600, 900, 900, lasted=60, ongoing=True).endswith("ago), intermittent: 60 s in total.")
    assert (
        wording.when(0, 60, 120, lasted=60, ongoing=False)
        == "Ended 60 s ago: from 00:00:00 to 00:01:00 UTC, for 60 s."
    )
    assert wording.when(0, 60, 120, lasted=9, ongoing=False) == (
        "Ended 60 s ago: intermittent from 00:00:00 to 00:01:00 UTC, 9 s in total."
    )


def test_evidence_with_numbers_is_marked_if_it_covers_a_part_of_the_range():
    assert wording.evidence("It was up to 99% full", partly=True) == "During that time: it was up to 99% full"
    assert wording.evidence("It was up to 99% full", partly=False) == "It was up to 99% full"
    assert wording.evidence("No broker answers.", partly=True) == "No broker answers."
    assert wording.evidence("", partly=True) == ""
