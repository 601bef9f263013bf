"""Define scenarios: a name, a title, and a function that runs on a stage; the modules of this package register them.

    @scenario("T1", "telemetry: kill -9 of the driver at random points", sizes={"full": {...}, "short": {...}})
    def killed(stage): ...

`play(stage)` does not raise for a finding. It calls `stage.problem(text)`, and reports counts with
`stage.report(batches=72_000)`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.scenarios.pipelines.services import Services

SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    play: Callable
    sizes: dict
    master: str = "local"  # local | standalone


def scenario(name, title, *, sizes, master="local"):
    """Register a scenario. `sizes` contains the stage's `size` for "full" and for "short"."""

    def keep(play):
        SCENARIOS[name] = Scenario(name, title, play, sizes, master)
        return play

    return keep


@dataclass
class Stage:
    """One run of a scenario: its services, folder and random generator, and the results that it reports."""

    scenario: Scenario
    services: Services
    seed: int
    size: dict
    folder: Path
    numbers: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)

    def __post_init__(self):
        self.chance = random.Random(f"{self.scenario.name}:{self.seed}")

    @property
    def master(self):
        """Return the address of a standalone master, or None for the local default."""
        return self.services.standalone() if self.scenario.master == "standalone" else None

    def kafka(self, nodes=1):
        return self.services.kafka(nodes)

    def report(self, **numbers):
        self.numbers.update(numbers)

    def problem(self, text):
        self.problems.append(text)

    def equal(self, what, found, wanted):
        """Report a problem unless both values are equal."""
        if found != wanted:
            self.problem(f"{what}: {found} instead of {wanted}")


def load():
    """Import the modules with scenarios and return all scenarios."""
    from importlib import import_module

    for module in ("telemetry", "secured", "submitted", "integrity", "reprocess"):
        if (Path(__file__).parent / f"{module}.py").exists():
            import_module(f"tests.scenarios.pipelines.{module}")
    return SCENARIOS
