"""I1 to I3: audits of large topics with planted faults; the audit must find exactly these faults by id."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import duckdb
from confluent_kafka.admin import AdminClient

from tests.fixtures import planting
from tests.scenarios.pipelines.scenario import scenario

KINDS = ("lost", "duplicated", "reordered", "pending", "given_up_found", "unledgered")
TIMEOUT_S = 1_800
KILLED_IN_SECOND_PASS = """
import os
from producer_core.cli import main
from producer_core.pipeline.integrity import compare
compare.MAX_IDS = 1_000
compare._Comparison._second_pass = lambda *_: os.kill(os.getpid(), 9)
main()
"""


@scenario(
    "I1",
    "integrity: lost and reordered messages, copies in the same and in another partition, aborted and open transactions, "
    "retention, a session without a ledger, and a ledger with a gap, among 5 million records",
    sizes={"full": {"count": 5_000_000, "faults": 50}, "short": {"count": 100_000, "faults": 10}},
)
def sparse(stage):
    play(stage)


@scenario(
    "I2",
    "the same with more faults per record, on a standalone master with two workers",
    master="standalone",
    sizes={"full": {"count": 1_000_000, "faults": 1_000}, "short": {"count": 50_000, "faults": 200}},
)
def dense(stage):
    play(stage)


@scenario(
    "I3",
    "incremental audits of one topic: two are killed with kill -9, one of them in the second pass, and repeated; the next "
    "one checks the records that an open transaction hid, and the last one finds no new records",
    sizes={"full": {"count": 1_000_000, "faults": 30}, "short": {"count": 60_000, "faults": 10}},
)
def nightly(stage):
    plan, orders, telemetry, holding = prepared(stage)
    driver = started(stage, orders, telemetry, "--incremental")
    killed = kill_after(driver, " records", 1.0)  # it logs their number before it reads them
    driver = started(stage, orders, telemetry, "--incremental", program=("-c", KILLED_IN_SECOND_PASS))
    driver.communicate(timeout=TIMEOUT_S)
    stage.equal("exit code of the second driver", driver.returncode, -9)
    report = audited(stage, orders, telemetry, "--incremental")
    judge(stage, plan, report)
    holding.abort_transaction(30)
    behind = audited(stage, orders, telemetry, "--incremental")
    for kind in ("lost", "duplicated", "reordered"):
        stage.equal(f"{kind} behind the transaction", behind[kind], 0)
    stage.equal("acknowledged behind the transaction", behind["acknowledged"], len(plan.planted["pending"]))
    nothing = audited(stage, orders, telemetry, "--incremental")
    stage.equal("records of the third run", nothing["records"], 0)
    stage.report(records=report["records"], killed=killed, behind=behind["records"])


def play(stage):
    plan, orders, telemetry, holding = prepared(stage)
    began = time.monotonic()
    report = audited(stage, orders, telemetry)
    seconds = time.monotonic() - began
    judge(stage, plan, report)
    stage.report(
        records=report["records"], acknowledged=report["acknowledged"], read_again=report["read_again"],
        faults=sum(report[kind] for kind in KINDS[:4]), seconds=round(seconds, 1),
    )  # fmt: skip
    holding.abort_transaction(30)


def prepared(stage):
    size, cluster = stage.size, stage.kafka(1)
    plan = planting.plant(size["count"], seed=stage.seed, partitions=6, sessions=8, faults=size["faults"])
    name = f"{stage.scenario.name.lower()}-{stage.seed}-{int(time.time())}"
    orders, telemetry = f"orders-{name}", f"telemetry-{name}"
    cluster.create_topic(orders, partitions=6)
    cluster.create_topic(telemetry, partitions=3)
    cluster_id = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics().cluster_id
    holding = planting.write(plan, cluster.bootstrap_servers, orders, telemetry, cluster_id)
    return plan, orders, telemetry, holding


def started(stage, orders, telemetry, *more, program=("-m", "producer_core.cli")):
    command = [sys.executable, *program, "pipeline", "integrity", "--topic", orders]
    command += ["--ledger-topic", telemetry, "-b", stage.kafka(1).bootstrap_servers, "--json"]
    command += [
        "--store",
        str(stage.folder / "store.duckdb"),
        "--findings",
        str(stage.folder / "findings"),
        *more,
    ]
    command += ["--master", stage.master] if stage.master else []
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def audited(stage, orders, telemetry, *more):
    driver = started(stage, orders, telemetry, *more)
    output, errors = driver.communicate(timeout=TIMEOUT_S)
    if driver.returncode:
        raise RuntimeError(errors[-2_000:])
    return json.loads(output)


def kill_after(driver, text, seconds):
    """Kill the driver a few seconds after it printed this text; return the number of kills, 0 if it ended before."""
    for line in driver.stderr:
        if text in line:
            break
    try:
        driver.wait(seconds)
    except subprocess.TimeoutExpired:
        driver.kill()
        driver.wait()
        return 1
    return 0


def judge(stage, plan, report):
    wanted = planting.truth(plan)
    findings = duckdb.sql(f"SELECT kind, message_id FROM '{report['findings_path']}/*.parquet'").fetchall()
    for kind in KINDS:
        found = plan.codes({message for each, message in findings if each == kind})
        stage.equal(f"{kind}, by id", (len(found - wanted[kind]), len(wanted[kind] - found)), (0, 0))
        stage.equal(kind, report[kind], len(wanted[kind]))
    for name in ("expired", "acknowledged", "records", "foreign"):
        stage.equal(name, report[name], wanted[name])
    stage.equal("gaps", len(report["gaps"]), 1)
