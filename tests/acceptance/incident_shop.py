"""A shop that sends to a real Kafka, and the failures that the operator finds there. Each has a cause that can be fixed."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import time
import uuid

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from producer_core import ReliableKafkaProducer
from producer_core.alerts import AlertLog
from producer_core.config import RetryConfig
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.store import Store
from tests.fixtures.damaged_log import keep_batches
from tests.support import eventually

LIMIT = 4_000
"""Bytes of a record batch that a limited topic accepts. An order has 1 KB, its receipt 8 KB."""
RAISED = 100 * LIMIT
_RECEIPT = 6_000
_TIMEOUT_S = 60
_SETTINGS = {
    "delivery.timeout.ms": 6_000,
    "request.timeout.ms": 4_000,
    "socket.timeout.ms": 4_000,
    "linger.ms": 0,
}


class IncidentShop:
    """A producer with its store in `folder`. Orders are numbered, so that a reader of a topic can name each of them."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder, self.path = cluster, folder, folder / "store.duckdb"
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self._orders = ECommerceDataGenerator(seed=7)
        self._receipts = random.Random(7)
        self.producer = ReliableKafkaProducer(
            cluster.bootstrap_servers, _SETTINGS, RetryConfig(max_retries=0),
            store=self.path, ledger=True, application="shop", application_version="1.4.0",
        )  # fmt: skip
        self.store = Store.open(self.path)
        self.dead_letters = DeadLetters(self.store)

    def topic(self, name, **config):
        """Create a topic with this start of its name and return the name."""
        topic = f"{name}-{uuid.uuid4().hex[:4]}"
        self.cluster.create_topic(topic, 1, config)
        return topic

    def limited_topic(self, name):
        """Create a topic that accepts orders, but not their receipts."""
        return self.topic(name, **{"max.message.bytes": str(LIMIT)})

    def raise_limit(self, topic):
        """Let the topic accept receipts, as an administrator does."""
        entry = ConfigEntry("max.message.bytes", str(RAISED), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for answer in self._admin.incremental_alter_configs([resource]).values():
            answer.result(_TIMEOUT_S)
        eventually(lambda: self._limit_of(topic) == str(RAISED))  # brokers apply it after the answer

    def _limit_of(self, topic):
        (answer,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return answer.result(_TIMEOUT_S)["max.message.bytes"].value

    def send(self, topic, numbers, *, receipt=False):
        """Send orders without waiting for them. Receipts are random, so that they stay large when compressed."""
        for number in numbers:
            order = {"order": number, **self._orders.transaction()}
            if receipt:
                order["receipt"] = base64.b64encode(self._receipts.randbytes(_RECEIPT)).decode()
            self.producer.send_message(topic, order, key=f"order-{number}")

    def settle(self):
        self.producer.flush(_TIMEOUT_S)

    def fail(self, topic, numbers):
        """Send orders with receipts to a limited topic, and wait until they are dead letters."""
        self.settle()  # a batch is rejected as a whole
        before = self.pending(topic)
        self.send(topic, numbers, receipt=True)
        eventually(lambda: self.pending(topic) == before + len(numbers))

    def hang(self, topic, numbers):
        """Send orders one by one while the broker does not respond, and wait until they are dead letters."""
        before, prompt = self.pending(topic), self.topic("prompt")
        self.cluster.pause(1)
        try:
            for number in numbers:
                self.send(topic, [number])
            eventually(lambda: self.pending(topic) == before + len(numbers), timeout=3 * _TIMEOUT_S)
        finally:
            self.cluster.resume(1)
            self.cluster.wait_ready(_TIMEOUT_S)
        self._wait_until_prompt(prompt)

    def _wait_until_prompt(self, topic):
        """Wait until the broker acknowledges an order within a second.

        Right after a pause it may respond so late that a request is repeated, and what it rejects then is in doubt.
        """

        def is_prompt():
            sent_at, reports = time.monotonic(), []
            self.producer.send_message(topic, {"order": 0}, on_delivery=reports.append)
            self.settle()
            return reports[0].error is None and time.monotonic() - sent_at < 1

        eventually(is_prompt, timeout=3 * _TIMEOUT_S)

    def lose(self, topic):
        """Send 8 orders, lose the last 5 from the broker's disk as a power failure does, and wait for the alert."""
        for number in range(8):  # one batch each
            self.send(topic, [number])
            self.settle()
        self.cluster.stop_node(1)
        try:
            keep_batches(self.cluster.nodes[0].data / f"{topic}-0", 3)
        finally:
            self.cluster.start_node(1)
        self.send(topic, [8])
        alerts = AlertLog(self.store)
        eventually(
            lambda: any(
                (one.rule, one.subject) == ("acknowledged_lost", f"{topic}/0")
                for one in alerts.firing().values()
            ),
            timeout=2 * _TIMEOUT_S,
        )

    def pending(self, topic):
        return self.dead_letters.count(DeadLetterFilter(topic=topic))

    def acts(self, action):
        """Return the rows of the audit log with this action, the oldest first."""
        return self.store.rows("audit_latest", limit=200, action=action)[::-1]

    def close(self):
        self.producer.close(10)
        self.store.close()


@contextlib.contextmanager
def incident_shop(cluster, folder):
    shop = IncidentShop(cluster, folder)
    try:
        yield shop
    finally:
        shop.close()


def orders_on(cluster, topic):
    """Return the orders on partition 0 of a topic, in order, as a consumer without producer_core reads them."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": f"reader-{uuid.uuid4().hex}",
        "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False,
    }  # fmt: skip
    reader, orders = Consumer(settings), []
    reader.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = reader.poll(_TIMEOUT_S)
            assert message is not None, f"{topic} could not be read"
            if message.error() is None:
                orders.append(json.loads(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return orders
            else:
                raise AssertionError(message.error().str())
    finally:
        reader.close()


def numbers(orders):
    return [order["order"] for order in orders]
