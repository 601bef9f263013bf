"""Short forms of the scenarios of tests/scenarios/replays; `make replays-long` runs them with 200,000 dead letters."""

from __future__ import annotations

import pytest

from tests.conftest import needs
from tests.scenarios.faults.run import Media
from tests.scenarios.replays.run import command, run

pytestmark = pytest.mark.kafka3

# R1, R3, R4 and R5 are parts of R6; A1 is A2 where the topics may be read.
SHORT = {"R2": 1_500, "R6": 3_000, "R7": 1_500, "R8": 1_500, "R9": 300, "A2": 1_500}


@pytest.fixture(scope="module")
def media():
    needs("kcat", "kcat")
    needs("java", "openjdk-17-jre-headless")
    with Media() as started:
        yield started


@pytest.mark.parametrize("name, dead_letters", SHORT.items(), ids=SHORT)
def test_each_dead_letter_is_on_its_topic_once_or_stays_one_and_is_told(media, name, dead_letters):
    result = run(media, name, seed=1, dead_letters=dead_letters)
    assert result.good, f"{result.violations}; again: {command(result)}; {result.notes}"


def test_the_same_counting_shows_the_duplicates_of_a_loop_that_sends_and_then_notes_it(media):
    assert run(media, "C1", seed=1, dead_letters=1_500).verdict == "shows it"
