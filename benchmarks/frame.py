"""Run interleaved rounds of a benchmark, each run in its own process, and save every result as a line of JSON.

    python -m benchmarks.sending --rounds 5

A round runs every case once, in random order, so that background load affects all cases equally. A ratio is the median
of the ratios within the rounds. Complete rounds are reused until the code of the package or of the benchmarks changes;
an interrupted round runs again.
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
"""Seconds after which a run counts as hung."""


@dataclass(frozen=True)
class Case:
    """One measured variant: `function` ("module:name") takes the settings as arguments and returns numbers by name."""

    name: str
    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A performance target and its measured value; `met` is None if nothing was measured."""

    what: str
    bound: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Outcome:
    """The result of a benchmark: Markdown text, and its targets."""

    text: str
    targets: Sequence[Target] = ()


class Question(Protocol):
    """A benchmark module: the question it answers, its limitations, and the measurement."""

    __name__: str
    __spec__: ModuleSpec
    QUESTION: str
    LIMITATIONS: str

    def measure(self, bench: Bench) -> Outcome: ...


class RunFailed(Exception):
    """A run failed or timed out; the message ends with its last output."""


class Runs:
    """The results of one part, by round and case."""

    def __init__(self) -> None:
        self._runs: dict[int, dict[str, Mapping[str, Any]]] = {}

    def add(self, number: int, case: str, values: Mapping[str, Any]) -> None:
        self._runs.setdefault(number, {})[case] = values

    def complete(self, number: int, cases: Iterable[str]) -> bool:
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
        """Return the values of both cases for each round that has both."""
        return [
            (float(runs[case][name]), float(runs[peer][name]))
            for _, runs in sorted(self._runs.items())
            if case in runs and peer in runs
        ]

    def ratios(self, case: str, peer: str, name: str = "rate") -> list[float]:
        return [own / other for own, other in self.paired(case, peer, name)]

    def ratio(self, case: str, peer: str, name: str = "rate") -> float | None:
        """Return the median of the ratios within the rounds, or None without a round that has both."""
        found = self.ratios(case, peer, name)
        return median(found) if found else None

    def differences(self, case: str, peer: str, name: str) -> list[float]:
        return [own - other for own, other in self.paired(case, peer, name)]


@dataclass
class Bench:
    """The tools of a benchmark. With `quick` it uses tiny counts, only to verify that it runs."""

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
        """Run all rounds of one part. `around` prepares a run, for example a topic or a store, and returns more arguments."""
        count = 1 if self.quick else rounds or self.rounds
        runs = self._load(part, cases)
        for number in range(count):
            if runs.complete(number, (case.name for case in cases)):
                continue
            runs.drop(number)
            for case in random.sample(cases, len(cases)):
                with around(case) as arguments:
                    values = call(case.function, **case.settings, **arguments)
                runs.add(number, case.name, values)
                self._save(part, case, number, values)
        return runs

    def _save(self, part: str, case: Case, number: int, values: Mapping[str, Any]) -> None:
        self.loads.append(os.getloadavg()[0])
        line = {
            "part": part, "case": case.name, "round": number, "settings": dict(case.settings), "values": values,
            "load": round(self.loads[-1], 2), "code": code(), "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }  # fmt: skip
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = ", ".join(f"{name} {value:,.6g}" for name, value in values.items())
        print(
            f"{self.question}: {part}, round {number + 1}: {case.name}: {shown}", file=sys.stderr, flush=True
        )

    def _load(self, part: str, cases: Sequence[Case]) -> Runs:
        """Return the saved results that have the same code and settings."""
        runs, settings = Runs(), {case.name: json.loads(json.dumps(dict(case.settings))) for case in cases}
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            saved = json.loads(line)
            if (
                saved["part"] == part
                and saved["code"] == code()
                and settings.get(saved["case"]) == saved["settings"]
            ):
                runs.add(saved["round"], saved["case"], saved["values"])
        return runs


def call(function: str, *, within: float = _LONGEST_RUN, **arguments: Any) -> Mapping[str, Any]:
    """Run a function in its own process with its own state folder, and return its result."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "benchmarks.child", function, json.dumps(arguments)]
        environment = {**os.environ, "XDG_STATE_HOME": state, "TMPDIR": state}  # deleted after the run
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within
            )
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"{function} {arguments} timed out after {within:g} s.") from error
    lines = done.stdout.splitlines()
    if done.returncode and lines:  # the measurement is complete; only the shutdown failed
        print(f"{function}: exit code {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
    if not lines:
        raise RunFailed(f"{function} {arguments}: exit code {done.returncode}:\n{done.stderr[-3000:]}")
    values: Mapping[str, Any] = json.loads(lines[-1])
    return values


@cache
def code() -> str:
    """Return a digest of the sources of the package and of the benchmarks, twelve hex digits."""
    digest = hashlib.sha256()
    for folder in ("producer_core", "dashboard", "benchmarks"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".sql", ".js", ".css") and file.is_file():
                digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


# tables


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a table; the first `left` columns are text, the others numbers."""
    marks = ["---" if place < left else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Format the median with the lowest and the highest value."""
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
        ("measurement", "target", "measured: median (lowest to highest)", "met"),
        [(one.what, one.bound, one.measured, words[one.met]) for one in targets],
        left=4,
    )


def page(module: Question, outcome: Outcome, bench: Bench) -> str:
    """Return the section of a benchmark on the page of results."""
    name = module.__name__.rpartition(".")[2]
    loads = (
        f" Load average during the run: {min(bench.loads):.0f} to {max(bench.loads):.0f}."
        if bench.loads
        else ""
    )
    parts = [f"### {name}", module.QUESTION, outcome.text]
    if outcome.targets:
        parts.append(targets_table(outcome.targets))
    option = "--quick" if bench.quick else f"--rounds {bench.rounds}"
    parts.append(f"Machine: {machine()}.{loads}\nCommand: `python -m benchmarks.{name} {option}`.")
    parts.append(f"Not shown: {module.LIMITATIONS}")
    return "\n\n".join(parts)


def argument_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="use tiny counts, only to verify that it runs")
    parser.add_argument(
        "--results", type=Path, help="folder of the saved results (default benchmarks/results)"
    )
    parser.add_argument("--fresh", action="store_true", help="discard the saved results and start again")
    return parser


def measure(module: Question, stage: Stage, options: argparse.Namespace, folder: Path) -> tuple[str, Outcome]:
    """Run one benchmark and return its section and its outcome. With --quick the results go into `folder`."""
    name = module.__name__.rpartition(".")[2]
    bench = Bench(name, stage, options.rounds, options.quick)
    if options.quick:
        bench.results, bench.plots = folder, folder
    if options.results:
        bench.results = options.results
    if options.fresh:
        bench.file.unlink(missing_ok=True)
    outcome = module.measure(bench)
    return page(module, outcome, bench), outcome


def main(module: Question) -> None:
    """Run the command line of one benchmark."""
    module.__name__ = module.__spec__.name  # instead of "__main__"
    options = argument_parser(module.QUESTION).parse_args()
    with tempfile.TemporaryDirectory() as folder, Stage(quick=options.quick) as stage:
        print(measure(module, stage, options, Path(folder))[0])
