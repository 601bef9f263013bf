"""A message is settled once, with one outcome."""

from __future__ import annotations

from confluent_kafka import KafkaError

from producer_core import MessageStatus
from tests.fixtures.enqueueing import quick_producer
from tests.support import eventually


def test_sent_means_acknowledged():
    producer, transport = quick_producer(lambda delivery: "hold")

    message_id = producer.send_message("orders", {"a": 1})
    eventually(lambda: transport.held == 1)
    before = producer.get_stats()["messages_sent"], producer.get_message_status(message_id)
    transport.release()
    producer.flush(5)

    assert before == (0, MessageStatus.PENDING)
    assert producer.get_stats()["messages_sent"] == 1
    assert producer.get_message_status(message_id) is MessageStatus.SENT
    assert producer.get_message_status(message_id.rpartition("-")[0] + "-77") is None
    assert producer.get_message_status("nonsense") is None
    producer.close()


def test_a_failed_message_is_counted_and_becomes_a_dead_letter():
    producer, _ = quick_producer(lambda delivery: KafkaError.POLICY_VIOLATION)

    message_id = producer.send_message("orders", {"a": 1}, key="k")
    producer.flush(5)

    stats = producer.get_stats()
    assert (stats["messages_failed"], stats["messages_dlq"], stats["pending_messages"]) == (1, 1, 0)
    assert producer.get_message_status(message_id) is MessageStatus.DLQ
    (message,) = producer.get_dlq_messages("orders")
    assert (message.id, message.key, message.value, message.status) == (
        message_id,
        "k",
        {"a": 1},
        MessageStatus.DLQ,
    )
    producer.close()
