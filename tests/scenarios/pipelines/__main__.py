"""`python -m tests.scenarios.pipelines run …` and `python -m tests.scenarios.pipelines report`, which writes README.md beside this file."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from tests.scenarios.pipelines.result import Result, load, save, table
from tests.scenarios.pipelines.scenario import Stage
from tests.scenarios.pipelines.scenario import load as scenarios
from tests.scenarios.pipelines.services import Services

README = Path(__file__).with_name("README.md")
OUT = Path("artifacts/pipelines")

_HEAD = """\
# The pipeline's jobs at full size, and what the last run found

`make pipeline-test` plays every scenario against a real Kafka and a real Spark, and goes on where it stopped;
`python -m tests.scenarios.pipelines run --scenario T1 --seed 1 [--short]` plays one again, `report` writes this page. A scenario with
the master `standalone` runs on a Spark master with two workers, each a process of its own.

"""


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.pipelines", description=__doc__)
    acts = parser.add_subparsers(dest="act", required=True)
    running = acts.add_parser("run", help="play scenarios, and append a result for each")
    running.add_argument("--scenario", action="append", choices=sorted(scenarios()), metavar="T1")
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--short", action="store_true", help="in a small size, for a look")
    running.add_argument("--resume", action="store_true", help="skip what held before")
    running.add_argument("--out", type=Path, default=OUT)
    reporting = acts.add_parser("report", help="write README.md from the results")
    reporting.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    return report(options.out) if options.act == "report" else run(options)


def run(options):
    size = "short" if options.short else "full"
    held = {result.key for result in load(options.out) if result.good} if options.resume else set()
    bad = 0
    with Services() as services:
        for name in options.scenario or sorted(scenarios()):
            if (name, size, options.seed) not in held:
                bad += not one(services, name, size, options.seed, options.out)
    print(table(load(options.out)))
    return 1 if bad else 0


def one(services, name, size, seed, out):
    scenario = scenarios()[name]
    print(f"{name} {size} seed {seed}: {scenario.title} …", flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"pipelines-{name}-"))
    stage = Stage(scenario, services, seed, scenario.sizes[size], folder)
    began = time.monotonic()
    try:
        scenario.play(stage)
    except Exception as error:
        traceback.print_exc()
        stage.problem(f"broke down: {type(error).__name__}: {error}"[:500])
    result = Result(
        name, scenario.title, size, seed, scenario.master, round(time.monotonic() - began, 1),
        datetime.now(UTC).date().isoformat(), stage.numbers, stage.problems,
    )  # fmt: skip
    save(result, out)
    if result.good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(
            f"     {folder} is kept\n     again: python -m tests.scenarios.pipelines run --scenario {name} --seed {seed}"
        )
    print(f"     {result.seconds:,.0f} s  {result.numbers}  {result.violations or 'holds'}", flush=True)
    return result.good


def report(out):
    results = load(out)
    titles = "".join(f"- **{name}** {scenario.title}\n" for name, scenario in sorted(scenarios().items()))
    days = sorted({result.day for result in results})
    when = (
        f"\nRun on {', '.join(days)}, on two cores shared with the brokers and Spark:\n\n" if results else ""
    )
    README.write_text(f"{_HEAD}{titles}{when}{table(results) if results else ''}\n")
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
