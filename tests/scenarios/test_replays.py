"""Short forms of the scenarios of tests/scenarios/replays; `make replays-long` runs them with 200,000 dead letters."""

from __future__ import annotations

import pytest

from tests.conftest import needs
from tests.scenarios.faults.run import Media
from tests.scenarios.replays.run import command, run

pytestmark = pytest.mark.kafka3

# R6 includes R1, R3, R4 and R5; A1 is A2 with read access to the topics.
SHORT = {"R2": 1_500, "R6": 3_000, "R7": 1_500, "R8": 1_500, "R9": 300, "A2": 1_500}


@pytest.fixture(scope="module")
def media():
    needs("kcat", "kcat")
    needs("java", "openjdk-17-jre-headless")
    with Media() as started:
        yield started


@pytest.mark.parametrize("name, dead_letters", SHORT.items(), ids=SHORT)
def test_each_dead_letter_is_on_its_topic_once_or_stays_a_dead_letter(media, name, dead_letters):
    result = run(media, name, seed=1, dead_letters=dead_letters)
    assert result.good, f"{result.violations}; repeat: {command(result)}; {result.notes}"


def test_the_check_finds_the_duplicates_of_a_naive_replay(media):
    assert run(media, "C1", seed=1, dead_letters=1_500).verdict == "shows it"
