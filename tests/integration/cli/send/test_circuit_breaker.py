"""`send --circuit-breaker`: an outage stops the reading, and the send goes on when the brokers are back."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core.brokers import embedded
from tests.support import eventually

ROWS = 10_000
NOTE = "Reading continues when the brokers respond."


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 1}) as running:
        running.set_latency(0.2)
        yield running


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(f'{{"order": {number}}}\n' for number in range(ROWS)))
    return path


def on_topic(broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "count"})
    try:
        return consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=10, cached=False)[1]
    finally:
        consumer.close()


@pytest.mark.parametrize("dedup", [(), ("--dedup",)], ids=["resumable", "not resumable"])
def test_a_send_waits_for_the_brokers_and_delivers_every_row(broker, lines, tmp_path, dedup):
    """A queue of 200 messages at 0.2 s each keeps the send busy until the outage."""
    with subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "send", "orders", lines, "-b", broker.bootstrap_servers,
         "--store", tmp_path / "store.duckdb", "--circuit-breaker", "--json",
         "-X", "queue.buffering.max.messages=200", "-X", "delivery.timeout.ms=600000", *dedup],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        eventually(lambda: on_topic(broker) > 100)
        broker.down()
        notes = []
        while not notes or NOTE not in notes[-1]:
            notes.append(process.stderr.readline())
            assert notes[-1], notes
        broker.set_latency(0.0)
        broker.up()
        out, err = process.communicate(timeout=120)

    assert process.returncode == 0, err
    summary = json.loads(out)
    assert (summary["acknowledged"], summary["dead"]) == (ROWS, 0)
    assert "The circuit of the cluster is open: " in notes[-1]
