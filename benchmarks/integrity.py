"""How fast an audit is, beside Spark's own plain read of the same topic with its headers, in the same run.

    python -m benchmarks.integrity --count 1000000 --rounds 2

Topics on a real Kafka of one node on this machine, 200-byte records of eight sessions interleaved at random over the
partitions: one with sparse faults, a shorter one, one of four times the partitions, one with dense faults. A fresh
JVM for each line reads and audits in turn; the first round warms up, and a ratio is the median of the ratios within the
others. Every audit's findings are compared with what was planted, by id. Then: what one id header of 24 bytes costs at
both ends, beside two headers and none; more partitions, and dense faults. What would not be done within `--within`
seconds is not begun, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.machine import hardware
from tests.fixtures import planting

ONE, TWO = "local[1,4]", "local[2,4]"
SPARSE, DENSE = 10, 1_000
"""Of each kind of fault: loss, a copy in the same partition, one in another, a record out of order."""
KINDS = ("lost", "duplicated", "reordered", "given_up_found", "unledgered")
READERS = {"default": "kafka", "newer": ""}
"""What of Kafka's is in Spark's list of sources that it reads the older way."""


class Case(NamedTuple):
    count: int
    partitions: int
    faults: int
    masters: tuple[str, ...]


class Clock:
    """Whether there is time for one more of what takes a share of the longest so far."""

    def __init__(self, within: float) -> None:
        self._end = time.monotonic() + within
        self._longest = 0.0

    def allows(self, what: str, *, share: float = 1.0) -> bool:
        if allowed := time.monotonic() + share * self._longest <= self._end:
            self._began = time.monotonic()
        else:
            print(f"No time was left for {what}.", flush=True)
        return allowed

    def done(self) -> None:
        self._longest = max(self._longest, time.monotonic() - self._began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--within", type=float, default=570, help="seconds")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
        return
    from producer_core.brokers import kafka

    clock = Clock(options.within)
    print(f"{hardware()}; shared with the broker, load {os.getloadavg()[0]:.1f} before.")
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-integrity-") as home,
        kafka.start(nodes=1, folder=Path(home) / "kafka") as cluster,
    ):
        count, partitions = options.count, options.partitions
        long, short = (
            Case(count, partitions, SPARSE, (ONE, TWO)),
            Case(count // 4, partitions, SPARSE, (TWO,)),
        )
        heading()
        took = audits(cluster, [long, short], options, clock)
        growth(took, long, short)
        headers(cluster, count // 4, options, home, clock)
        wide, dense = Case(count, partitions * 4, SPARSE, (TWO,)), Case(count, partitions, DENSE, (TWO,))
        heading()
        audits(cluster, [wide, dense], options, clock)


def heading() -> None:
    print(
        "\n| records | partitions | faults of each kind | master | plain read | its newer reader | audit "
        "| of the plain read | of the newer | read again | first audit |"
    )
    print("|" + " --- |" * 11, flush=True)


def audits(
    cluster: Any, cases: list[Case], options: Any, clock: Clock
) -> dict[tuple[Case, str], dict[str, Any]]:
    """A line for each case and master, as soon as it is measured."""
    took: dict[tuple[Case, str], dict[str, Any]] = {}
    for case in cases:
        topics = None
        for master in case.masters:
            if not clock.allows(f"{case.count:,} records in {case.partitions} partitions, {master}"):
                continue
            orders, telemetry, truth = topics = topics or planted(cluster, uuid.uuid4().hex[:8], case)
            told = in_another(
                servers=cluster.bootstrap_servers, orders=orders, telemetry=telemetry, master=master,
                rounds=options.rounds, memory=options.memory,
            )  # fmt: skip
            check(told["reports"], truth)
            took[case, master] = told
            print(line(case, master, told), flush=True)
            clock.done()
    return took


def growth(took: dict[tuple[Case, str], dict[str, Any]], long: Case, short: Case) -> None:
    """What does not grow with the records, and what each further one costs, from two lengths."""
    if (long, TWO) not in took or (short, TWO) not in took:
        return
    many, few = took[long, TWO], took[short, TWO]
    said = []
    for name, one in (("an audit", "audits"), ("a plain read", "default"), ("its newer reader", "newer")):
        more, less = (median(told[one][1:]) for told in (many, few))
        further = many["records"] - few["records"]
        if more > less:
            fixed = less - few["records"] * (more - less) / further
            said.append(f"{name} {fixed:.1f} s and {further / (more - less) / 1e3:,.0f}k further records/s")
    print(f"\nFrom these two lengths, `{TWO}`: {'; '.join(said)}.", flush=True)


def planted(cluster: Any, name: str, case: Case) -> tuple[str, str, dict[str, Any]]:
    """A topic with faults, its ledger, and the truth of it; no transaction and no silent producer, which cost a look."""
    plan = planting.plant(
        case.count, seed=1, partitions=case.partitions, sessions=8, faults=min(case.faults, case.count // 100),
        transactions=False, expired=False, silent=False, hole=False,
    )  # fmt: skip
    orders, telemetry = f"orders-{name}", f"telemetry-{name}"
    cluster.create_topic(orders, partitions=case.partitions)
    cluster.create_topic(telemetry, partitions=1, config={"compression.type": "zstd"})
    cluster_id = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics().cluster_id
    began = time.monotonic()
    planting.write(plan, cluster.bootstrap_servers, orders, telemetry, cluster_id)
    print(f"{plan.records:,} records written in {time.monotonic() - began:.0f} s", file=sys.stderr)
    truth = planting.truth(plan)
    return orders, telemetry, {kind: sorted(plan.ids(truth[kind])) for kind in KINDS}


def headers(cluster: Any, count: int, options: Any, home: str, clock: Clock) -> None:
    """Records with no header, with ours, and with session and sequence apart, at both ends."""
    session = uuid.uuid4().bytes
    kinds: dict[str, Any] = {
        "none": lambda seq: None,
        "one of 24 bytes": lambda seq: [("pc-id", session + seq)],
        "two, 36 characters and 8 bytes": lambda seq: [
            ("pc-session", str(uuid.UUID(bytes=session))),
            ("pc-seq", seq),
        ],
    }
    print("\n| headers | produced | plain read | its newer reader | bytes a record |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for number, (name, made) in enumerate(kinds.items()):
        if not clock.allows(f"headers: {name}", share=0.4):
            continue
        topic = f"headers-{number}"
        cluster.create_topic(topic, partitions=options.partitions)
        rates = [
            count / produced(cluster.bootstrap_servers, topic, count, made) for _ in range(options.rounds)
        ]
        told = in_another(
            servers=cluster.bootstrap_servers, orders=topic, telemetry=None, master=TWO, rounds=options.rounds,
            memory=options.memory,
        )  # fmt: skip
        reads = [f"{told['records'] / median(told[reader][1:]) / 1e3:,.0f}k/s" for reader in READERS]
        size = sum(one.stat().st_size for one in Path(home).rglob(f"{topic}-*/*.log"))
        print(
            f"| {name} | {median(rates) / 1e3:,.0f}k/s | {reads[0]} | {reads[1]} | {size / told['records']:.0f} |",
            flush=True,
        )
        clock.done()


def produced(servers: str, topic: str, count: int, made: Any) -> float:
    """Seconds that a plain idempotent producer takes."""
    client = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "compression.type": "none",
         "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    value, began = bytes(200), time.monotonic()
    for seq in range(count):
        given = made(seq.to_bytes(8))
        while True:
            try:
                client.produce(topic, value, headers=given)
                break
            except BufferError:
                client.poll(0.05)
    assert client.flush(120) == 0
    return time.monotonic() - began


def in_another(**task: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.integrity", "--work", json.dumps(task)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def work(task: dict[str, Any]) -> None:
    """In a process of its own: read, read, audit, and again …"""
    from producer_core.config import client_config
    from producer_core.kafka.clients import admin
    from producer_core.pipeline import audit
    from producer_core.pipeline.integrity import topic_bounds
    from producer_core.pipeline.integrity.read_topic import fetch_settings
    from producer_core.pipeline.session import open_session

    session = open_session(name="benchmark", master=task["master"], driver_memory=task["memory"])
    config = client_config(task["servers"])
    asking = admin(config.settings)
    ends = topic_bounds.bounds(asking, topic_bounds.facts(asking, task["orders"]))
    told: dict[str, Any] = {"audits": [], "reports": [], **{reader: [] for reader in READERS}}
    told["records"] = sum(edge.stable - edge.low for edge in ends.values())
    for _ in range(task["rounds"] + 1):
        for reader, older in READERS.items():
            told[reader].append(plain(session, task, older, fetch_settings(len(ends))))
        if task["telemetry"] is None:
            continue
        began = time.monotonic()
        report = audit(session, task["orders"], bootstrap_servers=config, ledger_topics=[task["telemetry"]])
        told["audits"].append(time.monotonic() - began)
        told["again"] = report.read_again
        told["reports"].append({kind: report.ids(kind) for kind in KINDS} | {"pending": report.pending})
    session.stop()
    print(json.dumps(told))


def plain(session: Any, task: dict[str, Any], older: str, large: dict[str, str]) -> float:
    """Seconds that Spark takes to read the topic with its headers, in fetches as large as an audit's, and no more."""
    session.conf.set("spark.sql.sources.useV1SourceList", older)
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", task["servers"])
    reader = reader.option("subscribe", task["orders"]).option("includeHeaders", "true").options(**large)
    began = time.monotonic()
    reader.option("kafka.isolation.level", "read_committed").load().write.format("noop").mode(
        "overwrite"
    ).save()
    return time.monotonic() - began


def check(reports: list[dict[str, Any]], truth: dict[str, Any]) -> None:
    """Every audit found what was planted, and nothing else."""
    for report in reports:
        for kind in KINDS:
            if (wrong := {*report[kind]} ^ {*truth[kind]}) or report["pending"]:
                raise SystemExit(f"{kind}: {len(wrong)} ids differ from what was planted")


def line(case: Case, master: str, told: dict[str, Any]) -> str:
    audits = told["audits"][1:]
    records = told["records"]
    rates = [f"{records / median(told[name][1:]) / 1e3:,.0f}k/s" for name in (*READERS, "audits")]
    ratios = [
        f"{median(read / audit for read, audit in zip(told[name][1:], audits, strict=True)):.2f}"
        for name in READERS
    ]
    return (
        f"| {records:,} | {case.partitions} | {min(case.faults, case.count // 100):,} | `{master}` | {' | '.join(rates)} "
        f"| {' | '.join(ratios)} | {told['again'] / records:.0%} "
        f"| {records / told['audits'][0] / 1e3:,.0f}k/s |"
    )


if __name__ == "__main__":
    main()
