"""A driver of the telemetry job that ends itself with kill -9 at a named point: `telemetry_driver '<json>'`.

Its clock runs `speed` times as fast from `origin` on, so that hours close, and rows are rolled up, within minutes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from producer_core.pipeline import telemetry
from producer_core.pipeline.session import open_session
from producer_core.store import Store


def main(told):
    telemetry._MAINTENANCE = told.get("maintenance", telemetry._MAINTENANCE)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    store = Store.open(told["store"])
    session = open_session(
        name="driver",
        master=told.get("master"),
        driver_memory="1g",
        options=told.get("options", {}),
        light=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    origin, speed = told.get("origin") or time.time(), told.get("speed", 1)
    done = telemetry.run(
        session, store, servers=told["servers"], topics=told["topics"], once=told["once"],
        history=Path(told["history"]), stopped=stop.is_set, reached=killer(told.get("die")),
        clock=lambda: origin + (time.time() - origin) * speed,
    )  # fmt: skip
    session.stop()
    print(
        json.dumps({"batches": done.batches, "merged": done.merged, "set_aside": done.set_aside}), flush=True
    )


def killer(die):
    """Says each point; ends this process when the chosen one is reached for the `after`-th time."""
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
