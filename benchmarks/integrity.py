"""Compare the speed of an audit with Spark's plain read of the same topic and headers, in the same run.

    python -m benchmarks.integrity --count 1000000 --rounds 2

The topics are on a real Kafka of one node and contain 200-byte records of eight sessions, interleaved at random over the
partitions: one topic with sparse faults, a shorter one, one with four times the partitions, and one with dense faults.
For each row a new JVM alternates reads and audits. The first round is a warm-up; a ratio is the median of the ratios
within the other rounds. "ids to the driver" is the floor of an audit: Spark's newer reader returns partition, offset and
id of each record to the driver, with no ledger and no comparison. The CPU seconds are those of the driver and its JVM,
per million records, and depend less on other work of the machine. The findings of every audit must equal the planted faults by id. Another table shows the cost of
one id header of 24 bytes for producers and consumers, compared with two headers and none. A measurement that would exceed
`--within` seconds is skipped with a message.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.machine import hardware
from tests.fixtures import planting

ONE, TWO = "local[1,4]", "local[2,4]"
SPARSE, DENSE = 10, 1_000
"""Faults of each kind: loss, duplicate in the same partition, duplicate in another one, record out of order."""
KINDS = ("lost", "duplicated", "reordered", "given_up_found", "unledgered")
READERS = {"default": "kafka", "newer": ""}
"""Spark's setting `useV1SourceList` for each of its two Kafka readers."""
TIMED = (*READERS, "ids", "audits")


class Case(NamedTuple):
    count: int
    partitions: int
    faults: int
    masters: tuple[str, ...]


class Clock:
    """Decides whether another measurement fits into the time limit, by the longest one so far."""

    def __init__(self, within: float) -> None:
        self._end = time.monotonic() + within
        self._longest = 0.0

    def allows(self, what: str, *, share: float = 1.0) -> bool:
        if allowed := time.monotonic() + share * self._longest <= self._end:
            self._started = time.monotonic()
        else:
            print(f"Skipped, not enough time: {what}.", flush=True)
        return allowed

    def done(self) -> None:
        self._longest = max(self._longest, time.monotonic() - self._started)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="records in the long topics")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--within", type=float, default=570, help="time limit in seconds")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
        return
    from producer_core.brokers import kafka

    clock = Clock(options.within)
    print(f"{hardware()}; shared with the broker, load average {os.getloadavg()[0]:.1f} at the start.")
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
        "\n| records | partitions | faults of each kind | master | plain read | newer reader | audit "
        "| x plain read | x newer reader | read again | first audit | ids to the driver | ids x newer reader "
        "| CPU s per million: newer reader, ids, audit |"
    )
    print("|" + " --- |" * 14, flush=True)


def audits(
    cluster: Any, cases: list[Case], options: Any, clock: Clock
) -> dict[tuple[Case, str], dict[str, Any]]:
    """Print a row for each case and master as soon as it is measured."""
    took: dict[tuple[Case, str], dict[str, Any]] = {}
    for case in cases:
        topics = None
        for master in case.masters:
            if not clock.allows(f"{case.count:,} records in {case.partitions} partitions, {master}"):
                continue
            orders, telemetry, truth = topics = topics or planted(cluster, uuid.uuid4().hex[:8], case)
            result = in_subprocess(
                servers=cluster.bootstrap_servers, orders=orders, telemetry=telemetry, master=master,
                rounds=options.rounds, memory=options.memory,
            )  # fmt: skip
            check(result["reports"], truth)
            took[case, master] = result
            print(row(case, master, result), flush=True)
            clock.done()
    return took


def growth(took: dict[tuple[Case, str], dict[str, Any]], long: Case, short: Case) -> None:
    """Print the fixed cost and the cost per further record, from topics of two lengths."""
    if (long, TWO) not in took or (short, TWO) not in took:
        return
    many, few = took[long, TWO], took[short, TWO]
    costs = []
    for name, one in (("audit", "audits"), ("plain read", "default"), ("newer reader", "newer")):
        more, less = (median(result[one][1:]) for result in (many, few))
        further = many["records"] - few["records"]
        if more > less:
            fixed = less - few["records"] * (more - less) / further
            costs.append(f"{name} {fixed:.1f} s plus {further / (more - less) / 1e3:,.0f}k further records/s")
    print(f"\nFixed cost and rate from both lengths, `{TWO}`: {'; '.join(costs)}.", flush=True)


def planted(cluster: Any, name: str, case: Case) -> tuple[str, str, dict[str, Any]]:
    """Create a topic with faults, its ledger, and the expected findings.

    It has no transactions and no silent producer, because these need additional probes.
    """
    plan = planting.plant(
        case.count, seed=1, partitions=case.partitions, sessions=8, faults=min(case.faults, case.count // 100),
        transactions=False, expired=False, silent=False, hole=False,
    )  # fmt: skip
    orders, telemetry = f"orders-{name}", f"telemetry-{name}"
    cluster.create_topic(orders, partitions=case.partitions)
    cluster.create_topic(telemetry, partitions=1, config={"compression.type": "zstd"})
    cluster_id = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics().cluster_id
    started = time.monotonic()
    planting.write(plan, cluster.bootstrap_servers, orders, telemetry, cluster_id)
    print(f"{plan.records:,} records written in {time.monotonic() - started:.0f} s", file=sys.stderr)
    truth = planting.truth(plan)
    return orders, telemetry, {kind: sorted(plan.ids(truth[kind])) for kind in KINDS}


def headers(cluster: Any, count: int, options: Any, home: str, clock: Clock) -> None:
    """Measure records without a header, with the id header, and with separate session and sequence headers."""
    session = uuid.uuid4().bytes
    kinds: dict[str, Any] = {
        "none": lambda seq: None,
        "one of 24 bytes": lambda seq: [("pc-id", session + seq)],
        "two, 36 characters and 8 bytes": lambda seq: [
            ("pc-session", str(uuid.UUID(bytes=session))),
            ("pc-seq", seq),
        ],
    }
    print("\n| headers | produce | plain read | newer reader | bytes per record |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for number, (name, made) in enumerate(kinds.items()):
        if not clock.allows(f"headers: {name}", share=0.4):
            continue
        topic = f"headers-{number}"
        cluster.create_topic(topic, partitions=options.partitions)
        rates = [
            count / produced(cluster.bootstrap_servers, topic, count, made) for _ in range(options.rounds)
        ]
        result = in_subprocess(
            servers=cluster.bootstrap_servers, orders=topic, telemetry=None, master=TWO, rounds=options.rounds,
            memory=options.memory,
        )  # fmt: skip
        reads = [f"{result['records'] / median(result[reader][1:]) / 1e3:,.0f}k/s" for reader in READERS]
        size = sum(one.stat().st_size for one in Path(home).rglob(f"{topic}-*/*.log"))
        print(
            f"| {name} | {median(rates) / 1e3:,.0f}k/s | {reads[0]} | {reads[1]} | {size / result['records']:.0f} |",
            flush=True,
        )
        clock.done()


def produced(servers: str, topic: str, count: int, made: Any) -> float:
    """Return the seconds that a plain idempotent producer needs."""
    client = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "compression.type": "none",
         "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    value, started = bytes(200), time.monotonic()
    for seq in range(count):
        given = made(seq.to_bytes(8))
        while True:
            try:
                client.produce(topic, value, headers=given)
                break
            except BufferError:
                client.poll(0.05)
    assert client.flush(120) == 0
    return time.monotonic() - started


def in_subprocess(**task: Any) -> dict[str, Any]:
    """Run `work` in a new process, which starts its own JVM, and return its result."""
    command = [sys.executable, "-m", "benchmarks.integrity", "--work", json.dumps(task)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def work(task: dict[str, Any]) -> None:
    """Alternate both readers and an audit, and print the times as JSON."""
    from producer_core.config import client_config
    from producer_core.kafka.clients import admin
    from producer_core.pipeline import audit
    from producer_core.pipeline.integrity import topic_bounds
    from producer_core.pipeline.integrity.read_topic import fetch_settings, raw_ids, read_ranges
    from producer_core.pipeline.session import open_session

    session = open_session(name="benchmark", master=task["master"], driver_memory=task["memory"])
    config = client_config(task["servers"])
    client = admin(config.settings)
    ends = topic_bounds.bounds(client, topic_bounds.facts(client, task["orders"]))
    result: dict[str, Any] = {
        "reports": [],
        **{name: [] for name in TIMED},
        "cpu": {name: [] for name in TIMED},
    }
    ranges = {number: (edge.low, edge.stable) for number, edge in ends.items()}
    options = {"kafka.bootstrap.servers": task["servers"], "kafka.isolation.level": "read_committed"}
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

    def timed(name: str, run: Callable[[], Any]) -> Any:
        started, cpu = time.monotonic(), cpu_seconds(jvm)
        found = run()
        result[name].append(time.monotonic() - started)
        result["cpu"][name].append(cpu_seconds(jvm) - cpu)
        return found

    result["records"] = sum(edge.stable - edge.low for edge in ends.values())
    for _ in range(task["rounds"] + 1):
        for reader, older in READERS.items():
            timed(reader, partial(plain, session, task, older, fetch_settings(len(ends))))
        if task["telemetry"] is None:
            continue
        timed("ids", lambda: raw_ids(read_ranges(session, task["orders"], ranges, options)).toArrow())
        report = timed(
            "audits",
            lambda: audit(
                session, task["orders"], bootstrap_servers=config, ledger_topics=[task["telemetry"]]
            ),
        )
        result["again"] = report.read_again
        result["reports"].append({kind: report.ids(kind) for kind in KINDS} | {"pending": report.pending})
    session.stop()
    print(json.dumps(result))


def cpu_seconds(jvm: int) -> float:
    """Return the CPU seconds of this process and of the JVM."""
    fields = Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plain(session: Any, task: dict[str, Any], older: str, large: dict[str, str]) -> None:
    """Read the topic with its headers in Spark, with the fetch settings of an audit."""
    session.conf.set("spark.sql.sources.useV1SourceList", older)
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", task["servers"])
    reader = reader.option("subscribe", task["orders"]).option("includeHeaders", "true").options(**large)
    reader.option("kafka.isolation.level", "read_committed").load().write.format("noop").mode(
        "overwrite"
    ).save()


def check(reports: list[dict[str, Any]], truth: dict[str, Any]) -> None:
    """Verify that every audit found exactly the planted faults."""
    for report in reports:
        for kind in KINDS:
            if (wrong := {*report[kind]} ^ {*truth[kind]}) or report["pending"]:
                raise SystemExit(f"{kind}: {len(wrong)} ids differ from the planted faults")


def row(case: Case, master: str, result: dict[str, Any]) -> str:
    audits = result["audits"][1:]
    records = result["records"]
    rates = [f"{records / median(result[name][1:]) / 1e3:,.0f}k/s" for name in (*READERS, "audits")]
    ratios = [
        f"{median(read / audit for read, audit in zip(result[name][1:], audits, strict=True)):.2f}"
        for name in READERS
    ]
    ids = median(read / other for read, other in zip(result["newer"][1:], result["ids"][1:], strict=True))
    cpu = ", ".join(
        f"{median(result['cpu'][name][1:]) / records * 1e6:.1f}" for name in ("newer", "ids", "audits")
    )
    return (
        f"| {records:,} | {case.partitions} | {min(case.faults, case.count // 100):,} | `{master}` | {' | '.join(rates)} "
        f"| {' | '.join(ratios)} | {result['again'] / records:.0%} "
        f"| {records / result['audits'][0] / 1e3:,.0f}k/s | {records / median(result['ids'][1:]) / 1e3:,.0f}k/s "
        f"| {ids:.2f} | {cpu} |"
    )


if __name__ == "__main__":
    main()
