"""The command line of every scenario harness: run the planned runs, save each result, and print one table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.scenarios.result import SavedResult


@dataclass(frozen=True)
class Run:
    """One planned run. `file` names its saved result, and `play` takes the started services and returns the result."""

    file: str
    label: str
    play: Callable[[Any], SavedResult]


@dataclass(frozen=True)
class Harness:
    """What differs between the harnesses.

    `plan` returns the runs for the parsed options, `services` starts what all runs share, `summary` describes a result
    in one line, and `command` returns the command that repeats a run.
    """

    name: str
    scenarios: Iterable[str]
    result: type[SavedResult]
    add_options: Callable[[argparse.ArgumentParser], None]
    plan: Callable[[argparse.Namespace], list[Run]]
    services: Callable[[], AbstractContextManager]
    summary: Callable[[Any], str]
    command: Callable[[Any], str]
    table: Callable[[list], str]
    write_report: Callable[[list], None] = lambda results: None

    @property
    def program(self):
        return f"python -m tests.scenarios.{self.name}"


def main(harness, arguments=None):
    options = _parser(harness).parse_args(arguments)
    return _report(harness, options.out) if options.action == "report" else _run(harness, options)


def _parser(harness):
    parser = argparse.ArgumentParser(
        prog=harness.program, description=f"Run the scenarios of {harness.name}."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    out = Path("artifacts") / harness.name
    running = actions.add_parser("run", help="run scenarios, and save a result for each run")
    running.add_argument("--scenario", action="append", choices=sorted(harness.scenarios), metavar="NAME")
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--resume", action="store_true", help="skip the runs whose saved result holds")
    running.add_argument("--out", type=Path, default=out)
    harness.add_options(running)
    reporting = actions.add_parser("report", help="print one table of the saved results")
    reporting.add_argument("--out", type=Path, default=out)
    return parser


def _run(harness, options):
    runs = harness.plan(options)
    if options.resume:
        runs = [run for run in runs if not _held(harness, options.out / run.file)]
    failed = 0
    with harness.services() as services:
        for run in runs:
            print(f"{run.label} ", end="", flush=True)
            result = run.play(services)
            result.save(options.out / run.file)
            print(f"{harness.summary(result)}  {result.seconds:7.1f} s  {result.verdict}", flush=True)
            if not result.good:
                failed += 1
                _print_failure(harness, result)
    print()
    print(harness.table(harness.result.load_all(options.out)))
    return 1 if failed else 0


def _held(harness, file):
    """Return whether a saved result of this run holds."""
    return file.exists() and harness.result.load(file).good


def _print_failure(harness, result):
    for violation in result.violations:
        print(f"     {violation}")
    kept = result.notes.get("folder")
    print(f"     repeat: {harness.command(result)}{f'   files: {kept}' if kept else ''}", flush=True)


def _report(harness, folder):
    results = harness.result.load_all(folder)
    print(harness.table(results))
    for result in results:
        if not result.good:
            print()
            _print_failure(harness, result)
    harness.write_report(results)
    return 0 if all(result.good for result in results) else 1
