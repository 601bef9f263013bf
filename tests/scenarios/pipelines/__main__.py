"""Run the Spark jobs at full size: `python -m tests.scenarios.pipelines run --help`. `report` writes README.md here."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.scenarios import runner
from tests.scenarios.pipelines.result import Result, table
from tests.scenarios.pipelines.scenario import Stage
from tests.scenarios.pipelines.scenario import load as scenarios
from tests.scenarios.pipelines.services import Services

README = Path(__file__).with_name("README.md")

_HEAD = """\
# The pipeline's jobs at full size: results of the last run

`make pipeline-test` runs every scenario against a real Kafka and a real Spark, and resumes after an interruption.
`python -m tests.scenarios.pipelines run --scenario T1 --seed 1 [--short]` repeats one, and `report` writes this page.
A scenario with the master `standalone` runs on a Spark master with two workers, each in a process of its own.

"""


def add_options(parser):
    parser.add_argument("--short", action="store_true", help="run the small size")


def plan(options):
    size = "short" if options.short else "full"
    return [planned(name, size, options.seed) for name in options.scenario or sorted(scenarios())]


def planned(name, size, seed):
    return runner.Run(
        file=f"{name}-{size}-{seed}.json",
        label=f"{name} {size} seed {seed}: {scenarios()[name].title}\n    ",
        play=partial(play, name=name, size=size, seed=seed),
    )


def play(services, name, size, seed):
    """Run a scenario and return its Result. The files of a run that does not hold are kept."""
    scenario = scenarios()[name]
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
    if result.good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        result.notes["folder"] = str(folder)
    return result


def command(result):
    short = " --short" if result.size == "short" else ""
    return f"{HARNESS.program} run --scenario {result.scenario} --seed {result.seed}{short}"


def write_report(results):
    titles = "".join(f"- **{name}** {scenario.title}\n" for name, scenario in sorted(scenarios().items()))
    days = ", ".join(sorted({result.day for result in results}))
    heading = f"\nRun on {days}, on two cores shared with the brokers and Spark:\n\n" if results else ""
    README.write_text(f"{_HEAD}{titles}{heading}{table(results) if results else ''}\n")


HARNESS = runner.Harness(
    name="pipelines",
    scenarios=scenarios(),
    result=Result,
    add_options=add_options,
    plan=plan,
    services=Services,
    summary=lambda result: str(result.numbers),
    command=command,
    table=table,
    write_report=write_report,
)

if __name__ == "__main__":
    sys.exit(runner.main(HARNESS))
