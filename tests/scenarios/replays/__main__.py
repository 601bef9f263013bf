"""Run the replay scenarios: `python -m tests.scenarios.replays run --help`."""

from __future__ import annotations

import sys
from functools import partial

from tests.scenarios import runner
from tests.scenarios.faults.run import Media
from tests.scenarios.replays.result import Result, table
from tests.scenarios.replays.run import command, run
from tests.scenarios.replays.scenarios import SCENARIOS, SHORT


def add_options(parser):
    parser.add_argument("--repeats", type=int, default=1, help="number of seeds, counted from --seed")
    parser.add_argument("--dead-letters", type=int, default=SHORT, help="dead letters a scenario")


def plan(options):
    seeds = range(options.seed, options.seed + options.repeats)
    chosen = options.scenario or list(SCENARIOS)
    return [planned(name, seed, options.dead_letters) for seed in seeds for name in chosen]


def planned(name, seed, dead_letters):
    dead_letters = min(dead_letters, SCENARIOS[name].dead_letters or dead_letters)
    return runner.Run(
        file=f"{name}-{dead_letters}-{seed}.json",
        label=f"{name:3} seed {seed:<3} {dead_letters:7,} dead letters",
        play=partial(run, name=name, seed=seed, dead_letters=dead_letters),
    )


def summary(result):
    return (
        f"{result.kills:3} kills {result.stops:2} stops {result.faults + result.broker_faults:4} faults"
        f" {result.acknowledged:7,} sent {result.landed:6,} landed {result.dead:5,} dead {result.missing:4} missing"
        f" {result.duplicates:4} duplicates"
    )


HARNESS = runner.Harness(
    name="replays",
    scenarios=SCENARIOS,
    result=Result,
    add_options=add_options,
    plan=plan,
    services=Media,
    summary=summary,
    command=command,
    table=table,
)

if __name__ == "__main__":
    sys.exit(runner.main(HARNESS))
