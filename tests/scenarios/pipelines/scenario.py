"""A scenario: a name, what it shows, and a function that plays it on a stage; modules of this package register theirs.

    @scenario("T1", "telemetry: kill -9 of the driver at random points", sizes={"full": {...}, "short": {...}})
    def killed(stage): ...

`play(stage)` raises nothing for a finding: it says `stage.problem(text)`, and numbers worth a line by
`stage.tell(batches=72_000)`.
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
    """Register it. `sizes` has what the stage's `size` becomes for "full" and for "short"."""

    def keep(play):
        SCENARIOS[name] = Scenario(name, title, play, sizes, master)
        return play

    return keep


@dataclass
class Stage:
    """One run of one scenario: its services, its folder, its chance, and what it tells."""

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
        """None: this machine's default. Else the address of a master of several processes."""
        return self.services.standalone() if self.scenario.master == "standalone" else None

    def kafka(self, nodes=1):
        return self.services.kafka(nodes)

    def tell(self, **numbers):
        self.numbers.update(numbers)

    def problem(self, text):
        self.problems.append(text)

    def equal(self, what, found, wanted):
        """A problem unless the two are the same."""
        if found != wanted:
            self.problem(f"{what}: {found} instead of {wanted}")


def load():
    """Every scenario of every module of this package that has some."""
    from importlib import import_module

    for module in ("telemetry", "secured", "submitted", "integrity", "reprocess"):
        if (Path(__file__).parent / f"{module}.py").exists():
            import_module(f"tests.scenarios.pipelines.{module}")
    return SCENARIOS
