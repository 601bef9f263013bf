"""Define a scenario, and register all of them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ALO, EO = "at_least_once", "exactly_once"


@dataclass(frozen=True)
class Scenario:
    """A scenario. `runs` are pairs of medium and guarantee; the first one is used by the short form."""

    name: str
    title: str
    play: Callable
    runs: tuple[tuple[str, str], ...]
    expected: str = "none"
    repeats: int = 1
    topic_config: dict | None = None
    in_tests: bool = True
    """Whether `make test` runs the short form; `make faults` runs every scenario."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(name, title, *runs, **options):
    def keep(play):
        SCENARIOS[name] = Scenario(name, title, play, runs, **options)
        return play

    return keep
