"""A replay in transactions and the messages of its producer share the rate limit, as Apache Kafka's timestamps show."""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections import Counter

import pytest

from producer_core import ReliableKafkaProducer, replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures.replays import dead_letter
from tests.support import eventually

pytestmark = pytest.mark.kafka

RATE, BURST_S = 100, 0.5
COUNT, SENT = 400, 200


@pytest.fixture
def topic(kafka):
    name = f"limited-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    return name


def records_of(kafka, topic):
    """Return the time of arrival in seconds and the value of each record, as kcat reads them with read_committed."""
    read = subprocess.run(
        ["kcat", "-C", "-q", "-e", "-b", kafka.bootstrap_servers, "-t", topic, "-f", "%T %s\n", "-o", "beginning",
         "-X", "isolation.level=read_committed"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    lines = [line.split() for line in read.stdout.splitlines()]
    return [(int(at) / 1000, value) for at, value in lines]


def test_a_replay_and_its_producers_messages_stay_within_the_limit_together(kafka, topic, store):
    dead_letters = [
        dead_letter(number, topic=topic, cluster_id=kafka.cluster_id, value=b"old-%d" % number)
        for number in range(COUNT)
    ]
    DeadLetters(store).add(dead_letters)
    settings = {
        "max_messages_per_second": RATE, "rate_limit_burst_ms": BURST_S * 1000, "max_block_ms": 60_000,
    }  # fmt: skip
    with ReliableKafkaProducer(kafka.bootstrap_servers, settings, store=store) as producer:
        operation = replay.plan(
            store, DeadLetterFilter(topic=topic), who="ann", origin="python", can_run=kafka.cluster_id
        )
        sending = threading.Thread(target=send, args=(producer, topic))
        sending.start()
        done = eventually(lambda: ended(store, operation), timeout=120)
        sending.join(120)
        producer.flush(30)

    records = records_of(kafka, topic)
    expected = [one.value.decode() for one in dead_letters] + [f"new-{number}" for number in range(SENT)]
    assert Counter(value for _, value in records) == Counter(expected)
    assert (done.delivery, done.acknowledged) == ("exactly_once", COUNT)
    times = sorted(at for at, _ in records)
    # The limiter and the pace of the replay accumulate a burst each, and a message may wait in the client.
    assert times[-1] - times[0] >= (COUNT + SENT) / RATE - BURST_S - 1.5


def send(producer, topic):
    for number in range(SENT):
        producer.send_message(topic, b"new-%d" % number)


def ended(store, operation):
    now = replay.get(store, operation.operation_id)
    return now if now.ended else None
