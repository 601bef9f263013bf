"""T4: the telemetry job under `spark-submit` as in docs/operations/pipeline.md: a script of two lines and --packages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from producer_core.pipeline.connector import coordinate, folder
from producer_core.store import Store
from tests.scenarios.pipelines.fleet import Fleet, difference, found, publish
from tests.scenarios.pipelines.scenario import scenario
from tests.support import ROOT

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
JOB = "from producer_core.cli import main\nmain()\n"


@scenario(
    "T4", "telemetry submitted with spark-submit to a standalone master, and a topic that does not exist",
    master="standalone",
    sizes={"full": {"producers": 20, "seconds": 600}, "short": {"producers": 3, "seconds": 20}},
)  # fmt: skip
def submitted(stage):
    cluster, topic = stage.kafka(), f"submitted-{int(time.time())}"
    cluster.create_topic(topic, partitions=2)
    fleet = Fleet(**stage.size, now=time.time(), seed=stage.seed)
    publish(cluster.bootstrap_servers, topic, fleet.records)

    done = submit(stage, cluster, topic)
    if done.returncode:
        stage.problem(f"exit code {done.returncode}: {done.stderr[-1_000:]}")
    store = Store.open(stage.folder / "fleet.duckdb")
    with store.borrow(limit=60) as connection:
        if wrong := difference(found(connection), fleet.truth):
            stage.problem(f"the store: {wrong}")
    store.close()

    missing = submit(stage, cluster, f"{topic}-2")
    stage.equal("exit code for a topic that does not exist", missing.returncode, 2)
    output = missing.stdout + missing.stderr  # spark-submit writes both streams of the job to stdout
    if "does not exist" not in output:
        stage.problem(f"a topic that does not exist: {output[-1_000:]}")
    stage.report(batches=fleet.truth.batches)


def submit(stage, cluster, topic):
    """Submit the job with the project's cache of jars, so that the resolver needs no network."""
    job = stage.folder / "job.py"
    job.write_text(JOB)
    command = [SUBMIT, "--master", stage.master, "--packages", coordinate(), "--conf", f"spark.jars.ivy={folder()}/ivy",
               job, "pipeline", "telemetry", "--once", "--topic", topic, "-b", cluster.bootstrap_servers,
               "--store", stage.folder / "fleet.duckdb"]  # fmt: skip
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [str(part) for part in command],
        env=environment, cwd=stage.folder, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
