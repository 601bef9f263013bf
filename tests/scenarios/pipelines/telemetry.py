"""T1 and T2: telemetry of a fleet while the driver is killed, on a local and on a standalone master."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time

import duckdb

from producer_core.pipeline.merge_batch import missing
from producer_core.store import Store
from tests.scenarios.pipelines.fleet import POINTS, Fleet, difference, found, found_in_history, publish
from tests.scenarios.pipelines.scenario import scenario
from tests.support import ROOT, eventually

SIZES = {
    "full": {"producers": 20, "seconds": 3_600, "kills": 20, "speed": 180},
    "short": {"producers": 5, "seconds": 120, "kills": 3, "speed": 180},
}
TIMEOUT_S = 900
START_TIMEOUT_S = 240
"""Seconds until a driver has its first micro-batch; on a busy machine, a cold JVM needs a minute."""


@scenario("T1", "telemetry of a fleet, with kill -9 of the driver at fixed and random points", sizes=SIZES)
def killed(stage):
    play(stage)


@scenario(
    "T2", "the same on a standalone master with two workers", master="standalone",
    sizes={"full": {**SIZES["full"], "kills": 8}, "short": {**SIZES["short"], "kills": 1}},
)  # fmt: skip
def killed_elsewhere(stage):
    play(stage)


def play(stage):
    """Publish the records in parts, kill a driver during each part, and finish with a last driver."""
    size, cluster = stage.size, stage.kafka(3)
    topic = f"telemetry-{stage.scenario.name.lower()}-{stage.seed}-{int(time.time())}"
    cluster.create_topic(topic, partitions=4)
    origin = time.time()
    fleet = Fleet(producers=size["producers"], seconds=size["seconds"], now=origin, seed=stage.seed)
    settings = {
        "servers": cluster.bootstrap_servers, "topics": [topic], "store": str(stage.folder / "fleet.duckdb"),
        "history": str(stage.folder / "history"), "master": stage.master, "once": False, "maintenance": 3.0,
        "origin": origin, "speed": size["speed"],
    }  # fmt: skip
    parts = size["kills"] + 1
    each = -(-len(fleet.records) // parts)
    kills = {"named": 0, "random": 0}
    for number in range(parts):
        part = fleet.records[number * each : (number + 1) * each]
        if number < size["kills"]:
            kills[kill_driver(stage, settings, number, topic, part)] += 1
        else:
            publish(cluster.bootstrap_servers, topic, part)
    driver = Driver({**settings, "once": True}, stage.folder / "driver.log")
    if driver.process.wait(TIMEOUT_S):
        stage.problem(f"the last run failed: {driver.output()}")
    check(stage, fleet)
    stage.report(producers=size["producers"], batches=fleet.truth.batches, records=len(fleet.records), kills_at_points=kills["named"],
               kills_at_random=kills["random"])  # fmt: skip


class Driver:
    """A driver process with its output."""

    def __init__(self, settings, log):
        self._log = log
        log.touch()
        self._before = log.stat().st_size
        with log.open("ab") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.scenarios.pipelines.telemetry_driver", json.dumps(settings)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines,
            )  # fmt: skip

    @property
    def ended(self):
        return self.process.poll() is not None

    @property
    def has_batch(self):
        """Return whether it has received its first micro-batch."""
        return "received" in self.output()

    def output(self):
        return self._log.read_bytes()[self._before :].decode(errors="replace")[-2_000:]


def kill_driver(stage, settings, number, topic, records):
    """Start a driver and kill it at a named step, or at a random moment; return "named" or "random".

    Half of the records are there before it starts. The rest arrives while it runs, so that it has several micro-batches.
    """
    named = number % 3 != 2
    die = {"point": POINTS[number % len(POINTS)], "after": stage.chance.randint(1, 2)} if named else None
    lifetime = 120 if named else stage.chance.uniform(0, 15)
    half = len(records) // 2
    publish(settings["servers"], topic, records[:half])
    driver = Driver({**settings, "die": die}, stage.folder / "driver.log")
    eventually(lambda: driver.ended or driver.has_batch, START_TIMEOUT_S)
    slowly = threading.Thread(
        target=publish_in_parts, args=(settings["servers"], topic, records[half:], driver)
    )
    slowly.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.process.wait(lifetime)
    ended_by_itself = driver.ended
    driver.process.kill()
    code = driver.process.wait(30)
    slowly.join()
    if code not in (-9,):
        stage.problem(f"driver {number} ended with {code}: {driver.output()}")
    return "named" if ended_by_itself else "random"


def publish_in_parts(servers, topic, records, driver):
    """Publish the records in four parts, with a pause before each part while the driver runs."""
    each = -(-len(records) // 4) or 1
    for number in range(4):
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.process.wait(3)
        publish(servers, topic, records[number * each : (number + 1) * each])


def check(stage, fleet):
    """Verify that store and history have the exact sums of the fleet, with each batch once."""
    store = Store.open(stage.folder / "fleet.duckdb", create=False)
    with store.borrow(limit=120) as connection:
        if wrong := difference(found(connection), fleet.truth):
            stage.problem(f"the store: {wrong}")
        resolutions = connection.execute("SELECT DISTINCT resolution FROM statistics ORDER BY 1").fetchall()
        ranges = connection.execute(
            "SELECT count(*), sum(last_batch - first_batch + 1) FROM merged_batches"
        ).fetchone()
    stage.equal("merged ranges and batches", ranges, (len(fleet.names), fleet.truth.batches))
    stage.equal("producers and batches missing", missing(store), (0, 0))
    history = stage.folder / "history"
    with duckdb.connect() as connection:
        if wrong := difference(found_in_history(connection, history), fleet.truth):
            stage.problem(f"the history: {wrong}")
        duplicates = connection.execute(
            f"SELECT count(*) - count(DISTINCT (batch_producer, batch_sequence, topic)) "
            f"FROM read_parquet('{history}/statistics/*.parquet')"
        ).fetchone()
        aside = connection.execute(
            f"SELECT count(DISTINCT (partition, \"offset\")) FROM read_parquet('{store.path}.telemetry/set_aside/*.parquet')"
        ).fetchone()
    stage.equal("duplicate rows in the history", duplicates, (0,))
    stage.equal("records set aside", aside, (fleet.truth.unreadable,))
    files = len(list(history.glob("statistics/*.parquet")))
    stage.report(history_files=files, resolutions=" ".join(str(one) for (one,) in resolutions))
    store.close()
