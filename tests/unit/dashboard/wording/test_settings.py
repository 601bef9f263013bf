"""Test the texts of the settings page."""

from __future__ import annotations

import pytest

from producer_core.cli.store import _setting
from producer_core.dashboard.wording import settings as settings_wording


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
