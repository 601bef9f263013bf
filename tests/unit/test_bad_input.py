"""Invalid input: calls that raise and messages that become dead letters, as the table in docs/reference/errors.md lists them."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import threading
import uuid

import numpy
import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.delivery.transport import ClientRefused
from producer_core.errors import ConfigError, InvalidMessage, ProducerClosed
from producer_core.messages import encode_value
from tests.support import eventually

SENT = [
    ("None is a tombstone", {"value": None}),
    ("bytes pass through", {"value": b"\x00\xff not UTF-8"}),
    ("an empty value", {"value": b""}),
    ("a bare number", {"value": 7}),
    ("a list", {"value": [1, "two", None]}),
    ("numpy numbers", {"value": {"n": numpy.int64(3), "x": numpy.float32(0.5), "a": numpy.array([1, 2])}}),
    ("a Decimal, as its text", {"value": {"price": decimal.Decimal("1.10")}}),
    (
        "dates and UUIDs, as their text",
        {"value": {"at": datetime.datetime(2026, 1, 1), "id": uuid.UUID(int=1)}},
    ),
    ("a str key", {"value": {}, "key": "k"}),
    ("a bytes key, UTF-8 or not", {"value": {}, "key": b"\xff"}),
    ("an int key", {"value": {}, "key": 7}),
    ("a numpy key", {"value": {}, "key": numpy.int64(7)}),
    (
        "headers with null, empty and duplicates",
        {"value": {}, "headers": [("a", None), ("a", b""), ("a", "x")]},
    ),
]

RAISES = [
    ("NaN", {"value": {"x": float("nan")}}, InvalidMessage, "NaN"),
    ("infinity inside a list", {"value": [[float("inf")]]}, InvalidMessage, "NaN"),
    ("a numpy NaN", {"value": {"x": numpy.float64("nan")}}, InvalidMessage, "NaN"),
    ("a Decimal NaN", {"value": {"x": decimal.Decimal("NaN")}}, InvalidMessage, "NaN"),
    ("bytes inside a value", {"value": {"x": b"raw"}}, InvalidMessage, "base64"),
    ("an int beyond 64 bits", {"value": {"x": 2**70}}, InvalidMessage, "64"),
    ("an object of an unknown type", {"value": {"x": [object()]}}, InvalidMessage, r"At value\['x'\]\[0\]"),
    ("a dict key", {"value": {}, "key": {"a": 1}}, InvalidMessage, "str, bytes or int"),
    ("a float key", {"value": {}, "key": 1.5}, InvalidMessage, "str, bytes or int"),
    ("a bool key", {"value": {}, "key": True}, InvalidMessage, "str, bytes or int"),
    (
        "text with an unpaired surrogate, which UTF-8 cannot encode",
        {"value": {"x": "\ud800"}},
        InvalidMessage,
        "UTF-8",
    ),
    ("a str key with an unpaired surrogate", {"value": {}, "key": "\ud800"}, InvalidMessage, "text"),
    ("a header that is a number", {"value": {}, "headers": {"a": 1}}, InvalidMessage, "Header"),
    (
        "a header with an unpaired surrogate",
        {"value": {}, "headers": {"a": "\ud800"}},
        InvalidMessage,
        "text",
    ),
    (
        "a header's name with an unpaired surrogate",
        {"value": {}, "headers": {"\ud800": b"x"}},
        InvalidMessage,
        "text",
    ),
    ("a NUL in a header's name", {"value": {}, "headers": {"a\0b": b"x"}}, InvalidMessage, "NUL"),
    ("the producer's own header", {"value": {}, "headers": {"pc-id": b"x"}}, InvalidMessage, "pc-id"),
    (
        "the producer's own headers",
        {"value": {}, "headers": {"pc-original-timestamp": b"1"}},
        InvalidMessage,
        "timestamp_ms",
    ),
    ("headers that are not pairs", {"value": {}, "headers": 5}, InvalidMessage, "pairs"),
    ("a negative partition", {"value": {}, "partition": -1}, InvalidMessage, "partition"),
    ("a partition beyond 31 bits", {"value": {}, "partition": 2**31}, InvalidMessage, "partition"),
    ("a timestamp beyond 63 bits", {"value": {}, "timestamp_ms": 2**63}, InvalidMessage, "timestamp_ms"),
    ("a timestamp that is a float", {"value": {}, "timestamp_ms": 1.5}, InvalidMessage, "timestamp_ms"),
    (
        "a dedup_key without deduplication",
        {"value": {}, "dedup_key": "x"},
        InvalidMessage,
        "enable_deduplication",
    ),
    ("an empty topic", {"topic": "", "value": {}}, InvalidMessage, "topic name"),
    ("a topic with a space", {"topic": "a b", "value": {}}, InvalidMessage, "topic name"),
    ("a topic of 250 characters", {"topic": "x" * 250, "value": {}}, InvalidMessage, "topic name"),
    ("a topic that is a list", {"topic": ["orders"], "value": {}}, InvalidMessage, "topic name"),
    ("a topic that is not text", {"topic": None, "value": {}}, InvalidMessage, "topic name"),
]

DEAD_LETTERS = [
    ("10 MB, above message.max.bytes", {"value": b"x" * 10_000_000}, "MSG_SIZE_TOO_LARGE"),
    ("a partition the topic does not have", {"value": {}, "partition": 99}, "_UNKNOWN_PARTITION"),
]


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def producer(broker, tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "s.duckdb"
    with ReliableKafkaProducer(broker.bootstrap_servers, store=store, cluster_id="c") as created:
        created.send_message("orders", {"warm": 1})
        created.flush(10)
        yield created


@pytest.mark.parametrize(("case", "arguments"), SENT, ids=[row[0] for row in SENT])
def test_a_valid_message_is_sent(producer, case, arguments):
    reports = []
    producer.send_message(**{"topic": "orders", **arguments}, on_delivery=reports.append)
    producer.flush(10)
    assert [report.error for report in reports] == [None]


@pytest.mark.parametrize(("case", "arguments", "kind", "expected"), RAISES, ids=[row[0] for row in RAISES])
def test_an_invalid_message_raises_and_has_no_side_effect(producer, case, arguments, kind, expected):
    with pytest.raises(kind, match=expected):
        producer.send_message(**{"topic": "orders", **arguments})
    assert producer.pending_count == 0
    assert producer.send_message("orders", {"next": 1}) is not None
    producer.flush(10)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "arguments", "code"), DEAD_LETTERS, ids=[row[0] for row in DEAD_LETTERS])
def test_an_undeliverable_message_becomes_a_dead_letter_with_a_safe_verdict(producer, case, arguments, code):
    message_id = producer.send_message(**{"topic": "orders", **arguments})
    producer.flush(10)
    dead_letter = eventually(lambda: producer.dlq.get(message_id))
    assert (dead_letter.code, dead_letter.verdict) == (code, "not_sent")
    assert dead_letter.value == arguments["value"] or dead_letter.value == b"{}"


@pytest.mark.slow
def test_a_closed_producer_raises(broker, tmp_path):
    producer = ReliableKafkaProducer(broker.bootstrap_servers, store=tmp_path / "s.duckdb")
    producer.close()
    with pytest.raises(ProducerClosed, match="closed"):
        producer.send_message("orders", {})
    with pytest.raises(ProducerClosed, match="closed"):
        producer.send_batch("orders", [{}])


@pytest.mark.parametrize("value", [{1: 1, "1": 2}, {"a": [{None: 1, "null": 2}]}, {True: 1, "true": 2}])
def test_keys_that_become_the_same_text_are_rejected(value):
    with pytest.raises(InvalidMessage, match="same text"):
        encode_value(value)
    assert (
        encode_value({1: 1, 2: [2.5, -0.0, 1.5], "3": {4: "é"}})
        == '{"1":1,"2":[2.5,-0.0,1.5],"3":{"4":"é"}}'.encode()
    )


@pytest.mark.slow
def test_user_callbacks_of_the_client_run_and_their_errors_have_no_effect(caplog):
    errors, statistics = [], []

    def error_cb(error):
        errors.append(error.name())
        raise RuntimeError("mine")

    config = {"error_cb": error_cb, "stats_cb": statistics.append, "log_level": 0}
    with ReliableKafkaProducer("127.0.0.1:1", config, store=None) as producer:
        eventually(lambda: "_TRANSPORT" in errors and statistics, timeout=30)
        eventually(lambda: producer.connection.unreachable, timeout=30)

    assert "a callback from the client's settings failed" in caplog.text


def test_an_invalid_timeout_raises_and_the_producer_keeps_working(broker):
    with ReliableKafkaProducer(broker.bootstrap_servers, store=None) as producer:
        for invalid in ("x", float("nan"), -1, True):
            with pytest.raises(ConfigError, match="number of seconds"):
                producer.flush(invalid)
            with pytest.raises(ConfigError, match="number of seconds"):
                producer.close(invalid)
        producer.send_message("orders", 1)
        producer.flush()
        assert producer.get_stats()["messages_sent"] == 1


@pytest.mark.parametrize("store", ["a\0b", ":memory:"])
def test_a_store_that_is_not_a_path_raises_a_config_error(store):
    with pytest.raises(ConfigError, match="not a path"):
        ReliableKafkaProducer("127.0.0.1:1", store=store)


def test_two_addresses_for_one_client_raise_a_config_error():
    with pytest.raises(ConfigError, match="given twice"):
        ReliableKafkaProducer({"bootstrap.servers": "a:1"}, {"bootstrap.servers": "b:1"}, store=None)


@pytest.mark.parametrize("key", [numpy.arange(3), numpy.arange(1)])
def test_an_array_is_rejected_as_a_key(broker, key):
    with ReliableKafkaProducer(broker.bootstrap_servers, store=None) as producer:
        with pytest.raises(InvalidMessage, match="A key must be"):
            producer.send_message("orders", 1, key)


def test_a_journal_level_without_a_journal_raises_a_config_error():
    with pytest.raises(ConfigError, match="only used with a journal"):
        ReliableKafkaProducer("127.0.0.1:1", store=None, journal_level="power")


@pytest.mark.slow
def test_messages_to_a_wrong_address_become_dead_letters_with_verdict_not_sent(tmp_path):
    settings = {"delivery_timeout_ms": 300, "linger_ms": 0}
    with ReliableKafkaProducer("127.0.0.1:1", settings, store=tmp_path / "s.duckdb") as producer:
        message_id = producer.send_message("orders", {"a": 1})
        dead_letter = eventually(lambda: producer.dlq.get(message_id), timeout=30)
    assert (dead_letter.verdict, dead_letter.code) == ("not_sent", "_MSG_TIMED_OUT")


@pytest.mark.slow
def test_messages_of_an_outage_are_not_sent_even_after_earlier_successful_sends(tmp_path):
    settings = {"delivery_timeout_ms": 1500, "linger_ms": 0}
    with (
        embedded.start(topics={"orders": 1}) as broker,
        ReliableKafkaProducer(
            broker.bootstrap_servers, settings, RetryConfig(max_retries=1, initial_delay_ms=10), store=None
        ) as producer,
    ):
        producer.send_message("orders", 1)
        producer.flush()
        eventually(lambda: any(producer.connection._transmitted))  # the statistics include the message
        broker.down()
        eventually(lambda: producer.connection.unreachable, timeout=30)
        reports = []
        for number in range(20):
            producer.send_message("orders", number, on_delivery=reports.append)
        eventually(lambda: len(reports) == 20, timeout=60)

    assert {(report.verdict, report.attempts) for report in reports} == {("not_sent", 2)}
    assert "no broker was connected" in reports[0].error
    assert "refused" in reports[0].error


@pytest.mark.parametrize("servers", ["", [], "host:port", "a b:9092", "host:99999x", "local\0host:1"])
def test_an_invalid_address_raises_immediately(servers):
    with pytest.raises(ConfigError):
        ReliableKafkaProducer(servers, store=None)


@pytest.mark.slow
def test_an_interrupt_after_the_client_accepted_a_message_withdraws_it_and_loses_no_report(
    broker, tmp_path, monkeypatch, caplog
):
    store = tmp_path / "s.duckdb"
    with ReliableKafkaProducer(broker.bootstrap_servers, store=store, cluster_id="c") as producer:
        transport = producer._enqueuer.transport
        produce = transport.produce

        def interrupted(delivery):
            produce(delivery)
            raise KeyboardInterrupt

        monkeypatch.setattr(transport, "produce", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send_message("orders", {"n": 1}, on_delivery=pytest.fail)
        monkeypatch.undo()
        reports = []
        for number in range(3):
            producer.send_message("orders", {"n": number}, on_delivery=reports.append)
        producer.flush(10)

        assert [report.error for report in reports] == [None] * 3
        assert producer.pending_count == 0
        assert eventually(lambda: producer.metrics.snapshot().acknowledged == 3)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


@pytest.mark.slow
@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(1), asyncio.CancelledError()])
def test_an_exception_in_a_callback_does_not_stop_the_producer(broker, raised):
    reported, callbacks = [], []

    def on_delivery(report):
        reported.append(report.message_id)
        raise raised

    with ReliableKafkaProducer(broker.bootstrap_servers, store=None) as producer:
        for number in range(20):
            producer.send_message(
                "orders", {"n": number}, callback=lambda ok, *_: callbacks.append(ok), on_delivery=on_delivery
            )
            producer.flush(10)

        assert (len(set(reported)), callbacks) == (20, [True] * 20)
        assert producer.pending_count == 0


@pytest.mark.slow
def test_an_interrupt_while_a_lane_dispatches_leaves_the_message_to_its_report(broker, monkeypatch):
    """The client rejects the first message of a key at once, so the interrupted thread sends the second one too."""
    producer = ReliableKafkaProducer(broker.bootstrap_servers, store=None, ordering="strict")
    transport, reports = producer._enqueuer.transport, []
    produce, main = transport.produce, threading.current_thread()
    begun, waits = threading.Event(), threading.Event()

    def interrupted(delivery):
        if delivery.value == b"first":
            begun.set()
            assert waits.wait(10)
            raise ClientRefused(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        produce(delivery)
        if threading.current_thread() is main:
            raise KeyboardInterrupt

    def second():
        assert begun.wait(10)
        producer.send_message("orders", b"second", "k", on_delivery=reports.append)
        waits.set()

    monkeypatch.setattr(transport, "produce", interrupted)
    other = threading.Thread(target=second)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        producer.send_message("orders", b"first", "k")
    other.join()
    producer.flush(10)

    assert ([report.error for report in reports], producer.pending_count) == ([None], 0)
    producer.close()


@pytest.mark.slow
def test_an_error_during_settlement_does_not_end_the_poll_thread(broker, monkeypatch):
    reports = []
    with ReliableKafkaProducer(broker.bootstrap_servers, store=None) as producer:
        settlement = producer._engine.settlement
        settle = settlement.reports

        def once(batch):
            monkeypatch.setattr(settlement, "reports", settle)
            raise MemoryError

        monkeypatch.setattr(settlement, "reports", once)
        producer.send_message("orders", {"n": 1})
        eventually(lambda: settlement.reports is settle)
        producer.send_message("orders", {"n": 2}, on_delivery=reports.append)

        assert eventually(lambda: reports)[0].error is None
        assert producer.pending_count == 1  # its outcome is unknown; close() reports it as possibly persisted
