"""Run scenarios: start each medium once, judge each run and save its result."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from tests.scenarios.faults import scenarios, scenarios_beside, scenarios_epochs
from tests.scenarios.faults.invariants import Evidence
from tests.scenarios.faults.result import judge
from tests.scenarios.faults.scenario import SCENARIOS
from tests.scenarios.faults.stage import Embedded, Real, Stage

REAL_PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "unclean.leader.election.interval.ms": "2000",
    "transaction.max.timeout.ms": "900000",
}


assert scenarios and scenarios_beside and scenarios_epochs  # each module adds its scenarios to SCENARIOS


class Media:
    """Brokers by name, each started at the first use."""

    def __init__(self):
        self._real = None

    def get(self, name):
        if name == "embedded":
            return Embedded()  # new each time, because it drops records beyond 5 MB per partition
        if self._real is None:
            self._real = Real(properties=REAL_PROPERTIES)
        return self._real

    def give_back(self, medium):
        if medium is not self._real:
            medium.stop()

    def discard(self):
        """Stop the brokers after a scenario failed, so that the next one starts with new ones."""
        self.stop()

    def stop(self):
        if self._real is not None:
            self._real.stop()
            self._real = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def command(result):
    """Return the command that repeats a run."""
    long = " --long" if result.long else ""
    return (
        f"python -m tests.scenarios.faults run --scenario {result.scenario} --medium {result.medium}"
        f" --guarantee {result.guarantee} --seed {result.seed}{long}"
    )


def run(media, name, medium_name, guarantee, *, seed, long=False, folder=None, notes=None):
    """Run a scenario and return its Result. `folder` keeps the files of the run."""
    scenario = SCENARIOS[name]
    place = Path(folder or tempfile.mkdtemp(prefix=f"faults-{name}-"))
    medium = media.get(medium_name)
    began = time.monotonic()
    stage = Stage(
        medium,
        name=name,
        guarantee=guarantee,
        seed=seed,
        long=long,
        folder=place,
        topic_config=scenario.topic_config,
    )
    stage.notes.update(notes or {})
    try:
        scenario.play(stage)
        evidence = stage.evidence(5 if scenario.expected == "violation" else 30)
        result = judge(stage, evidence, time.monotonic() - began, scenario.expected)
    except Exception as error:
        stage.problems.append(f"broke down: {type(error).__name__}: {error} {stage.errors()}")
        result = judge(stage, Evidence(guarantee, [], []), time.monotonic() - began, scenario.expected)
    except BaseException:
        stage.end()
        media.discard()
        raise
    stage.end()
    media.give_back(medium)
    if any("broke down" in problem for problem in stage.problems):
        media.discard()
    if result.good and folder is None:
        shutil.rmtree(place, ignore_errors=True)
    elif folder is None:
        result.notes["folder"] = str(place)
    return result
