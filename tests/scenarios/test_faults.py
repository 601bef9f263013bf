"""The short form of every scenario of tests/scenarios/faults; `make faults` and `make faults-long` run the others."""

from __future__ import annotations

import pytest

from tests.conftest import needs
from tests.scenarios.faults.run import SCENARIOS, Media, command, run

SHORT = [(name, *scenario.runs[0]) for name, scenario in SCENARIOS.items() if scenario.in_tests]


@pytest.fixture(scope="module")
def media():
    with Media() as started:
        yield started


@pytest.fixture(scope="module")
def kcat():
    return needs("kcat", "kcat")


def run_short(media, name, medium, guarantee, seed=1):
    result = run(media, name, medium, guarantee, seed=seed)
    assert result.good, f"{result.verdict}: {result.violations}; repeat: {command(result)}; {result.notes}"


@pytest.mark.kafka3
@pytest.mark.parametrize("name, medium, guarantee", [one for one in SHORT if one[1] == "embedded"])
def test_the_guarantee_holds_on_the_embedded_broker(media, kcat, name, medium, guarantee):
    run_short(media, name, medium, guarantee)


@pytest.mark.kafka3
@pytest.mark.parametrize("name, medium, guarantee", [one for one in SHORT if one[1] == "kafka3"])
def test_the_guarantee_holds_on_three_real_nodes(media, kcat, name, medium, guarantee):
    needs("java", "openjdk-17-jre-headless")
    run_short(media, name, medium, guarantee)
