"""T1 and T2: a fleet's telemetry through kill -9 of the driver, on this machine and on a master of several processes."""

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
PATIENCE = 900
START = 240
"""Seconds until a driver has its first micro-batch; on a busy machine a cold JVM takes a minute."""


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
    size, cluster = stage.size, stage.kafka(3)
    topic = f"telemetry-{stage.scenario.name.lower()}-{stage.seed}-{int(time.time())}"
    cluster.create_topic(topic, partitions=4)
    origin = time.time()
    fleet = Fleet(producers=size["producers"], seconds=size["seconds"], now=origin, seed=stage.seed)
    settled = {
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
            kills[harm(stage, settled, number, topic, part)] += 1
        else:
            publish(cluster.bootstrap_servers, topic, part)
    driver = Driver({**settled, "once": True}, stage.folder / "driver.log")
    if driver.process.wait(PATIENCE):
        stage.problem(f"the last run failed: {driver.said()}")
    judge(stage, fleet)
    stage.tell(producers=size["producers"], batches=fleet.truth.batches, records=len(fleet.records), kills_at_points=kills["named"],
               kills_at_random=kills["random"])  # fmt: skip


class Driver:
    def __init__(self, told, log):
        self._log = log
        log.touch()
        self._before = log.stat().st_size
        with log.open("ab") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.scenarios.pipelines.telemetry_driver", json.dumps(told)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines,
            )  # fmt: skip

    @property
    def ended(self):
        return self.process.poll() is not None

    @property
    def at_work(self):
        """Whether it got its first micro-batch."""
        return "received" in self.said()

    def said(self):
        return self._log.read_bytes()[self._before :].decode(errors="replace")[-2_000:]


def harm(stage, settled, number, topic, records):
    """One driver that is killed: at a named point, or from outside at a random moment; which of the two.

    Half of the records wait for it, the rest comes while it is at work, so that it has more than one micro-batch.
    """
    named = number % 3 != 2
    die = {"point": POINTS[number % len(POINTS)], "after": stage.chance.randint(1, 2)} if named else None
    patience = 120 if named else stage.chance.uniform(0, 15)
    half = len(records) // 2
    publish(settled["servers"], topic, records[:half])
    driver = Driver({**settled, "die": die}, stage.folder / "driver.log")
    eventually(lambda: driver.ended or driver.at_work, START)
    slowly = threading.Thread(target=in_slices, args=(settled["servers"], topic, records[half:], driver))
    slowly.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.process.wait(patience)
    ended_by_itself = driver.ended
    driver.process.kill()
    code = driver.process.wait(30)
    slowly.join()
    if code not in (-9,):
        stage.problem(f"driver {number} ended with {code}: {driver.said()}")
    return "named" if ended_by_itself else "random"


def in_slices(servers, topic, records, driver):
    """Four of them, with time between for a driver that lives."""
    each = -(-len(records) // 4) or 1
    for number in range(4):
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.process.wait(3)
        publish(servers, topic, records[number * each : (number + 1) * each])


def judge(stage, fleet):
    """Store and history have what the fleet did, to the unit, and each batch once."""
    store = Store.open(stage.folder / "fleet.duckdb", create=False)
    with store.borrow(limit=120) as connection:
        if wrong := difference(found(connection), fleet.truth):
            stage.problem(f"the store: {wrong}")
        resolutions = connection.execute("SELECT DISTINCT resolution FROM statistics ORDER BY 1").fetchall()
        ranges = connection.execute(
            "SELECT count(*), sum(last_batch - first_batch + 1) FROM merged_batches"
        ).fetchone()
    stage.equal("ranges and batches remembered", ranges, (len(fleet.names), fleet.truth.batches))
    stage.equal("producers and batches missing", missing(store), (0, 0))
    history = stage.folder / "history"
    with duckdb.connect() as connection:
        if wrong := difference(found_in_history(connection, history), fleet.truth):
            stage.problem(f"the history: {wrong}")
        twice = connection.execute(
            f"SELECT count(*) - count(DISTINCT (batch_producer, batch_sequence, topic)) "
            f"FROM read_parquet('{history}/statistics/*.parquet')"
        ).fetchone()
        aside = connection.execute(
            f"SELECT count(DISTINCT (partition, \"offset\")) FROM read_parquet('{store.path}.telemetry/set_aside/*.parquet')"
        ).fetchone()
    stage.equal("rows twice in the history", twice, (0,))
    stage.equal("records set aside", aside, (fleet.truth.strange,))
    files = len(list(history.glob("statistics/*.parquet")))
    stage.tell(history_files=files, resolutions=" ".join(str(one) for (one,) in resolutions))
    store.close()
