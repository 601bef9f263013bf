"""What a scenario is, and where all of them are found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ALO, EO = "at_least_once", "exactly_once"


@dataclass(frozen=True)
class Scenario:
    """`runs` are pairs of medium and guarantee; the first of them is the short form's."""

    name: str
    title: str
    play: Callable
    runs: tuple[tuple[str, str], ...]
    expected: str = "none"
    repeats: int = 1
    topic_config: dict | None = None
    in_tests: bool = True
    """Whether `make test` runs the short form; `make faults` runs each."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(name, title, *runs, **options):
    def keep(play):
        SCENARIOS[name] = Scenario(name, title, play, runs, **options)
        return play

    return keep
