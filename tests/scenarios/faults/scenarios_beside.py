"""The scenarios S23 to S29: faults outside Kafka's protocol, of disks, clocks, and elections."""

from __future__ import annotations

import shutil
import signal
import time

from confluent_kafka.admin import AdminClient, NewTopic

from tests.proxy import Hold, Refuse, Rule, Swallow, Tap
from tests.scenarios.faults.ledger import parse, read_topic
from tests.scenarios.faults.scenario import ALO, EO, scenario
from tests.scenarios.faults.scenarios import expect_notice
from tests.support import eventually

OTHER_FIRST = 5_000_000
"""The first number of another producer."""


def send(stage, more=200):
    """Wait until `more` more messages are reported."""
    before = stage.reported()
    stage.until(lambda: stage.reported() >= before + more)


def others(stage, count, **settings):
    """Write to the same topic with a plain producer; its records count as accepted."""
    ledger = stage.folder / f"others-{len(stage.ledgers)}"
    first = OTHER_FIRST + 100_000 * len(stage.ledgers)
    stage.ledgers.insert(0, ledger)
    child = stage.second(
        ledger,
        kind="plain",
        servers=stage.medium.direct,
        first=first,
        count=count,
        rate=0,
        config={},
        **settings,
    )
    eventually(lambda: not child.alive, 60)
    return range(first, first + count)


@scenario("S23", "the journal is restored from a copy", ("kafka3", EO), ("kafka3", ALO), in_tests=False)
def journal_restored(stage):
    """Restore a copy made before the first record, and one made after a clean end."""
    stage.journal, copy = stage.folder / "journal", stage.folder / "copy"
    count = 20_000 if stage.long else 600
    with stage.inject(Rule(Refuse())):
        stage.write(rate=1000, count=count, hold=True)
        stage.until(lambda: stage.accepted() >= count)
        shutil.copytree(stage.journal, copy)
    stage.until(lambda: stage.reported() >= count)
    stage.finish()
    for again in range(2):
        shutil.rmtree(stage.journal)
        shutil.copytree(copy, stage.journal)
        life(stage, count)
        if not again:
            shutil.rmtree(copy)
            shutil.copytree(stage.journal, copy)
            life(stage, count)


def life(stage, count):
    """Run a writer that sends `count` messages and ends."""
    before = stage.accepted()
    stage.write(rate=1000, count=count)
    stage.until(lambda: stage.accepted() >= before + count)
    stage.finish()


COMPACTED = {
    "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}  # fmt: skip


@scenario(
    "S24",
    "killed after the commit; newer values are written, and compaction runs before the restart",
    ("kafka3", EO),
    ("kafka3", ALO),
    topic_config=COMPACTED,
    in_tests=False,
)
def compacted_before_restart(stage):
    """Excuse records that compaction removed; the last value of each key must be the newest."""
    stage.journal, stage.ordered = stage.folder / "journal", False
    child = stage.write(rate=300)

    def kill(_):
        child.process.send_signal(signal.SIGKILL)

    send(stage)
    api = "EndTxn" if stage.guarantee == EO else "Produce"
    with stage.inject(Rule(Tap(kill, answer=True), api=api, containing=b"", times=1)):
        stage.until(lambda: not child.alive)
    stage.kill_writer()
    left = {number for life in parse(stage.ledger) for number in life.accepted}
    stage.excused |= left
    newest = others(stage, 400)
    stage.excused |= set(newest)

    def compacted():
        stage.excused |= set(others(stage, 20))
        return not left & {entry.number for entry in read_topic(stage.medium.direct, stage.topic)}

    eventually(compacted, 90, every=0.5)
    stage.drain()
    last = {entry.key: entry.number for entry in read_topic(stage.medium.direct, stage.topic)}
    stage.notes["held back"] = sum(kind == "dead_letter" for kind, _ in stage.notices())
    if old := sorted(set(last.values()) & left):
        stage.problems.append(f"{len(old)} keys end with an old value: {old[:8]}")


def written(file):
    """Return the content without the preallocated space."""
    return file.read_bytes().rstrip(b"\0")


def remove(file):
    file.unlink()


def flip(file):
    data = bytearray(written(file))
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def cut(file):
    data = written(file)
    file.write_bytes(data[: len(data) // 3])


@scenario("S25", "the settle log has a flipped bit, is truncated, is deleted", ("kafka3", EO), in_tests=False)
def settle_log_damaged(stage):
    stage.journal = stage.folder / "journal"
    for damage in (flip, cut, remove):
        stage.write(rate=500)
        send(stage, 300)
        stage.kill_writer()
        damage(stage.journal / "settled")
        before = len(stage.notices())
        life(stage, 1)
        words = {kind for kind, _ in stage.notices()[before:]}
        if not words & {"journal_damaged", "journal_torn"}:
            stage.problems.append(f"no notice of {damage.__name__}: {sorted(words)}")
    stage.drain()


@scenario(
    "S26",
    "the clock was an hour ahead, and other producers wrote before the restart",
    ("kafka3", ALO),
    ("kafka3", EO),
    in_tests=False,
)
def clock_ahead(stage):
    stage.journal = stage.folder / "journal"
    with stage.inject(Rule(Swallow(30), api=("Produce", "EndTxn"), containing=stage.topic.encode())):
        stage.write(rate=500, ahead=3600)
        stage.until(lambda: stage.accepted() > 500)
        stage.pause(1)
        stage.kill_writer()
    others(stage, 300)
    stage.drain()


@scenario(
    "S27",
    "one of three brokers hangs while a producer starts",
    ("kafka3", EO),
    ("kafka3", ALO),
    in_tests=False,
)
def starts_with_a_hung_broker(stage):
    cluster = stage.medium.cluster
    for node in cluster.nodes:
        cluster.pause(node.number)
        stage.broker_faults += 1
        try:
            stage.write(rate=300)
            send(stage)
        finally:
            cluster.resume(node.number)
        stage.finish()
        stage.medium.restore()


@scenario("S28", "a killed predecessor's InitProducerId arrives late", ("kafka3", EO))
def late_init_producer_id(stage):
    """The only live producer initialises its ids again, and no send is rejected."""
    stage.journal = stage.folder / "journal"
    late = 6.0
    for _ in range(5 if stage.long else 1):
        with stage.inject(Rule(Hold(late), api="InitProducerId", times=2)):
            stage.write(rate=100)
            held = time.monotonic()
            stage.until(lambda: stage.counts().get("held requests delivered", 0) or stage.faults >= 2, 20)
            stage.kill_writer()
        stage.write(rate=300)
        send(stage, 100)
        stage.pause(max(0.0, held + late + 1 - time.monotonic()))
        send(stage, 600)
        stage.finish()
    if not stage.counts().get("held requests delivered"):
        stage.problems.append("no request arrived late")
    words = {kind for kind, _ in stage.notices()}
    stage.notes["notices"] = sorted(words)
    if refused := {"fenced", "send_refused"} & words:
        stage.problems.append(f"the only live producer was stopped: {sorted(refused)}")


@scenario(
    "S29",
    "an unclean election loses acknowledged records, and other producers write beyond their offsets first",
    ("kafka3", ALO),
    ("kafka3", EO),
    in_tests=False,
)
def overtaken_election(stage):
    cluster = stage.medium.cluster
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    stage.topic, stage.ordered = f"{stage.topic}-unclean", False
    one = NewTopic(stage.topic, 1, replica_assignment=[[1, 2]], config=config)
    next(iter(admin.create_topics([one]).values())).result(20)
    stage.write(rate=100, retry={"max_retries": 5}, config={"message.timeout.ms": 60_000})
    send(stage, 100)
    cluster.kill(2)
    send(stage, 100)  # acknowledged by node 1 only
    stage.child.signal(signal.SIGSTOP)
    cluster.kill(1)
    cluster.start_node(2, wait=False)
    stage.broker_faults += 2
    eventually(lambda: stage.medium.leader(stage.topic) == 2, 90, every=0.3)
    others(stage, 1000)
    stage.child.signal(signal.SIGCONT)
    expect_notice(stage, "acknowledged_lost")
    stage.finish()
    stage.unclean = "acknowledged_lost" in {kind for kind, _ in stage.notices()}
