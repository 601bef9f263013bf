"""Run the fault scenarios: `python -m tests.scenarios.faults run --help`."""

from __future__ import annotations

import sys
from functools import partial

from tests.scenarios import runner
from tests.scenarios.faults.result import Result, table
from tests.scenarios.faults.run import SCENARIOS, Media, command, run

LONG_REPEATS = {"S11": 6, "V": 25}  # six times 60 kills with three media are about a thousand


def add_options(parser):
    parser.add_argument("--medium", choices=["embedded", "kafka3"])
    parser.add_argument("--guarantee", choices=["at_least_once", "exactly_once"])
    parser.add_argument("--repeats", type=int, help="number of seeds, counted from --seed")
    parser.add_argument("--long", action="store_true", help="100,000 messages a scenario, a thousand kills")


def plan(options):
    """Return the runs, those on the embedded broker first: the real one is started once, when it is needed."""
    chosen = []
    for name in options.scenario or list(SCENARIOS):
        scenario = SCENARIOS[name]
        repeats = options.repeats or (LONG_REPEATS.get(name, 1) if options.long else scenario.repeats)
        for medium, guarantee in scenario.runs:
            if options.medium in (None, medium) and options.guarantee in (None, guarantee):
                seeds = range(options.seed, options.seed + repeats)
                chosen += [(name, medium, guarantee, seed, options.long) for seed in seeds]
    return [planned(*one) for one in sorted(chosen, key=lambda one: one[1] != "embedded")]


def planned(name, medium, guarantee, seed, long):
    return runner.Run(
        file=f"{name}-{medium}-{guarantee}-{seed}{'-long' if long else ''}.json",
        label=f"{name:4} {medium:8} {guarantee:13} seed {seed:<4}",
        play=partial(run, name=name, medium_name=medium, guarantee=guarantee, seed=seed, long=long),
    )


def summary(result):
    return (
        f"{result.messages:7,} messages {result.kills:3} kills {result.faults + result.broker_faults:4} faults"
        f" {result.missing:4} missing {result.duplicates:4} duplicates"
    )


HARNESS = runner.Harness(
    name="faults",
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
