"""The frame of every benchmark: interleaved rounds, each run in a process of its own, kept line by line as JSON.

    python -m benchmarks.sending --rounds 5

A round runs every case once, in an order drawn anew, so that what else the machine does falls on all of them; a ratio
is the median of the ratios within the rounds. A round that was interrupted is run again as a whole, whole ones are kept
in the results, until the code of the package or of the benchmarks changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from benchmarks.guarantees import machine
from benchmarks.stage import Stage

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLOTS = ROOT / "benchmarks" / "plots"
_LONGEST_RUN = 600.0
"""Seconds until a run is given up as hung."""


@dataclass(frozen=True)
class Case:
    """One way to answer a question: `function` («module:name») is called with the settings, and returns numbers."""

    name: str
    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What the project must reach, and what was measured; `met` is None where it was not measured."""

    what: str
    bound: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Outcome:
    """What a benchmark found: text in Markdown, and the targets it knows of."""

    text: str
    targets: Sequence[Target] = ()


class Question(Protocol):
    """A module of this package: its question, what it does not show, and how it is answered."""

    __name__: str
    __spec__: ModuleSpec
    QUESTION: str
    SHOWS_NOT: str

    def measure(self, bench: Bench) -> Outcome: ...


class RunFailed(Exception):
    """A run ended with an error, or never; what it printed last is in the message."""


class Runs:
    """The runs of one part, by round and case."""

    def __init__(self) -> None:
        self._runs: dict[int, dict[str, Mapping[str, Any]]] = {}

    def add(self, number: int, case: str, values: Mapping[str, Any]) -> None:
        self._runs.setdefault(number, {})[case] = values

    def whole(self, number: int, cases: Iterable[str]) -> bool:
        return all(case in self._runs.get(number, {}) for case in cases)

    def drop(self, number: int) -> None:
        self._runs.pop(number, None)

    def __contains__(self, case: str) -> bool:
        return any(case in runs for runs in self._runs.values())

    def numbers(self, case: str, name: str) -> list[float]:
        return [float(runs[case][name]) for _, runs in sorted(self._runs.items()) if case in runs]

    def median(self, case: str, name: str) -> float:
        return median(self.numbers(case, name))

    def paired(self, case: str, peer: str, name: str) -> list[tuple[float, float]]:
        """What both did, round by round."""
        return [
            (float(runs[case][name]), float(runs[peer][name]))
            for _, runs in sorted(self._runs.items())
            if case in runs and peer in runs
        ]

    def ratios(self, case: str, peer: str, name: str = "rate") -> list[float]:
        return [own / other for own, other in self.paired(case, peer, name)]

    def ratio(self, case: str, peer: str, name: str = "rate") -> float | None:
        """The median of the ratios within the rounds; None where there is no such round."""
        found = self.ratios(case, peer, name)
        return median(found) if found else None

    def differences(self, case: str, peer: str, name: str) -> list[float]:
        return [own - other for own, other in self.paired(case, peer, name)]


@dataclass
class Bench:
    """What a benchmark measures with. `quick`: at tiny counts, only to see that it still runs."""

    question: str
    stage: Stage
    rounds: int = 5
    quick: bool = False
    results: Path = RESULTS
    plots: Path = PLOTS
    loads: list[float] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.results / f"{self.question}.jsonl"

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.quick else full

    def run(
        self,
        part: str,
        cases: Sequence[Case],
        *,
        rounds: int | None = None,
        around: Callable[[Case], AbstractContextManager[Mapping[str, Any]]] = lambda case: nullcontext({}),
    ) -> Runs:
        """All rounds of one part. `around` prepares a run (a topic, a store) and gives further arguments."""
        number = 1 if self.quick else rounds or self.rounds
        runs = self._kept(part, cases)
        for turn in range(number):
            if runs.whole(turn, (case.name for case in cases)):
                continue
            runs.drop(turn)
            for case in random.sample(cases, len(cases)):
                with around(case) as arguments:
                    values = call(case.function, **case.settings, **arguments)
                runs.add(turn, case.name, values)
                self._keep(part, case, turn, values)
        return runs

    def _keep(self, part: str, case: Case, turn: int, values: Mapping[str, Any]) -> None:
        self.loads.append(os.getloadavg()[0])
        line = {
            "part": part, "case": case.name, "round": turn, "settings": dict(case.settings), "values": values,
            "load": round(self.loads[-1], 2), "code": code(), "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }  # fmt: skip
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = ", ".join(f"{name} {number:,.6g}" for name, number in values.items())
        print(f"{self.question}: {part}, round {turn + 1}: {case.name}: {shown}", file=sys.stderr, flush=True)

    def _kept(self, part: str, cases: Sequence[Case]) -> Runs:
        """What an earlier start of this benchmark has measured with the same code and settings."""
        runs, settings = Runs(), {case.name: json.loads(json.dumps(dict(case.settings))) for case in cases}
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            kept = json.loads(line)
            if (
                kept["part"] == part
                and kept["code"] == code()
                and settings.get(kept["case"]) == kept["settings"]
            ):
                runs.add(kept["round"], kept["case"], kept["values"])
        return runs


def call(function: str, *, within: float = _LONGEST_RUN, **arguments: Any) -> Mapping[str, Any]:
    """One run in a process of its own, with a state folder of its own."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "benchmarks.child", function, json.dumps(arguments)]
        environment = {
            **os.environ,
            "XDG_STATE_HOME": state,
            "TMPDIR": state,
        }  # what a run leaves goes with it
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within
            )
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"{function} {arguments} did not end within {within:g} s.") from error
    lines = done.stdout.splitlines()
    if (
        done.returncode and lines
    ):  # it has measured; that it ended badly is to be seen, and no reason to lose it
        print(f"{function} ended with {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
    if not lines:
        raise RunFailed(f"{function} {arguments} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    values: Mapping[str, Any] = json.loads(lines[-1])
    return values


@cache
def code() -> str:
    """Which code was measured: twelve hex digits over the sources of the package and of the benchmarks."""
    digest = hashlib.sha256()
    for folder in ("producer_core", "dashboard", "benchmarks"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".sql", ".js", ".css") and file.is_file():
                digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


# tables


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table; the first `left` columns are text, the others numbers."""
    marks = ["---" if place < left else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Median, and the lowest to the highest."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def at_least(what: str, bound: float, ratios: Sequence[float]) -> Target:
    if not ratios:
        return Target(what, f"≥ {bound:g}x", "not measured", None)
    return Target(what, f"≥ {bound:g}x", f"{spread(ratios, '.2f')}x", median(ratios) >= bound)


def at_most(what: str, bound: float, values: Sequence[float], unit: str, form: str = ",.0f") -> Target:
    if not values:
        return Target(what, f"≤ {bound:g} {unit}", "not measured", None)
    return Target(what, f"≤ {bound:g} {unit}", f"{spread(values, form)} {unit}", median(values) <= bound)


def targets_table(targets: Sequence[Target]) -> str:
    words = {True: "yes", False: "**no**", None: "?"}
    return markdown(
        ("what", "must reach", "measured: median (lowest to highest)", "met"),
        [(one.what, one.bound, one.measured, words[one.met]) for one in targets],
        left=4,
    )


def page(module: Question, outcome: Outcome, bench: Bench) -> str:
    """A benchmark's section of the page of results."""
    name = module.__name__.rpartition(".")[2]
    loads = (
        f" Load average while it ran: {min(bench.loads):.0f} to {max(bench.loads):.0f}."
        if bench.loads
        else ""
    )
    parts = [f"### {name}", module.QUESTION, outcome.text]
    if outcome.targets:
        parts.append(targets_table(outcome.targets))
    how = "--quick" if bench.quick else f"--rounds {bench.rounds}"
    parts.append(f"Machine: {machine()}.{loads}\nCommand: `python -m benchmarks.{name} {how}`.")
    parts.append(f"Not shown: {module.SHOWS_NOT}")
    return "\n\n".join(parts)


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is run")
    parser.add_argument("--quick", action="store_true", help="tiny counts: only to see that it still runs")
    parser.add_argument("--results", type=Path, help="where the JSON lines are kept (benchmarks/results)")
    parser.add_argument("--anew", action="store_true", help="forget what an earlier start has measured")
    return parser


def answer(module: Question, stage: Stage, given: argparse.Namespace, folder: Path) -> tuple[str, Outcome]:
    """Measure one module. What is quick is kept nowhere but in `folder`."""
    name = module.__name__.rpartition(".")[2]
    bench = Bench(name, stage, given.rounds, given.quick)
    if given.quick:
        bench.results, bench.plots = folder, folder
    if given.results:
        bench.results = given.results
    if given.anew:
        bench.file.unlink(missing_ok=True)
    outcome = module.measure(bench)
    return page(module, outcome, bench), outcome


def alone(module: Question) -> None:
    """The command of one benchmark."""
    module.__name__ = module.__spec__.name  # not «__main__»
    given = options(module.QUESTION).parse_args()
    with tempfile.TemporaryDirectory() as folder, Stage(quick=given.quick) as stage:
        print(answer(module, stage, given, Path(folder))[0])
