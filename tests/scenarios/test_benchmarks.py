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
