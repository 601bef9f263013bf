"""Run one replay scenario and check its result."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from tests.scenarios.replays.result import broken, compared, judge
from tests.scenarios.replays.scenarios import SCENARIOS
from tests.scenarios.replays.stage import Stage

LONG = 20_000
"""The number of dead letters from which a scenario injects all of its faults."""


def command(result):
    """Return the command that repeats a run."""
    return f"python -m tests.scenarios.replays run --scenario {result.scenario} --seed {result.seed} --dead-letters {result.dead_letters}"


def run(media, name, *, seed, dead_letters, folder=None):
    """Run a scenario and return its Result. `folder` keeps the files of the run."""
    scenario = SCENARIOS[name]
    dead_letters = min(dead_letters, scenario.dead_letters or dead_letters)
    place = Path(folder or tempfile.mkdtemp(prefix=f"replays-{name}-"))
    began = time.monotonic()
    stage = Stage(
        media.get("kafka3"), name=name, delivery=scenario.delivery, seed=seed, dead_letters=dead_letters,
        long=dead_letters >= LONG, folder=place,
    )  # fmt: skip
    sound = False
    try:
        scenario.play(stage)
        check = compared if scenario.expected == "violation" else judge
        result = check(stage, time.monotonic() - began)
        sound = True
    except Exception as error:
        result = broken(stage, error, time.monotonic() - began)
    finally:
        stage.end()
        if not sound:
            media.discard()  # the next scenario starts with new brokers
    if folder is None and result.good:
        shutil.rmtree(place, ignore_errors=True)
    elif folder is None:
        result.notes["folder"] = str(place)
    return result
