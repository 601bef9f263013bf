"""A wrong argument of the producer raises an error of the producer with its fix."""

from __future__ import annotations

import math

import pandas
import pyarrow
import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.config import addresses, client_config
from producer_core.delivery import transport
from producer_core.errors import ConfigError, InvalidMessage, TokenUnavailable
from producer_core.events import Hook
from producer_core.testing import InMemoryTransport


@pytest.fixture(scope="module")
def producer():
    with ReliableKafkaProducer("memory:1", store=None, transport=InMemoryTransport) as made:
        yield made


@pytest.mark.slow
def test_the_single_dict_of_confluent_kafka_is_accepted():
    with (
        embedded.start(topics={"orders": 1}) as broker,
        ReliableKafkaProducer(
            {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 7}, store=None
        ) as producer,
    ):
        producer.send_message("orders", {"order": 1})
        producer.flush(30)

        assert producer.config.settings["linger.ms"] == 7
        assert producer.get_stats()["messages_sent"] == 1


@pytest.mark.parametrize(
    "argument",
    [
        {"headers": {"a\0b": b"x"}},
        {"headers": 5},
        {"partition": -1},
        {"timestamp_ms": 1.5},
        {"callback": 5},
        {"on_delivery": 5},
        {"dedup_key": "x"},
        {"key": object()},
        {"value": object()},
    ],
    ids=lambda argument: next(iter(argument)),
)
def test_a_refused_message_uses_no_sequence(producer, argument):
    before = producer.send_message("orders", {"n": 1})
    with pytest.raises(InvalidMessage):
        producer.send_message(**{"topic": "orders", "value": {"n": 2}, **argument})
    after = producer.send_message("orders", {"n": 3})

    session, number = before.rsplit("-", 1)
    assert after == f"{session}-{int(number) + 1}"


def test_a_message_that_deduplication_cannot_compare_uses_no_sequence():
    with ReliableKafkaProducer(
        "memory:1", store=None, transport=InMemoryTransport, enable_deduplication=True
    ) as producer:
        with pytest.raises(InvalidMessage, match="Deduplication cannot compare"):
            producer.send_message("orders", object(), value_serializer=lambda value: b"x")
        assert producer.send_message("orders", 1).endswith("-0")
        assert producer.send_message("orders", object(), value_serializer=lambda value: b"x", dedup_key="a")


@pytest.mark.parametrize(
    ("argument", "fix"),
    [
        ("enable_dedup", "Did you mean enable_deduplication=?"),
        ("journaldir", "Did you mean journal_dir=?"),
        ("bootstrap_server", "Did you mean bootstrap_servers=?"),
        ("linger_ms", "It is a client setting: pass config={'linger_ms': ...}."),
        ("client_id", "It is a client setting: pass config={'client_id': ...}."),
        ("max_block_ms", "It is a client setting: pass config={'max_block_ms': ...}."),
        ("error_cb", "It is a client setting: pass config={'error_cb': ...}."),
        ("linger", "Did you mean config={'linger_ms': ...}?"),
        ("retry_backoff", "Did you mean config={'retry_backoff_ms': ...}?"),
        ("zzz", "See docs/reference/settings.md for the arguments, and for the settings in config."),
    ],
)
def test_an_unknown_argument_suggests_the_nearest_one(argument, fix):
    with pytest.raises(ConfigError) as raised:
        ReliableKafkaProducer("a:1", store=None, **{argument: object()})

    assert raised.value.what == f"ReliableKafkaProducer has no argument {argument!r}."
    assert raised.value.fix == fix


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"linger.ms": 5}, "No bootstrap server"),
        ({"bootstrap.servers": "a:1", "linger_mss": 5}, "Did you mean"),
        ({"bootstrap.servers": "a:1", "bootstrap_servers": "b:1"}, "both set"),
        ({"bootstrap.servers": "a:1", 5: 1}, "not a setting name"),
        ({"bootstrap.servers": 5}, "not an address"),
    ],
)
def test_a_dict_of_settings_passes_the_same_checks(settings, expected):
    with pytest.raises(ConfigError, match=expected):
        client_config(settings)


@pytest.mark.parametrize(
    "servers",
    [5, [5], [None], None, [["a:1"]], b"a:1", [b"a:1"], "a b", ["a b:1"], "host:", ":9092", "host:0", "host:99999", "::1"],
    ids=repr,
)  # fmt: skip
def test_a_malformed_address_raises_an_error_with_an_example(servers):
    with pytest.raises(ConfigError, match="Write host:port"):
        addresses(servers)


@pytest.mark.parametrize(
    "address", ["user:s3cret@host", "SASL_SSL://user:s3cret@host:9092", "kafka://u:s3cret@h:1/x"]
)
def test_an_error_does_not_repeat_a_password_in_an_address(address):
    with pytest.raises(ConfigError, match="sasl_plain_password") as raised:
        addresses(["good:9092", address])
    assert "s3cret" not in str(raised.value)


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "s3cret"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"partitioner": lambda *anything: 0}, "partition= to send_message"),
        ({"on_delivery": print}, "on_delivery= to send_message"),
        ({"dr_cb": print}, "on_delivery= to send_message"),
        ({"linger.ms": print}, "does not accept a function"),
        ({**SASL, "sasl.mechanism": "NOPE"}, "Unsupported SASL mechanism: NOPE"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "sasl.username and sasl.password",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}, "ssl.ca.location failed"),
        ({"ssl.keystore.location": "x"}, "ssl.keystore.password is not"),
        ({"sasl.jaas.config": "x"}, "sasl_plain_username and sasl_plain_password"),
        ({"linger.ms": math.nan}, "finite"),
        ({"linger.ms": "nan"}, "not a number"),
        ({"buffer_memory": math.inf}, "not a number"),
        ({"delivery_timeout_ms": 10**12}, r"1000000000000 is outside the allowed range 0\.\.2147483647"),
        ({"delivery_timeout_ms": 2**32 + 60_000}, r"outside the allowed range 0\.\.2147483647"),
        ({"message.max.bytes": 10**10}, r"10000000000 is outside the allowed range 1000\.\.1000000000"),
        ({"max.block.ms": 5, "max_block_ms": 6}, "given twice"),
        ({"value_serializer": 5}, "not a function"),
        (5, "must be a dict"),
        ("linger.ms=5", "The file linger.ms=5 does not exist"),
    ],
)
def test_a_setting_that_the_client_rejects_raises_a_config_error(settings, expected):
    with pytest.raises(ConfigError, match=expected) as raised:
        client_config("a:1", settings)
    assert "s3cret" not in str(raised.value)


def test_an_oauth_callback_that_fails_raises_token_unavailable_with_its_reason():
    def no_token(config):
        raise ValueError("mine")

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": no_token}
    with pytest.raises(
        TokenUnavailable, match="No token was obtained: oauth_cb raised ValueError: mine"
    ) as raised:
        ReliableKafkaProducer("127.0.0.1:1", settings, store=None)
    assert "Check oauth_cb" in raised.value.fix
    assert "KafkaError{" not in str(raised.value)


def test_settings_that_only_the_client_checks_raise_a_config_error_with_its_reason():
    error = KafkaError(KafkaError._INVALID_ARG, "Failed to create producer: `a` needs `b`")
    raised = transport._no_client(error)
    assert isinstance(raised, ConfigError)
    assert "Cannot create Kafka client: `a` needs `b` (_INVALID_ARG)." in str(raised)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"retry_config": {"max_retries": 3}}, "RetryConfig"),
        ({"dlq_max_size": 0}, "1 or more"),
        ({"enable_deduplication": "no"}, "True or False"),
        ({"health_check_interval": "30"}, "seconds above 0"),
        ({"dedup_ttl": -1}, "seconds above 0"),
        ({"thresholds": 5}, "must be a dict"),
        ({"thresholds": {"latency_threshold_ms": "fast"}}, "0 or more"),
        ({"store": 5}, "not a path"),
        ({"store": ""}, "store=None"),
        ({"journal_dir": 5}, "not a path"),
        ({"telemetry_topic": "a b"}, "topic name"),
        ({"transactional_id": 5}, "is not a string"),
        ({"hooks": 5}, "must be a list"),
        ({"alert_routes": 5}, "must be a list"),
        ({"hooks": [object()]}, "not a Hook.*producer_core.events.Hook"),
        ({"hooks": [Hook]}, r"hooks=\[Hook\(\)\]"),
        ({"cluster_id": 5}, "id of a cluster"),
        ({"cluster_id": ""}, "id of a cluster"),
        ({"journal": 5}, "journal_dir="),
        ({"clock": 5}, "clock=5 is not a function"),
        (
            {"retry_config": RetryConfig(retriable_errors=["NOPE"])},
            "retriable_errors: There is no error code",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_an_argument_of_a_wrong_type_raises_a_config_error(options, expected):
    with pytest.raises(ConfigError, match=expected):
        ReliableKafkaProducer("memory:1", **{"store": None, **options}, transport=InMemoryTransport)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda producer: producer.add_statistics_listener(5), "listener=5 is not a function"),
        (lambda producer: producer.add_health_alert_callback(5), "callback=5 is not a function"),
        (lambda producer: producer.go_on(5), "not a topic name"),
        (lambda producer: producer.send_frame("orders", object()), r"send_frame\(frame, 'orders'\)"),
    ],
    ids=["listener", "callback", "topic", "frame"],
)
def test_a_call_with_a_wrong_argument_raises_a_config_error(producer, call, expected):
    with pytest.raises(ConfigError, match=expected):
        call(producer)


def test_a_transport_that_cannot_be_called_raises_a_config_error():
    with pytest.raises(ConfigError, match="transport=5 is not a function"):
        ReliableKafkaProducer("memory:1", store=None, transport=5)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"topic": ["orders"]}, "not a topic name"),
        ({"topic": {}}, "not a topic name"),
        ({"topic": b"orders"}, "not a topic name"),
        ({"headers": 5}, "Headers are pairs"),
        ({"headers": [5]}, "Headers are pairs"),
        ({"headers": {10**5000: b""}}, "str name"),
        ({"key": 10**5000}, "thousands of digits"),
        ({"partition": 10**5000}, "whole number"),
        ({"timestamp_ms": 10**5000}, "whole number"),
        ({"value": 10**5000}, "64-bit"),
        ({"callback": 5}, "not a function"),
        ({"on_delivery": 5}, "not a function"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_malformed_message_is_rejected_with_a_reason(producer, message, expected):
    with pytest.raises(InvalidMessage, match=expected):
        producer.send_message(**{"topic": "orders", "value": {}, **message})


FRAME = {"order": [1, 2], "total": [3, 4]}


@pytest.mark.parametrize(
    "frame", [pandas.DataFrame(FRAME), pyarrow.table(FRAME)], ids=lambda frame: type(frame).__name__
)
def test_a_batch_that_is_a_frame_points_to_send_frame(producer, frame):
    with pytest.raises(InvalidMessage, match="send_frame"):
        producer.send_batch("orders", frame)


@pytest.fixture(scope="module", params=["memory", "store"])
def either(request, tmp_path_factory):
    """A producer that keeps its dead letters in memory, and one with a store."""
    store = None if request.param == "memory" else tmp_path_factory.mktemp("store") / "s.duckdb"
    with ReliableKafkaProducer(
        "memory:1", store=store, run_replays=False, transport=InMemoryTransport
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"max_messages": -1}, "0 or more"),
        ({"max_messages": "x"}, "0 or more"),
        ({"max_messages": 1.5}, "0 or more"),
        ({"max_messages": True}, "0 or more"),
        ({"inconclusive": "x"}, "'keep' or 'send'"),
        ({"inconclusive": 0}, "'keep' or 'send'"),
        ({"inconclusive": -1}, "'keep' or 'send'"),
        ({"inconclusive": []}, "'keep' or 'send'"),
        ({"timeout": "x"}, "number of seconds"),
        ({"timeout": None}, "number of seconds"),
        ({"topic": 5}, "not a topic name"),
        ({"topic": None}, "not a topic name"),
    ],
    ids=repr,
)
def test_a_wrong_argument_of_a_replay_raises_a_config_error(either, arguments, expected):
    with pytest.raises(ConfigError, match=expected):
        either.replay_dlq_messages(**{"topic": "orders", **arguments})


@pytest.mark.slow
def test_a_replay_of_no_messages_sends_none(either):
    assert either.replay_dlq_messages("orders", max_messages=0) == 0


@pytest.mark.parametrize("topic", [5, [], b"orders"], ids=repr)
def test_a_wrong_topic_of_dead_letters_raises_a_config_error(either, topic):
    for call in (either.get_dlq_messages, either.clear_dlq):
        with pytest.raises(ConfigError, match="not a topic name"):
            call(topic)


@pytest.mark.parametrize("message_id", [5, [], None], ids=repr)
def test_a_dead_letter_is_looked_up_by_text_only(either, message_id):
    with pytest.raises(ConfigError, match="not a message id"):
        either.dlq.get(message_id)
    assert either.dlq.get("unknown") is None


@pytest.mark.parametrize(
    "wrong",
    [{"code": None}, {"code": 5}, {"text": None}, {"raw": "text"}, {"source": 5}, {"topic": 5}, {"key": {}}],
    ids=repr,
)
def test_a_wrong_argument_of_malformed_input_raises_invalid_message(either, wrong):
    with pytest.raises(InvalidMessage):
        either.dead_letter(**{"topic": "orders", "raw": b"x", "text": "no JSON", **wrong})


@pytest.mark.parametrize("messages", [{"order": 1}, "order", b"order", 5, None])
def test_a_batch_that_is_not_a_list_is_rejected_as_a_whole(producer, messages):
    with pytest.raises(InvalidMessage, match=r"Write \[message\]"):
        producer.send_batch("orders", messages)


def test_a_failing_key_extractor_rejects_only_its_message(producer):
    result = producer.send_batch(
        "orders", [{"id": 1}, {}, {"id": 3}], key_extractor=lambda order: order["id"]
    )
    assert (result["sent"], result["failed"]) == (2, 1)
    assert str(result["results"][1].error) == "key_extractor failed: KeyError('id')."


@pytest.mark.parametrize("message_id", [5, None, "", b"x", ["a"]])
def test_the_status_of_a_text_that_is_not_an_id_is_none(producer, message_id):
    assert producer.get_message_status(message_id) is None
