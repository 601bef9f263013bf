"""Running scenarios: the brokers are started once, each run is judged and saved."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from tests.scenarios.replays.result import broken, compared, judge
from tests.scenarios.replays.scenarios import SCENARIOS
from tests.scenarios.replays.stage import Stage

LONG = 20_000
"""From so many dead letters on, a scenario does all its harm."""


def command(result):
    """What runs it again."""
    return f"python -m tests.scenarios.replays run --scenario {result.scenario} --seed {result.seed} --letters {result.dead_letters}"


def run(media, name, *, seed, dead_letters, folder=None):
    """One run of one scenario: its Result. `folder` keeps what the run wrote."""
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
        say = compared if scenario.expected == "violation" else judge
        result = say(stage, time.monotonic() - began)
        sound = True
    except Exception as error:
        result = broken(stage, error, time.monotonic() - began)
    finally:
        stage.end()
        if not sound:
            media.discard()  # whatever it left behind is not the next one's
    if folder is None and result.good:
        shutil.rmtree(place, ignore_errors=True)
    elif folder is None:
        result.notes["folder"] = str(place)
    return result
