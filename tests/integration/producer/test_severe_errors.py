"""`on_severe_errors="stop"` on a real Kafka: the producer closes itself, and every accepted message is accounted for."""

from __future__ import annotations

import contextlib
import uuid

from confluent_kafka import KafkaException, Producer

from producer_core import ProducerClosed, ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.errors import NotAccepted
from tests.support import eventually


def test_a_fenced_producer_closes_itself_and_keeps_the_rest_in_its_journal(kafka, tmp_path):
    topic, name = f"severe-{uuid.uuid4().hex[:8]}", f"severe-{uuid.uuid4().hex}"
    kafka.create_topic(topic, partitions=1)
    options = {
        "store": None, "delivery": "exactly_once", "transactional_id": name, "shards": 1,
        "journal_dir": tmp_path / "journal", "on_severe_errors": "stop",
    }  # fmt: skip
    producer = ReliableKafkaProducer(kafka.bootstrap_servers, **options)
    producer.send_message(topic, 0)
    producer.flush(60)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}-0"}
    accepted = 1

    def is_closed():
        """Take the transactional id again, as a running second producer does: the first takes it back three times."""
        nonlocal accepted
        try:
            producer.send_message(topic, accepted)
        except ProducerClosed as error:
            return "closed itself after a severe error" in str(error)
        except NotAccepted:
            return False
        accepted += 1
        with contextlib.suppress(KafkaException):  # the first has taken it back
            Producer(settings).init_transactions(10)
        return False

    eventually(is_closed)
    report = producer.close()
    assert report.acknowledged + report.journaled == accepted and not report.lost

    with ReliableKafkaProducer(
        kafka.bootstrap_servers, **{**options, "on_severe_errors": "continue"}
    ) as next_one:
        next_one.flush(60)
        assert next_one.close().journaled == 0


def test_a_refused_authorization_closes_the_producer():
    with embedded.start(topics={"orders": 1}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, store=None, on_severe_errors="stop")
        producer.send_message("orders", 1)
        producer.flush(30)
        broker.reject("orders", "CLUSTER_AUTHORIZATION_FAILED")
        producer.send_message("orders", 2)

        eventually(lambda: producer.closed)
        report = producer.close()

    assert (report.acknowledged, report.dead, report.lost) == (1, 1, 0)
