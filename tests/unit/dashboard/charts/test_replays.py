"""Test the curves of a replay."""

from __future__ import annotations

from producer_core.dashboard.charts import replays
from producer_core.dashboard.queries.replay_course import ReplayCourse

COURSE = ReplayCourse(100, (1000.0, 1060.0, 1120.0), (0, 40, 60), (0, 0, 8))


def test_succeeded_and_failed_records_are_two_curves_below_the_number_of_all():
    drawn = replays.course(COURSE, "o-1")

    assert [(line.name, list(line.y)) for line in drawn.data] == [
        ("Succeeded", [0, 40, 60]), ("Failed", [0, 0, 8]),
    ]  # fmt: skip
    assert drawn.data[0].line.color != drawn.data[1].line.color
    assert drawn.layout.yaxis.range[1] > 100 and drawn.layout.shapes[0].y0 == 100
    assert drawn.layout.annotations[0].text == "100 records"


def test_the_time_axis_of_a_short_replay_covers_several_seconds():
    drawn = replays.course(ReplayCourse(1, (1000.0, 1000.2), (0, 1), (0, 0)), "o-1")
    first, last = drawn.layout.xaxis.range
    assert (last - first).total_seconds() == 5


def test_the_text_alternative_has_the_numbers():
    assert replays.described(COURSE) == "Records over time: 60 succeeded, 8 failed, of 100"
