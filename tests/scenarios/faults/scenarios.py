"""The scenarios S1 to S22 of the field notes, the two for comparison (C1, C2), and the check of the verdicts (V)."""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
import time
from pathlib import Path

from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.proxy import (
    BlackHole,
    Delay,
    Hold,
    Partition,
    Refuse,
    Reset,
    Rewrite,
    Rule,
    Slow,
    Swallow,
    Tap,
)
from tests.scenarios.faults.scenario import ALO, EO, scenario
from tests.support import eventually


def stream(stage, *rules, count=None, rate=None, timeout=None, **settings):
    """Send a stream of messages while these rules are in force."""
    count = count or (100_000 if stage.long else 1_000)
    rate = rate or (2_000 if stage.long else 300)
    with stage.inject(*rules):
        stage.write(count=count, rate=rate, **settings)
        stage.until(lambda: stage.accepted() >= count, timeout or 120 + 5 * count / rate)
    stage.finish(300 if stage.long else 120)


@scenario("S1", "every error code of a broker, once and for a while", ("embedded", ALO))
def every_error_code(stage):
    from producer_core.kafka.classify import failure_of

    codes = sorted(code for code in range(1, 120) if failure_of(code).kind != "local")
    chosen = codes if stage.long else stage.chance.sample(codes, 12)
    stage.notes["codes"] = len(chosen)
    broker = stage.medium.broker
    stage.write(rate=300, config={"message.timeout.ms": 3000}, retry={"max_retries": 1})
    stage.until(lambda: stage.reported() > 20)
    for code in chosen:
        before = stage.reported()
        reject_next(stage, code, 1)
        stage.until(lambda before=before: stage.reported() > before + 10)
        broker.reject(stage.topic, code)
        stage.pause(0.3)
        broker.accept(stage.topic)
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 10)
        if code == KafkaError.DUPLICATE_SEQUENCE_NUMBER:  # false, and detected only by the loss
            expect_notice(stage, "acknowledged_lost")
    stage.finish()


def expect_notice(stage, kind):
    """Expect a notice of this kind, with a wait that is long enough for a slow machine."""
    with contextlib.suppress(AssertionError):
        stage.until(lambda: kind in {each for each, _ in stage.notices()}, 60)
    if kind not in {each for each, _ in stage.notices()}:
        stage.problems.append(f"no notice {kind}")


def reject_next(stage, code, times):
    """Reject the next requests of the topic. The order is then not judged.

    The embedded broker does not check sequence numbers: it appends the requests that are in flight behind a rejected one,
    which a real broker rejects too. If the client reports them before the rejection, no order break is counted.
    """
    stage.ordered = False
    stage.medium.broker.fail_next(stage.topic, code, times)


@scenario("S2", "a fatal error with requests in flight: the producer recovers within 30 s", ("embedded", ALO))
def fatal_errors(stage):
    stage.write(rate=1000, config={"linger.ms": 0}, retry={"max_retries": 5})
    for _ in range(30 if stage.long else 3):
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 100)
        reject_next(stage, "OUT_OF_ORDER_SEQUENCE_NUMBER", stage.chance.randint(1, 5))
        began, before = time.monotonic(), stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 200)
        took = time.monotonic() - began
        stage.notes["slowest"] = max(round(took, 1), stage.notes.get("slowest", 0))
        if took > 30:
            stage.problems.append(f"I7: {took:.1f} s until it worked again")
    stage.finish()


@scenario(
    "S3",
    "the broker loses the producer's state; records are deleted during the run",
    ("embedded", ALO),
    ("kafka3", ALO),
    ("kafka3", EO),
)
def forgotten(stage):
    stage.write(rate=300, retry={"max_retries": 5})
    for _ in range(20 if stage.long else 3):
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 100)
        if stage.medium.broker:
            reject_next(stage, "UNKNOWN_PRODUCER_ID", stage.chance.randint(1, 2))
        else:
            delete_records(stage)
        stage.broker_faults += 1
    stage.finish()


def delete_records(stage):
    """Delete all current records, and note their offsets, so that they do not count as missing."""
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    everything = [TopicPartition(stage.topic, number, -1) for number in range(4)]
    for where, future in admin.delete_records(everything).items():
        stage.removed[where.partition] = max(
            future.result(20).low_watermark, stage.removed.get(where.partition, 0)
        )


@scenario(
    "S4", "acknowledgements are lost, then the connection", ("kafka3", EO), ("kafka3", ALO), ("embedded", ALO)
)
def lost_answers(stage):
    chance = 0.02 if stage.long else 0.06
    stream(
        stage,
        Rule(Swallow(0.3), api="Produce", chance=chance),
        Rule(Swallow(0.2), api="EndTxn", chance=chance),
    )


@scenario(
    "S5", "requests are lost until their messages expire", ("embedded", ALO), ("kafka3", ALO), ("kafka3", EO)
)
def lost_requests(stage):
    config = {"message.timeout.ms": 4000, "request.timeout.ms": 1500, "socket.timeout.ms": 2000}
    stream(
        stage,
        Rule(BlackHole(), api="Produce", chance=0.004 if stage.long else 0.03),
        Rule(BlackHole(2.5), api=("AddPartitionsToTxn", "EndTxn"), chance=0.01),
        config=config,
    )


def bad_topic(stage):
    """Create a compacted topic: each record without a key is rejected, and each rejection raises the producer's epoch."""
    name = f"{stage.topic}-bad"
    stage.medium.create_topic(name, 1, {"cleanup.policy": "compact"})
    return name


def epoch_trap(stage, kind, **settings):
    """Lose answers for one topic while another topic rejects records permanently (kafka-real-notes 1.1)."""
    swallow = [
        Rule(Swallow(1.0), api="Produce", broker=stage.medium.leader(stage.topic, n), chance=0.1)
        for n in range(2)
    ]
    # A rejected record costs a transaction and its recovery.
    every = 20 if stage.guarantee == ALO else 300
    enough, lost = (20_000, 60) if stage.long else (1_000, 8 if stage.guarantee == ALO else 2)
    with stage.inject(*swallow):
        stage.write(rate=400, kind=kind, bad_topic=bad_topic(stage), bad_every=every, **settings)
        stage.until(lambda: stage.accepted() >= enough and stage.faults >= lost, 300)
    stage.finish()


@scenario(
    "S6",
    "a response is lost while another topic rejects records permanently",
    ("kafka3", EO),
    ("kafka3", ALO),
)
def rejected_elsewhere(stage):
    epoch_trap(stage, "reliable")


@scenario(
    "C1",
    "the same as S6 with a plain idempotent producer: must show duplicates",
    ("kafka3", ALO),
    expected="violation",
)
def plain_rejected_elsewhere(stage):
    stage.ordered = False
    epoch_trap(stage, "plain")


@scenario("S7", "the leader is killed", ("kafka3", EO), ("kafka3", ALO))
def leader_killed(stage):
    cluster = stage.medium.cluster
    stage.write(rate=1000 if stage.long else 300)
    for _ in range(5 if stage.long else 1):
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 300)
        leader = stage.medium.leader(stage.topic)
        cluster.kill(leader)
        stage.broker_faults += 1
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 300)
        cluster.start_node(leader, wait=False)
        if stage.long:
            stage.medium.restore()
            reach = stage.accepted() + 20_000
            stage.until(lambda reach=reach: stage.accepted() >= reach)
    stage.finish()


@scenario(
    "S8", "the leader is paused for about its session timeout, and continues", ("kafka3", ALO), ("kafka3", EO)
)
def leader_paused(stage):
    cluster = stage.medium.cluster
    stage.write(rate=1000 if stage.long else 300)
    for seconds in (3, 5, 7, 12, 30, 5, 7, 9) if stage.long else (4,):
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 300)
        leader = stage.medium.leader(stage.topic)
        cluster.pause(leader)
        stage.pause(seconds)
        cluster.resume(leader)
        stage.broker_faults += 1
        if stage.long:
            reach = stage.accepted() + 12_000
            stage.until(lambda reach=reach: stage.accepted() >= reach)
    stage.until(lambda: stage.reported() > 500)
    stage.finish()


@scenario("S9", "every broker is restarted in turn; two are down at once", ("kafka3", EO), ("kafka3", ALO))
def rolling_restart(stage):
    cluster = stage.medium.cluster
    stage.write(rate=1000 if stage.long else 200)
    stage.until(lambda: stage.reported() > 200)
    nodes = [node.number for node in cluster.nodes]
    for number in nodes * 3 if stage.long else nodes[:1]:
        cluster.stop_node(number)
        cluster.start_node(number, wait=False)
        stage.medium.restore()
        stage.broker_faults += 1
    if stage.long:
        for number in nodes[:2]:
            cluster.kill(number)
        stage.broker_faults += 2
        stage.pause(8)
        for number in nodes[:2]:
            cluster.start_node(number, wait=False)
        stage.medium.restore()
        stage.until(lambda: stage.accepted() >= 100_000, 300)
    before = stage.reported()
    stage.until(lambda: stage.reported() > before + 200)
    stage.finish()


@scenario(
    "S10",
    "no broker is reachable and the queue is full: the journal grows, memory does not",
    ("embedded", ALO),
    ("kafka3", EO),
)
def outage(stage):
    stage.journal = stage.folder / "journal"
    child = stage.write(
        rate=2000, config={"queue.buffering.max.messages": 2000, "message.timeout.ms": 600_000}
    )
    stage.until(lambda: stage.reported() > 500)
    before = memory(child)
    kept = 100_000 if stage.long else 8_000
    with stage.inject(Rule(Refuse())):
        stage.until(lambda: stage.accepted() - stage.reported() > kept, 300)
        after = memory(child)
    stage.notes["MiB"] = [before, after]
    if after > before + 150:
        stage.problems.append(f"I8: memory grew from {before} to {after} MiB")
    stage.child.process.stdin.close()
    code = stage.child.process.wait(300)
    if code:
        stage.problems.append(f"the writer ended with {code}: {stage.errors()}")


def memory(child):
    """Return the resident memory of the process in MiB."""
    text = Path(f"/proc/{child.process.pid}/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def network_faults(chance=0.012):
    """The faults of kafka-real-notes section 2."""
    apis = ("Produce", "AddPartitionsToTxn", "EndTxn", "InitProducerId")
    return [
        Rule(Reset(), api=apis, chance=chance / 4),
        Rule(Swallow(0.3), api=apis, chance=chance / 4),
        Rule(BlackHole(0.5), api=apis, chance=chance / 4),
        Rule(Delay(0.05, up_to=1.0), api=apis, chance=chance / 4),
    ]


@scenario(
    "S11",
    "the process is killed at any moment, with network faults",
    ("kafka3", EO),
    ("kafka3", ALO),
    ("embedded", ALO),
)
def process_killed(stage):
    stage.journal = stage.folder / "journal"
    rate = 1000 if stage.long else 300
    with stage.inject(*network_faults()):
        for _ in range(stage.notes.get("kills") or (60 if stage.long else 4)):
            stage.write(rate=rate)
            before = stage.accepted()
            stage.until(lambda before=before: stage.accepted() > before)
            stage.pause(stage.chance.uniform(0.0, 2.0))
            stage.kill_writer()
    stage.drain()


@scenario(
    "S12",
    "the process is killed between EndTxn and its response, and between the response and the journal",
    ("kafka3", EO),
)
def killed_at_the_commit(stage):
    stage.journal = stage.folder / "journal"
    for turn in range(100 if stage.long else 4):
        child = stage.write(rate=500)

        def kill(_, child=child):
            child.process.send_signal(signal.SIGKILL)

        tap = Tap(kill, answer=turn % 2 == 1)
        rule = Rule(
            tap, api="EndTxn", containing=stage.topic.encode(), skip=stage.chance.randint(0, 6), times=1
        )
        with stage.inject(rule):
            stage.until(lambda child=child: not child.alive)
        stage.kills += 1
        stage.kill_writer()
    stage.drain()


def stale_requests(chance=0.06):
    return [
        Rule(Hold(0.8, into_next=True), api="EndTxn", chance=chance),
        Rule(Hold(0.05, up_to=3.0), api="Produce", chance=0.009),
    ]


@scenario(
    "S13",
    "EndTxn and Produce requests arrive during the next transaction, and the process is killed",
    ("kafka3", EO),
    ("kafka3", ALO),
)
def stale_arrivals(stage):
    stage.journal = stage.folder / "journal"
    rate = 500
    chance = 0.06 if stage.long else 0.25
    with stage.inject(*stale_requests(chance), *network_faults()):
        for _ in range(100 if stage.long else 2):
            stage.write(rate=rate)
            before = stage.accepted()
            stage.until(lambda before=before: stage.accepted() > before + rate)
            stage.pause(stage.chance.uniform(0.5, 3.5))
            stage.kill_writer()
    stage.drain()


@scenario(
    "C2",
    "transactions that contain a progress record, with stale EndTxn: must show losses",
    ("kafka3", EO),
    expected="violation",
)
def progress_record(stage):
    """Delay the data's Produce more than the progress record's, so that a stale EndTxn commits in between."""
    stage.ordered = False
    names = f"{stage.topic}-data", f"{stage.topic}-progress"
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    topics = [
        NewTopic(names[0], 1, replica_assignment=[[1, 2, 3]]),
        NewTopic(names[1], 1, replica_assignment=[[2, 3, 1]]),
    ]
    for future in admin.create_topics(topics).values():
        future.result(20)
    stage.topic = names[0]
    count = 4_000 if stage.long else 800
    rules = [
        Rule(Hold(1.0, into_next=True), api="EndTxn", containing=names[0].encode(), chance=0.5),
        Rule(Delay(0.15), api="Produce", broker=1, containing=names[0].encode()),
    ]
    with stage.inject(*rules):
        stage.write(
            kind="progress",
            count=count,
            direct=stage.medium.direct,
            progress_topic=names[1],
            options={},
            config={"message.timeout.ms": 30000, "request.timeout.ms": 5000},
        )
        stage.until(lambda: not stage.child.alive, 180)
    stage.finish()


@scenario("S14", "two processes with one journal, and with one transactional id", ("kafka3", EO))
def two_processes(stage):
    stage.write(rate=300, close_timeout=5)
    first = stage.child
    stage.until(lambda: stage.reported() > 300)
    options = stage.options()
    ledger = stage.folder / "second"
    second = stage.second(ledger, options={**options})  # the same journal: rejected at once
    eventually(lambda: not second.alive, 60)
    words = [kind for kind, _ in stage.notices_in(ledger)]
    if "refused_to_start" not in words:
        stage.problems.append(f"a second process opened the same journal: {words}")
    ledger = stage.folder / "third"
    other = {**options, "journal_dir": str(stage.folder / "other")}
    third = stage.second(ledger, options=other, first=1_000_000, rate=300)
    stage.ledgers.append(ledger)
    eventually(lambda: not (first.alive and third.alive), 120)  # either of them is fenced
    fenced, file = (third, ledger) if first.alive else (first, stage.ledger)
    words = [kind for kind, _ in stage.notices_in(file)]
    if not {"fenced", "send_refused"} & set(words):
        stage.problems.append(f"the process that ended has no notice that it was fenced: {words}")
    stage.notes["fenced"] = file.name
    for child in (first, third):
        if child is not fenced:
            child.end(120)
    last = stage.second(ledger, options=other, first=2_000_000, count=1)  # sends the rest of its journal
    eventually(lambda: not last.alive, 120)
    stage.drain()


@scenario(
    "S15",
    "a process is suspended for longer than its transaction timeout; another producer's transaction stays open",
    ("kafka3", EO),
)
def transaction_timeout(stage):
    config = {"transaction.timeout.ms": 5000, "message.timeout.ms": 4500, "request.timeout.ms": 2000}
    stage.write(rate=300, config=config)
    other_producer = Producer(
        {
            "bootstrap.servers": stage.medium.direct,
            "transactional.id": f"{stage.topic}-other",
            "log_level": 0,
        }
    )
    other_producer.init_transactions(30)
    for turn in range(10 if stage.long else 1):
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 300)
        other_producer.begin_transaction()
        for number in range(4):
            other_producer.produce(stage.topic, f"{-1 - turn * 4 - number} ", "other", partition=number)
        other_producer.flush(20)
        stage.child.signal(signal.SIGSTOP)
        stage.pause(8)
        stage.child.signal(signal.SIGCONT)
        stage.pause(1)
        other_producer.abort_transaction(20)
        stage.broker_faults += 1
    before = stage.reported()
    stage.until(lambda: stage.reported() > before + 300)
    stage.finish()


@scenario(
    "S16",
    "a network partition between client and one broker, one way or both, repeatedly",
    ("kafka3", EO),
    ("kafka3", ALO),
    ("embedded", ALO),
)
def partitioned(stage):
    stage.write(rate=1000 if stage.long else 300)
    stage.until(lambda: stage.reported() > 200)
    for turn in range(20 if stage.long else 2):
        broker = (
            stage.chance.randint(1, 3) if stage.medium.cluster else stage.medium.broker.leader(stage.topic)
        )
        direction = stage.chance.choice(["both", "requests", "answers"])
        rule = Rule(Partition(direction), broker=broker)
        for _ in range(8 if stage.long else 4):  # flapping
            with stage.inject(rule):
                stage.pause(0.2)
            stage.pause(0.2)
        with stage.inject(rule):
            stage.pause(8 if stage.long else 2)
        stage.broker_faults += 9
        before = stage.reported()
        stage.until(lambda before=before: stage.reported() > before + 300)
    if stage.long:
        stage.until(lambda: stage.accepted() >= 100_000, 300)
    stage.finish()


@scenario("S17", "a network with 1 Mbit/s and delays of up to 0.4 s", ("kafka3", EO), ("embedded", ALO))
def slow_network(stage):
    rules = [Rule(Slow(125_000)), Rule(Delay(0.1, up_to=0.4))]
    stream(stage, *rules, count=20_000 if stage.long else 1_000, rate=200)


@scenario("S18", "partitions are added; the topic is deleted and re-created", ("kafka3", ALO))
def topic_changes(stage):
    """Excuse the records of the deleted topic; all messages reported later must arrive."""
    stage.ordered = False  # keys move when partitions are added
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    stage.write(rate=200, retry={"max_retries": 8}, config={"topic.metadata.refresh.interval.ms": 2000})
    stage.until(lambda: stage.reported() > 200)
    next(iter(admin.create_partitions([NewPartitions(stage.topic, 6)]).values())).result(20)
    before = stage.reported()
    stage.until(lambda: stage.reported() > before + 200)
    stage.medium.cluster.delete_topic(stage.topic)
    stage.medium.create_topic(stage.topic, 6)
    from tests.scenarios.faults.ledger import parse

    stage.pause(1)
    lives = parse(stage.ledger)
    stage.excused |= {report.number for life in lives for report in life.reports}
    stage.excused |= {number for life in lives for number in life.accepted}  # in flight
    stage.broker_faults += 2
    before = stage.reported()
    stage.until(lambda: stage.reported() > before + 300)
    stage.finish()


@scenario(
    "S19",
    "the journal's disk is full, its last write is incomplete, one bit is flipped",
    ("embedded", ALO),
    ("kafka3", EO),
)
def bad_disk(stage):
    stage.journal = stage.folder / "journal"
    few = {"queue.buffering.max.messages": 500, "max_block_ms": 300, "message.timeout.ms": 600_000}
    with stage.inject(Rule(Refuse())):
        child = stage.write(rate=1000, size=1000, config=few)
        stage.until(lambda: stage.accepted() > 200)
        _, hard = resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE, (1_000_000, hard))
        stage.until(lambda: stage.watch.look()["x"] > 2)
        stage.notes["refused by a full disk"] = stage.watch.words["x"]
        resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        before = stage.accepted()
        stage.until(lambda: stage.accepted() > before + 200)
        stage.kill_writer()
        segments = sorted(stage.journal.glob("*.journal"), key=lambda file: file.stat().st_size)
        largest = segments[-1]
        data = bytearray(largest.read_bytes())
        stage.notes["segment"] = [largest.name, len(data)]
        data[len(data) // 3] ^= 0x10
        largest.write_bytes(data[:-7] if data.rstrip(b"\0") == data else data)
    stage.write(rate=300, count=300)
    stage.finish()
    stage.notes["notices"] = sorted({kind for kind, _ in stage.notices()})
    if "journal_damaged" not in stage.notes["notices"]:
        stage.problems.append(f"no notice of the flipped bit: {stage.notes['said']}")
    stage.allowed_losses = 2  # the damaged record and the torn one, which were reported


@scenario(
    "S20",
    "an unclean election loses acknowledged records: it must be reported",
    ("kafka3", ALO),
    ("kafka3", EO),
)
def unclean_election(stage):
    cluster, topic = stage.medium.cluster, f"{stage.topic}-unclean"
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    one = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=config)
    next(iter(admin.create_topics([one]).values())).result(20)
    stage.topic, stage.ordered = topic, False
    stage.write(rate=100, retry={"max_retries": 5}, config={"message.timeout.ms": 20_000})
    stage.until(lambda: stage.reported() > 100)
    cluster.kill(2)
    before = stage.reported()
    stage.until(lambda: stage.reported() > before + 100)  # acknowledged by node 1 only
    cluster.kill(1)
    cluster.start_node(2, wait=False)
    stage.broker_faults += 2
    before = stage.reported()
    stage.until(lambda: stage.reported() > before + 200)
    with contextlib.suppress(AssertionError):
        stage.until(lambda: "acknowledged_lost" in {kind for kind, _ in stage.notices()}, 60)
    stage.finish()
    notices = {kind for kind, _ in stage.notices()}
    stage.notes["notices"] = sorted(notices)
    stage.unclean = "acknowledged_lost" in notices


@scenario("S21", "all faults at once", ("kafka3", EO), ("kafka3", ALO))
def soak(stage):
    stage.journal = stage.folder / "journal"
    until = time.monotonic() + (1200 if stage.long else 15)
    cluster = stage.medium.cluster
    with stage.inject(*network_faults(), *stale_requests()):
        while time.monotonic() < until:
            stage.write(rate=1000 if stage.long else 300)
            reached = stage.accepted()
            stage.until(lambda reached=reached: stage.accepted() > reached)
            fault = stage.chance.choice(
                ["pause", "partition", "slow", "none", *(["kill"] if stage.long else [])]
            )
            node = stage.chance.randint(1, 3)
            if fault == "pause":
                cluster.pause(node)
                stage.pause(stage.chance.uniform(1, 12 if stage.long else 3))
                cluster.resume(node)
            elif fault == "kill":
                cluster.kill(node)
                stage.pause(stage.chance.uniform(1, 6))
                cluster.start_node(node, wait=False)
                stage.pause(10)
                stage.medium.restore()
            elif fault == "partition":
                with stage.inject(Rule(Partition("both"), broker=node)):
                    stage.pause(stage.chance.uniform(1, 8 if stage.long else 3))
            elif fault == "slow":
                with stage.inject(Rule(Slow(200_000))):
                    stage.pause(2)
            stage.broker_faults += fault != "none"
            stage.pause(stage.chance.uniform(0.5, 3))
            stage.kill_writer()
    stage.drain()


@scenario(
    "V",
    "records that are safe to resend by their verdict are not in the log",
    ("embedded", ALO),
    ("kafka3", ALO),
    repeats=25,
    topic_config={"max.message.bytes": "4000"},
)
def verdicts(stage):
    """Use short timeouts, no resends, a broker that rejects requests now and then, and one that reports a retriable error
    after it has written the records."""
    stage.ordered = False
    faults = [
        Rule(Swallow(0.1), api="Produce", chance=0.04),
        Rule(Reset(), api="Produce", chance=0.03),
        Rule(BlackHole(), api="Produce", chance=0.02),
        Rule(Delay(0.0, up_to=0.3), api="Produce", chance=0.05),
        Rule(Hold(0.05, up_to=1.5), api="Produce", chance=0.02),
        Rule(Rewrite(KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND), api="Produce", chance=0.2),
    ]
    config = {
        "message.timeout.ms": stage.chance.choice([800, 1500, 2500]),
        "request.timeout.ms": 1000,
        "socket.timeout.ms": 1000,
        "linger.ms": stage.chance.choice([0, 0, 5]),
        "batch.num.messages": stage.chance.choice([1, 3, 20]),
        "enable.idempotence": stage.chance.random() < 0.7,
        "message.max.bytes": 1_000_000,
    }
    stage.once = stage.once and config["enable.idempotence"]
    stopping = threading.Event()
    broker = stage.medium.broker

    def reject_now_and_then():
        codes = [
            "POLICY_VIOLATION",
            "INVALID_RECORD",
            "MSG_SIZE_TOO_LARGE",
            "TOPIC_AUTHORIZATION_FAILED",
            "INVALID_TIMESTAMP",
        ]
        while not stopping.is_set():
            broker.reject(stage.topic, stage.chance.choice(codes))
            stopping.wait(stage.chance.uniform(0.1, 0.5))
            broker.accept(stage.topic)
            stopping.wait(stage.chance.uniform(0.1, 0.5))

    rejecter = threading.Thread(target=reject_now_and_then)
    if broker:
        rejecter.start()
    policy = "dead_letter" if stage.seed % 25 == 0 else "retry"  # waits until no request can still arrive
    count = 2000 if stage.long else 500
    try:
        with stage.inject(*faults):
            stage.write(
                count=count,
                rate=250,
                config=config,
                retry={"max_retries": stage.chance.choice([0, 0, 1])},
                options={"on_ambiguous": policy},
                big_every=0 if broker else 3,
            )
            stage.until(lambda: stage.accepted() >= count)
            stage.until(lambda: stage.reported() >= count, 120)
    finally:
        stopping.set()
        if broker:
            rejecter.join(20)
    stage.finish()


@scenario("S22", "requests arrive long after their messages expired", ("kafka3", ALO))
def late_requests(stage):
    """A message with the verdict absent must never arrive: the verdict requires a later message on its partition."""
    stage.ordered = False  # a message that expired and arrives late comes after later ones
    late, quiet = 14.0, 5.0
    config = {
        "message.timeout.ms": 3000,
        "request.timeout.ms": 1000,
        "socket.timeout.ms": 1500,
        "linger.ms": 0,
    }
    stage.write(
        rate=60, config=config, retry={"max_retries": 0}, options={"on_ambiguous": "dead_letter"}, quiet=quiet
    )
    stage.until(lambda: stage.reported() > 100)
    for _ in range(6 if stage.long else 1):
        with stage.inject(Rule(Hold(late), api="Produce", containing=stage.topic.encode())):
            stage.pause(4.5)
        stage.pause(late + 1)
    stage.finish()
    if not stage.counts().get("held requests delivered"):
        stage.problems.append("no request arrived late")
