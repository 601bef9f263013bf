"""Fatal errors: the reports of the failed client are collected, a new client replaces it, and each message is settled once."""

from __future__ import annotations

import ctypes
import threading
import uuid
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core._internal.librdkafka import library
from producer_core.brokers import embedded
from producer_core.delivery import transport
from producer_core.events import Hook
from producer_core.messages import id_text, record_id
from tests.support import eventually

RETRY = RetryConfig(max_retries=8, initial_delay_ms=20, max_delay_ms=200, jitter=False)
ONE_BY_ONE = {
    "linger.ms": 0,
    "batch.num.messages": 1,  # one request for each message: five in flight, the rest queued
    "statistics.interval.ms": 100,  # a failed client is replaced after its next statistics
}


def live(producer) -> Any:
    """Return the current client of the producer, and its state."""
    return producer._engine.transport._live


class Events(Hook):
    def __init__(self):
        self.notices, self.codes, self.remarks = [], Counter(), Counter()

    def notice(self, notice):
        self.notices.append(notice)

    def attempt_failed(self, event):
        self.codes[event.code] += 1

    def counted(self, topic, what):
        self.remarks[what] += 1

    def fatal(self):
        return [notice for notice in self.notices if notice.kind == "fatal_error"]


class Sending:
    """Runs a producer on one partition, and records the outcome of each message and the content of the topic."""

    def __init__(self, broker, topic, config=None, **options):
        self.broker, self.topic, self.events, self.reports = broker, topic, Events(), []
        self.producer = ReliableKafkaProducer(
            broker.bootstrap_servers, {**ONE_BY_ONE, **(config or {})}, RETRY, store=None, hooks=[self.events],
            health_check_interval=3600, **options,
        )  # fmt: skip
        self.accepted = []
        self.send("warm")
        self.settled()

    def send(self, *names, key=None):
        for name in names:
            self.accepted.append(
                self.producer.send_message(
                    self.topic,
                    name.encode(),
                    key,
                    partition=0,
                    record_id=name,
                    on_delivery=self.reports.append,
                )
            )

    def settled(self, timeout=60):
        self.producer.flush(timeout)
        assert self.producer.pending_count == 0

    def outcomes(self):
        return {report.record_id: "dead" if report.error else "acknowledged" for report in self.reports}

    def clients(self):
        """Return the number of clients so far."""
        return live(self.producer)[1].generation + 1

    def break_client(self, text=b"test"):
        """Call librdkafka's function for tests. The client's handle is the word after the Python object header."""
        producer = live(self.producer)[0]
        handle = ctypes.c_void_p.from_address(id(producer) + 2 * ctypes.sizeof(ctypes.c_void_p)).value
        function = library().rd_kafka_test_fatal_error
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
        assert function(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, text) == 0

    def on_topic(self):
        """Return name and message id of every record."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": "reader",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append((message.value().decode(), id_text(record_id(message.headers()))))
        consumer.close()
        return found


@pytest.fixture(scope="module")
def broker():
    with embedded.start() as running:
        yield running


@pytest.fixture
def sending(broker):
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1)
    made = Sending(broker, topic)
    yield made
    broker.set_latency(0)
    made.producer.close(5)


def names(count, prefix="m"):
    return [f"{prefix}{number}" for number in range(count)]


@pytest.fixture(scope="module")
def queued(broker):
    """Send twelve messages of one key: five requests are in flight, and the first is answered as out of order."""
    broker.create_topic("queued", 1)
    made = Sending(broker, "queued")
    broker.set_latency(0.1, broker.leader("queued"))
    broker.fail_next("queued", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    made.send(*names(12), key="k")
    eventually(made.events.fatal, 30)
    broker.set_latency(0)
    made.settled()
    yield made
    made.producer.close(5)


def test_an_out_of_order_response_settles_every_message_once(queued):
    assert Counter(report.record_id for report in queued.reports) == Counter(["warm", *names(12)])
    records = [name for name, _ in queued.on_topic()]
    assert len(set(records)) == len(records)
    assert {name for name, outcome in queued.outcomes().items() if outcome == "acknowledged"} == set(records)
    assert {name for name, outcome in queued.outcomes().items() if outcome == "dead"} <= {"m0"}


def test_later_messages_in_flight_are_acknowledged_and_queued_ones_are_sent_again(queued):
    attempts = {report.record_id: report.attempts for report in queued.reports}

    assert [attempts[name] for name in names(5)[1:]] == [1, 1, 1, 1]
    assert all(attempts[name] == 2 for name in names(12)[5:])
    assert queued.events.codes["OUT_OF_ORDER_SEQUENCE_NUMBER"] == 1
    assert queued.events.codes["_PURGE_QUEUE"] == 7


def test_the_fatal_error_is_reported_once_with_its_code(queued):
    (notice,) = queued.events.fatal()

    assert notice.severity == "critical"
    assert notice.details["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert "queued [0]" in notice.text


def test_messages_of_a_key_stay_in_order_unless_one_is_given_up(queued):
    order = [name for name, _ in queued.on_topic() if name in names(12)[1:]]

    assert order == names(12)[1:]


def test_the_message_with_the_out_of_order_response_is_not_lost(queued):
    """It is on the topic, or it is a dead letter with its value and without a safe verdict."""
    if queued.outcomes()["m0"] == "dead":
        (dead_letter,) = queued.producer.dlq.dead_letters("queued")
        assert dead_letter.value == b"m0"
        assert dead_letter.verdict not in ("not_sent", "rejected", "found")
    else:
        assert "m0" in {name for name, _ in queued.on_topic()}


def test_the_message_with_the_out_of_order_response_is_sent_again_if_no_record_is_missing(queued):
    assert queued.outcomes()["m0"] == "acknowledged"


def test_new_messages_are_sent_by_the_new_client(sending):
    sending.break_client()
    eventually(sending.events.fatal, 30)
    sending.send(*names(100, "after"))
    sending.settled()

    assert [sending.outcomes()[name] for name in names(100, "after")] == ["acknowledged"] * 100
    assert [name for name, _ in sending.on_topic()] == ["warm", *names(100, "after")]


def test_the_creation_of_a_new_client_is_retried(sending, monkeypatch):
    transport, attempts = sending.producer._engine.transport, []
    new_client = transport._new_client
    errors = iter(
        [
            KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "no more threads")),
            RuntimeError("can't start new thread"),
        ]
    )

    def fail_twice():
        attempts.append(1)
        if error := next(errors, None):
            raise error
        return new_client()

    monkeypatch.setattr(transport, "_new_client", fail_twice)
    sending.break_client()
    eventually(sending.events.fatal, 30)
    sending.send("after")
    sending.settled()

    assert (sending.outcomes()["after"], len(attempts)) == ("acknowledged", 3)


def test_messages_accepted_while_the_client_fails_are_delivered(sending):
    stop, sent = threading.Event(), []

    def keep_sending():
        while not stop.is_set() and len(sent) < 20_000:
            name = f"s{len(sent)}"
            sending.send(name)
            sent.append(name)

    thread = threading.Thread(target=keep_sending)
    thread.start()
    for breaks in range(1, 3):
        done = len(sending.reports)
        eventually(lambda done=done: len(sending.reports) > done + 50, 60)  # the new client has sent messages
        sending.break_client()
        # reported once until a message is acknowledged
        eventually(lambda breaks=breaks: sending.clients() > breaks, 30)
    stop.set()
    thread.join(60)
    sending.settled()

    assert Counter(report.record_id for report in sending.reports) == Counter(["warm", *sent])
    assert set(sending.outcomes().values()) == {"acknowledged"}
    records = {name for name, _ in sending.on_topic()}
    assert set(sent) - records == set()


def test_duplicates_caused_by_the_failure_have_the_same_id(sending):
    sending.broker.set_latency(0.2, sending.broker.leader(sending.topic))
    sending.send(*names(20))
    sending.break_client()
    eventually(sending.events.fatal, 30)
    sending.broker.set_latency(0)
    sending.settled()

    records = sending.on_topic()
    assert {message_id for _, message_id in records} == set(sending.accepted)
    assert len({name for name, _ in records}) == len({message_id for _, message_id in records}) == 21


def test_the_producer_recovers_from_a_fatal_error_while_the_broker_is_silent(sending):
    leader = sending.broker.leader(sending.topic)
    sending.broker.set_latency(20, leader)
    sending.send(*names(10))
    sending.break_client()
    eventually(sending.events.fatal, 30)  # within the time for collecting reports, not after 20 s
    sending.broker.set_latency(0, leader)
    sending.send("after")
    sending.settled(90)

    assert Counter(report.record_id for report in sending.reports) == Counter(["warm", *names(10), "after"])
    assert sending.outcomes()["after"] == "acknowledged"


def test_close_right_after_a_fatal_error_settles_every_message(sending):
    sending.broker.set_latency(0.02, sending.broker.leader(sending.topic))
    sending.send(*names(20))
    sending.break_client()
    report = sending.producer.close(30)

    assert report.acknowledged + report.dead == 21
    assert report.lost == 0
    assert Counter(item.record_id for item in sending.reports) == Counter(["warm", *names(20)])


def test_the_producer_recovers_from_repeated_fatal_errors(sending):
    sending.broker.reject(sending.topic, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    sending.send(*names(5))
    eventually(sending.events.fatal, 30)
    sending.broker.accept(sending.topic)
    sending.settled(90)
    sending.send("after")
    sending.settled()

    assert sending.outcomes()["after"] == "acknowledged"
    assert Counter(report.record_id for report in sending.reports) == Counter(["warm", *names(5), "after"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            KafkaException(KafkaError(KafkaError._AUTHENTICATION, "no token was obtained")),
            "no token was obtained",
        ),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
    ids=["Kafka's", "Python's"],
)
def test_a_client_that_cannot_be_created_is_a_lost_connection_with_its_reason(
    sending, monkeypatch, error, reason
):
    """Regression: health stayed connected, and only the log named the reason."""
    failures, create = iter([error] * 3), transport.new_client

    def fail_first(*arguments):
        if (failure := next(failures, None)) is not None:
            raise failure
        return create(*arguments)

    monkeypatch.setattr(transport, "new_client", fail_first)
    sending.break_client()
    eventually(lambda: sending.producer.connection.unreachable)
    assert reason in sending.producer.connection.unreachable
    sending.send(*names(3))
    sending.settled()
    assert sending.outcomes() == dict.fromkeys(["warm", *names(3)], "acknowledged")
    eventually(lambda: sending.producer.connection.connected)
    kinds = [notice.kind for notice in sending.events.notices]
    assert kinds.count("connection_lost") == 1
    assert kinds[-1] == "connected" or "connected" in kinds[kinds.index("connection_lost") :]
