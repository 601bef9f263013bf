"""`python -m tests.scenarios.replays run …` and `python -m tests.scenarios.replays report`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.scenarios.faults.run import Media
from tests.scenarios.replays.result import load, table
from tests.scenarios.replays.run import command, run
from tests.scenarios.replays.scenarios import SCENARIOS, SHORT


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.replays", description=__doc__)
    acts = parser.add_subparsers(dest="act", required=True)
    running = acts.add_parser("run", help="run scenarios, and save a result for each run")
    running.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), metavar="R1")
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--repeats", type=int, default=1, help="so many seeds, from this one on")
    running.add_argument("--letters", type=int, default=SHORT)
    running.add_argument("--resume", action="store_true", help="skip the runs whose results are saved")
    running.add_argument("--out", type=Path, default=Path("artifacts/replays"))
    reporting = acts.add_parser("report", help="merge the saved results into one table")
    reporting.add_argument("--out", type=Path, default=Path("artifacts/replays"))
    options = parser.parse_args(arguments)
    return _report(options.out) if options.act == "report" else _run(options)


def _run(options):
    saved = {result.file for result in load(options.out)} if options.resume else set()
    bad = 0
    with Media() as media:
        for seed in range(options.seed, options.seed + options.repeats):
            for name in options.scenario or list(SCENARIOS):
                dead_letters = min(options.letters, SCENARIOS[name].dead_letters or options.letters)
                if f"{name}-{dead_letters}-{seed}.json" not in saved:
                    bad += not _one(media, name, seed, dead_letters, options.out)
    print()
    print(table(load(options.out)))
    return 1 if bad else 0


def _one(media, name, seed, dead_letters, out):
    print(f"{name} seed {seed:<3} {dead_letters:7,} dead letters ", end="", flush=True)
    result = run(media, name, seed=seed, dead_letters=dead_letters)
    result.save(out)
    print(
        f"{result.kills:3} kills {result.stops:2} stops {result.faults + result.broker_faults:4} faults"
        f" {result.acknowledged:7,} sent {result.landed:6,} landed {result.dead:5,} dead {result.missing:4} missing"
        f" {result.duplicates:4} twice {result.seconds:7.1f} s  {result.verdict}",
        flush=True,
    )
    if not result.good:
        for violation in result.violations:
            print(f"     {violation}")
        print(f"     again: {command(result)}   {result.notes.get('folder', '')}", flush=True)
    return result.good


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
