"""How fast an audit is, beside Spark's own plain read of the same topic with its headers, in the same run.

    python -m benchmarks.integrity --count 5000000 --rounds 3

Two topics on a real Kafka of one node on this machine, 200-byte records of eight sessions interleaved at random over six
partitions: one with sparse faults, one with dense ones. A fresh JVM for each master reads and audits each in turn; the first
round warms up. Every audit's findings are compared with what was planted, by id.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka.admin import AdminClient

from tests import planting

MASTERS = ("local[1,4]", "local[2,4]")
DENSITIES = {"sparse": 10, "dense": 1_000}
"""Of each kind of fault: loss, a copy in the same partition, one in another, a record out of order."""
KINDS = ("lost", "duplicated", "reordered", "given_up_found", "unledgered")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
        return
    from producer_core.brokers import kafka

    print(
        f"{platform.machine()}, {os.cpu_count()} cores shared with the broker, Python {platform.python_version()}"
    )
    with kafka.start(nodes=1) as cluster:
        topics = {name: planted(cluster, name, options) for name in DENSITIES}
        print("| faults of each kind | master | plain read | audit | ratio | read again | first audit |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for name, (orders, telemetry, truth) in topics.items():
            for master in MASTERS:
                task = {
                    "servers": cluster.bootstrap_servers, "orders": orders, "telemetry": telemetry, "master": master,
                    "rounds": options.rounds, "memory": options.memory,
                }  # fmt: skip
                told = in_another(task)
                check(told["reports"], truth)
                print(line(DENSITIES[name], master, told), flush=True)


def planted(cluster: Any, name: str, options: Any) -> tuple[str, str, dict[str, Any]]:
    """A topic with faults, its ledger, and the truth of it; no transaction and no silent producer, which cost a look."""
    plan = planting.plant(
        options.count, seed=1, partitions=options.partitions, sessions=8, faults=DENSITIES[name],
        transactions=False, expired=False, silent=False, hole=False,
    )  # fmt: skip
    orders, telemetry = f"orders-{name}", f"telemetry-{name}"
    cluster.create_topic(orders, partitions=options.partitions)
    cluster.create_topic(telemetry, partitions=1, config={"compression.type": "zstd"})
    cluster_id = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics().cluster_id
    began = time.monotonic()
    planting.write(plan, cluster.bootstrap_servers, orders, telemetry, cluster_id)
    print(f"{plan.records:,} records written in {time.monotonic() - began:.0f} s", file=sys.stderr)
    truth = planting.truth(plan)
    return orders, telemetry, {kind: plan.ids(truth[kind]) for kind in KINDS}


def in_another(task: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.integrity", "--work", json.dumps(task)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def work(task: dict[str, Any]) -> None:
    """In a process of its own: read, audit, read, audit …"""
    from producer_core.asking import admin
    from producer_core.config import client_config
    from producer_core.pipeline import audit
    from producer_core.pipeline.integrity import edges
    from producer_core.pipeline.integrity.reading import bounded
    from producer_core.pipeline.session import open_session

    session = open_session(name="benchmark", master=task["master"], driver_memory=task["memory"])
    config = client_config(task["servers"])
    asking = admin(config.settings)
    ends = edges.edges(asking, edges.facts(asking, task["orders"]))
    ranges = {number: (edge.low, edge.stable) for number, edge in ends.items()}
    options = {"kafka.bootstrap.servers": task["servers"], "kafka.isolation.level": "read_committed"}
    told: dict[str, Any] = {"reads": [], "audits": [], "reports": [], "records": 0}
    for _ in range(task["rounds"] + 1):
        began = time.monotonic()
        bounded(session, task["orders"], ranges, options).write.format("noop").mode("overwrite").save()
        told["reads"].append(time.monotonic() - began)
        began = time.monotonic()
        report = audit(session, task["orders"], bootstrap_servers=config, ledger_topics=[task["telemetry"]])
        told["audits"].append(time.monotonic() - began)
        told["records"], told["again"] = report.records, report.read_again
        told["reports"].append({kind: report.ids(kind) for kind in KINDS} | {"pending": report.pending})
    session.stop()
    print(json.dumps(told))


def check(reports: list[dict[str, Any]], truth: dict[str, Any]) -> None:
    """Every audit found what was planted, and nothing else."""
    for report in reports:
        for kind in KINDS:
            if (wrong := set(report[kind]) ^ truth[kind]) or report["pending"]:
                raise SystemExit(f"{kind}: {len(wrong)} ids differ from what was planted")


def line(faults: int, master: str, told: dict[str, Any]) -> str:
    read, audit = median(told["reads"][1:]), median(told["audits"][1:])
    records = told["records"]
    return (
        f"| {faults:,} | `{master}` | {records / read / 1e3:,.0f}k/s | {records / audit / 1e3:,.0f}k/s "
        f"| {read / audit:.2f} | {told['again'] / records:.0%} | {records / told['audits'][0] / 1e3:,.0f}k/s |"
    )


if __name__ == "__main__":
    main()
