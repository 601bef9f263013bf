"""Minimal runs of the benchmarks on the embedded broker."""

from __future__ import annotations

import pytest

from benchmarks.frame import call
from benchmarks.stage import Stage


@pytest.fixture(scope="module")
def broker():
    with Stage(quick=True) as stage:
        yield stage.broker("one")


@pytest.mark.parametrize("way", ["ours", "orjson"])
def test_a_sending_benchmark_reports_its_rate_and_its_cost(broker, way):
    with broker.topic() as where:
        found = call("sending:one", way=way, count=20, **where)

    assert found["rate"] > 0
    assert found["cpu"] > 0


@pytest.mark.parametrize(
    ("function", "settings"),
    [("scrape_process", {"topics": 5}), ("scrape_store", {"topics": 5, "seconds": 5})],
)
def test_the_benchmark_of_scrapes_reports_the_size_and_the_time_of_an_answer(function, settings):
    found = call(f"prometheus:{function}", **settings)

    assert found["first"] > 0 and found["later"] > 0
    assert found["size"] > 5


@pytest.mark.parametrize("logged", [False, True])
def test_the_benchmark_of_log_lines_reports_their_number_and_the_cost_of_a_message(logged):
    found = call("logs:one", ending="dead", logged=logged, count=20)

    assert found["cpu"] > 0
    assert (found["lines"] > 0) == logged
