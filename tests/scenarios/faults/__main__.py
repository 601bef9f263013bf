"""`python -m tests.scenarios.faults run …` and `python -m tests.scenarios.faults report`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.scenarios.faults.result import load, table
from tests.scenarios.faults.run import SCENARIOS, Media, command, run

SEED = 1
LONG_REPEATS = {"S11": 6, "V": 25}  # six times 60 kills with three media are about a thousand


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.faults", description=__doc__)
    commands = parser.add_subparsers(dest="act", required=True)
    running = commands.add_parser("run", help="run scenarios, and save a result for each run")
    running.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), metavar="S4")
    running.add_argument("--medium", choices=["embedded", "kafka3"])
    running.add_argument("--guarantee", choices=["at_least_once", "exactly_once"])
    running.add_argument("--seed", type=int, default=SEED)
    running.add_argument("--repeats", type=int)
    running.add_argument("--long", action="store_true", help="100,000 messages a scenario, a thousand kills")
    running.add_argument("--resume", action="store_true", help="skip the runs whose results are saved")
    running.add_argument("--out", type=Path, default=Path("artifacts/faults"))
    reporting = commands.add_parser("report", help="merge the saved results into one table")
    reporting.add_argument("--out", type=Path, default=Path("artifacts/faults"))
    options = parser.parse_args(arguments)
    return _report(options.out) if options.act == "report" else _run(options)


def _run(options):
    plan = list(_plan(options))
    saved = {result.file for result in load(options.out)} if options.resume else set()
    bad = 0
    with Media() as media:
        for name, medium, guarantee, seed in plan:
            file = f"{name}-{medium}-{guarantee}-{seed}{'-long' if options.long else ''}.json"
            if file in saved:
                continue
            print(f"{name:4} {medium:8} {guarantee:13} seed {seed:<4} ", end="", flush=True)
            result = run(media, name, medium, guarantee, seed=seed, long=options.long)
            result.save(options.out)
            print(
                f"{result.messages:7,} messages {result.kills:3} kills {result.faults + result.broker_faults:4} faults"
                f" {result.missing:4} missing {result.duplicates:4} twice {result.seconds:6.1f} s  {result.verdict}",
                flush=True,
            )
            if not result.good:
                bad += 1
                for violation in result.violations:
                    print(f"     {violation}")
                print(f"     again: {command(result)}", flush=True)
    print()
    print(table(load(options.out)))
    return 1 if bad else 0


def _plan(options):
    """Return the runs, those on the embedded broker first: the real one is started once, when it is needed."""
    chosen = options.scenario or list(SCENARIOS)
    runs = []
    for name in chosen:
        scenario = SCENARIOS[name]
        repeats = options.repeats or (LONG_REPEATS.get(name, 1) if options.long else scenario.repeats)
        for medium, guarantee in scenario.runs:
            if options.medium in (None, medium) and options.guarantee in (None, guarantee):
                runs += [(name, medium, guarantee, options.seed + number) for number in range(repeats)]
    return sorted(runs, key=lambda one: one[1] != "embedded")


def _report(folder):
    results = load(folder)
    print(table(results))
    for result in results:
        if not result.good:
            print(
                f"\n{result.scenario} seed {result.seed}: {'; '.join(result.violations)}\n  again: {command(result)}"
            )
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
