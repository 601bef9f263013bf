"""Test replays on librdkafka's mock brokers by real processes that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core import replay
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter
from producer_core.messages import id_text, record_id
from producer_core.store import Store
from tests.fixtures.replays import add_dead_letters
from tests.support import ROOT, eventually

LEASE = 1.0


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 2}) as running:
        yield running


@contextlib.contextmanager
def child(store: Store, broker: embedded.EmbeddedBroker, *, die_after: int = 0) -> Iterator[subprocess.Popen]:
    """Start a runner in a separate process, and stop it at the end of the block."""
    words = [str(store.path), broker.bootstrap_servers, broker.cluster_id, str(LEASE), str(die_after)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.replay", *words], cwd=ROOT, stdin=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()


def planned(store, broker):
    """Plan an at-least-once replay that resends records of a dead owner if the probe does not find them."""
    return replay.plan(
        store, DeadLetterFilter(), who="ann", origin="python", can_run=broker.cluster_id, inconclusive="send"
    )


def orders_on(broker):
    """Return the records that an ordinary consumer reads from the topic."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "count",
        "enable.partition.eof": True,
    }
    reader, found, ends = Consumer(settings), [], 0
    reader.assign([TopicPartition("orders", number, 0) for number in range(2)])
    while ends < 2:
        message = reader.poll(60)
        assert message is not None
        if message.error() is not None:
            ends += 1
        else:
            found.append(message)
    reader.close()
    return found


def on_topic(broker) -> Counter:
    """Return how often an ordinary consumer reads each id."""
    return Counter(id_text(record_id(message.headers())) for message in orders_on(broker))


def test_a_record_acknowledged_before_a_kill_is_found_and_not_sent_twice(store, broker):
    ids = add_dead_letters(store, 120, cluster_id=broker.cluster_id)
    operation = planned(store, broker)

    with child(store, broker, die_after=70) as first:
        assert first.wait(60) == -signal.SIGKILL
    left = replay.get(store, operation.operation_id)
    assert not left.ended
    with child(store, broker):
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=120)

    done = replay.get(store, operation.operation_id)
    assert on_topic(broker) == Counter(ids)
    assert done.landed > 0
    assert (done.acknowledged + done.landed, done.failed_again, done.skipped) == (120, 0, 0)


def test_three_concurrent_runners_send_each_record_once_when_two_owners_are_killed(store, broker):
    ids = add_dead_letters(store, 400, cluster_id=broker.cluster_id)
    operation = planned(store, broker)

    with child(store, broker), child(store, broker), child(store, broker):
        for threshold in (50, 200):
            eventually(lambda: settled(store, operation) > threshold, timeout=60)
            kill_owner(store, operation)
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=120)

    assert on_topic(broker) == Counter(ids)
    assert settled(store, operation) == 400


def test_a_store_locked_past_the_lease_causes_no_loss_and_no_duplicates(store, broker):
    ids = add_dead_letters(store, 300, cluster_id=broker.cluster_id)
    operation = planned(store, broker)

    with child(store, broker):
        eventually(lambda: settled(store, operation) > 50, timeout=60)
        locked = Store.open(store.path)
        with locked.borrow(write=True):
            until = time.monotonic() + 2 * LEASE
            eventually(lambda: time.monotonic() > until)
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=120)

    assert on_topic(broker) == Counter(ids)
    assert replay.get(store, operation.operation_id).acknowledged == 300


def settled(store, operation):
    now = replay.get(store, operation.operation_id)
    return now.acknowledged + now.landed


def kill_owner(store, operation):
    """Kill the owner, whose name is `test:<pid>/…`, and wait until it no longer owns the operation."""
    owner = eventually(lambda: replay.get(store, operation.operation_id).owner)
    os.kill(int(owner.partition(":")[2].partition("/")[0]), signal.SIGKILL)
    eventually(lambda: replay.get(store, operation.operation_id).owner != owner, timeout=60)
