"""Test examples/copy_topic.py on a real Kafka with repeated kills; kcat counts the records."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import uuid
from collections import Counter, defaultdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from examples.copy_topic import COPIED_FROM
from producer_core.kafka.duplicate_filter import Seen, unique
from tests.support import ROOT, eventually

pytestmark = pytest.mark.kafka

EXAMPLE = ROOT / "examples" / "copy_topic.py"
PARTITIONS = 3
RECORDS = 30_000


@pytest.fixture
def topics(kafka):
    """Return a source topic with records, and an empty target topic."""
    name = f"copy-{uuid.uuid4().hex[:8]}"
    source, target = f"{name}-from", f"{name}-to"
    for topic in (source, target):
        kafka.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(
                    source,
                    b"%d" % number,
                    b"k%d" % (number % 7),
                    number % PARTITIONS,
                    headers=[("h", b"%d" % number)],
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return source, target


class Copier:
    """Runs the example in a process."""

    def __init__(self, kafka, topics, tmp_path, *more):
        words = [*topics, "--bootstrap-servers", kafka.bootstrap_servers, "--group", topics[1]]
        self.words = [sys.executable, str(EXAMPLE), *words, "--store", str(tmp_path / "s.duckdb"), *more]
        self.log = tmp_path / "copier.log"

    @contextlib.contextmanager
    def running(self, *more):
        with self.log.open("ab") as log:
            process = subprocess.Popen([*self.words, *more], stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)

    def killed_after(self, count_on_target, records):
        """Run the example and kill it with SIGKILL once `records` more records, or all of them, are on the target."""
        goal = min(count_on_target() + records, RECORDS)
        with self.running() as process:
            eventually(
                lambda: count_on_target() >= goal or process.poll() is not None, timeout=90, every=0.005
            )
            assert process.poll() is None, self.log.read_text()[-2000:]

    def to_the_end(self):
        with self.running("--once") as process:
            assert process.wait(120) == 0, self.log.read_text()[-2000:]


@contextlib.contextmanager
def reader(kafka, **more):
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "look",
        "enable.partition.eof": True,
    }
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest", **more}
    )
    with contextlib.closing(consumer):
        yield consumer


def killed_five_times(kafka, topics, copier):
    seed = int.from_bytes(os.urandom(4))
    print("seed", seed)
    points = random.Random(seed).sample(range(1, RECORDS // 6), 5)
    with reader(kafka) as consumer:

        def count_on_target():
            marks = [
                consumer.get_watermark_offsets(TopicPartition(topics[1], number), timeout=30)
                for number in range(PARTITIONS)
            ]
            return sum(high for _, high in marks)

        for point in points:
            copier.killed_after(count_on_target, point)
    copier.to_the_end()
    return seed


def by_kcat(kcat, kafka, topic, *more):
    """Return how often each value is on the topic. Each must have the partition and the key of its original."""
    words = [kcat, "-C", "-b", kafka.bootstrap_servers, "-t", topic, "-e", "-q", "-f", "%p %k %s\\n", *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert all(
        (int(partition), key) == (int(value) % PARTITIONS, f"k{int(value) % 7}")
        for partition, key, value in rows
    )
    return Counter(int(value) for _, _, value in rows)


def read_uniquely(kafka, topic):
    """Return the numbers by partition, as a consumer with a duplicate filter reads them."""
    found = defaultdict(list)
    with reader(kafka) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

        def messages():
            ends = 0
            while ends < PARTITIONS:
                message = consumer.poll(30)
                assert message is not None
                if message.error() is not None:
                    ends += 1
                else:
                    yield message

        for message in unique(messages(), Seen(header=COPIED_FROM)):
            assert dict(message.headers())["h"] == message.value()
            found[message.partition()].append(int(message.value()))
    return found


IN_ORDER = {number: list(range(number, RECORDS, PARTITIONS)) for number in range(PARTITIONS)}


def test_a_copier_killed_five_times_loses_nothing_and_readers_see_each_record_once(
    kafka, kcat, topics, tmp_path
):
    seed = killed_five_times(kafka, topics, Copier(kafka, topics, tmp_path))

    found = by_kcat(kcat, kafka, topics[1])
    assert set(found) == set(range(RECORDS)), f"seed {seed}"
    assert read_uniquely(kafka, topics[1]) == IN_ORDER, f"seed {seed}"


def test_an_exactly_once_copier_killed_five_times_writes_each_record_once(kafka, kcat, topics, tmp_path):
    copier = Copier(kafka, topics, tmp_path, "--exactly-once", str(tmp_path / "journal"))
    seed = killed_five_times(kafka, topics, copier)

    found = by_kcat(kcat, kafka, topics[1], "-X", "isolation.level=read_committed")
    assert found == Counter(range(RECORDS)), f"seed {seed}"
    assert read_uniquely(kafka, topics[1]) == IN_ORDER, f"seed {seed}"
