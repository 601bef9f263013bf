"""Run the telemetry job and kill this process at a named step: `telemetry_driver '<json>'`.

From `origin` on, the clock runs `speed` times as fast, so that hours end and rows are rolled up within minutes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from producer_core.pipeline import maintenance, telemetry
from producer_core.pipeline.session import open_session
from producer_core.store import Store


def main(settings):
    telemetry._MAINTENANCE = maintenance._INTERVAL = settings.get("maintenance", maintenance._INTERVAL)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    store = Store.open(settings["store"])
    session = open_session(
        name="driver",
        master=settings.get("master"),
        driver_memory="1g",
        options=settings.get("options", {}),
        light=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    origin, speed = settings.get("origin") or time.time(), settings.get("speed", 1)
    done = telemetry.run(
        session, store, servers=settings["servers"], topics=settings["topics"], once=settings["once"],
        history=Path(settings["history"]), stopped=stop.is_set, reached=killer(settings.get("die")),
        clock=lambda: origin + (time.time() - origin) * speed,
    )  # fmt: skip
    session.stop()
    print(
        json.dumps({"batches": done.batches, "merged": done.merged, "set_aside": done.set_aside}), flush=True
    )


def killer(die):
    """Return a callback that prints each step and kills this process when the chosen step occurs for the `after`th time."""
    left = [die["after"] if die else 0]

    def reached(point):
        print(point, flush=True)
        if die and point == die["point"]:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
