"""Test the texts of the settings page."""

from __future__ import annotations

import dataclasses

import pytest

from producer_core.cli.store import _setting
from producer_core.dashboard.wording import settings as settings_wording
from producer_core.store import Retention


@pytest.mark.parametrize(
    ("name", "value"),
    [("keep_seconds", 7200.0), ("keep_settled", 30 * 86_400.0), ("dlq_max_size", 10_000), ("dlq_max_bytes", 256 << 20),
     ("dlq_max_age", 7 * 86_400.0), ("dlq_max_bytes", None)],
)  # fmt: skip
def test_the_command_parses_the_values_that_the_page_shows(name, value):
    assert _setting(name, settings_wording.written(name, value)) == (value or 0)


def test_durations_of_settings_use_whole_units():
    assert [settings_wording.length(seconds) for seconds in (7200, 86_400, 5400, 61)] == [
        "2 hours",
        "1 day",
        "90 minutes",
        "61 s",
    ]


@pytest.mark.parametrize(("problems", "warnings", "tone"), [(1, 2, "bad"), (0, 1, "warning"), (0, 0, "good")])
def test_a_finished_doctor_run_has_a_summary(problems, warnings, tone):
    found, text = settings_wording.doctor_result(problems, warnings, 9, 3.2)
    assert found == tone and text.endswith("9 checks in 3 s.")


@pytest.mark.parametrize("seconds", [1.0, 90.5, 3600.0, 5400.0, 86_400.0, 90 * 86_400.0])
def test_a_duration_in_its_unit_is_the_same_duration(seconds):
    number, unit = settings_wording.in_unit(seconds)
    assert number * settings_wording.UNITS[unit] == seconds
    assert number >= 1


def test_every_retention_time_says_what_a_shorter_one_removes():
    for field in dataclasses.fields(Retention):
        shorter = settings_wording.retention_change(field.name, 86_400.0, 3600.0)
        longer = settings_wording.retention_change(field.name, 3600.0, 86_400.0)
        assert shorter.startswith(f"{field.name}: 1 day → 1 hour.")
        assert "cannot be" in shorter and "cannot be" not in longer
