"""Collect telemetry without Spark and kill this process at a named step: `collect_driver '<json>'`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from producer_core.pipeline.collect import collect
from producer_core.store import Store
from tests.scenarios.pipelines.telemetry_driver import killer


def main(settings):
    history = settings.get("history")
    done = collect(
        Store.open(settings["store"]), servers=settings["servers"], topics=settings["topics"], once=True,
        history=history and Path(history), every=settings.get("every", 1.0), reached=killer(settings.get("die")),
    )  # fmt: skip
    print(json.dumps({"batches": done.batches, "merged": done.merged, "set_aside": done.set_aside}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
