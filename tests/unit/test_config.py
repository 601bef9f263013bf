"""Client settings: accepted names, defaults, and contradictions with their fix."""

from __future__ import annotations

import contextlib
import dataclasses
import logging.handlers
import math
import queue

import confluent_kafka
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core import ReliableKafkaProducer
from producer_core._internal.consumer_settings import ALL_CLIENTS, CONSUMER_SETTINGS
from producer_core._internal.librdkafka import knows_property, property_names
from producer_core.config import (
    DEFAULT_SERVERS,
    DEFAULTS,
    NAMES,
    ClientConfig,
    RetryConfig,
    addresses,
    client_config,
    connection_settings,
)
from producer_core.errors import ConfigError, ProducerError


def settings(**overrides):
    return dict(client_config("localhost:9092", overrides).settings)


# defaults


def test_the_defaults_are_as_documented():
    found = settings()
    assert {name: found[name] for name in DEFAULTS} == {
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 5,
        "compression.type": "lz4",
        "linger.ms": 5,
        "message.timeout.ms": 120_000,
        "request.timeout.ms": 30_000,
        "socket.timeout.ms": 30_000,
        "partitioner": "murmur2_random",
        "statistics.interval.ms": 1_000,
        "retry.backoff.ms": 500,
        "topic.metadata.propagation.max.ms": 5_000,
    }
    assert "retries" not in found  # librdkafka's default is its maximum
    assert found["client.id"].startswith("reliable-producer-")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"linger_ms": 20}, {"linger.ms": 20}),
        ({"batch_size": 16384}, {"batch.size": 16384}),
        ({"buffer_memory": 67108864}, {"queue.buffering.max.kbytes": 65536}),
        ({"delivery_timeout_ms": 60000}, {"message.timeout.ms": 60000}),
        ({"request_timeout_ms": 9000}, {"request.timeout.ms": 9000, "socket.timeout.ms": 9000}),
        (
            {"request_timeout_ms": 9000, "socket.timeout.ms": 7000},
            {"request.timeout.ms": 9000, "socket.timeout.ms": 7000},
        ),
        (  # librdkafka would let the other setting take precedence
            {"socket_timeout_ms": 7000, "request_timeout_ms": 9000},
            {"request.timeout.ms": 9000, "socket.timeout.ms": 7000},
        ),
        ({"max_in_flight_requests_per_connection": 1}, {"max.in.flight.requests.per.connection": 1}),
        ({"compression_type": "zstd"}, {"compression.type": "zstd"}),
        ({"client_id": "me"}, {"client.id": "me"}),
        ({"acks": -1}, {"acks": "all"}),
        ({"max_request_size": 2_000_000}, {"message.max.bytes": 2_000_000}),
        ({"max.request.size": 2_000_000}, {"message.max.bytes": 2_000_000}),
        ({"send.buffer.bytes": 7000}, {"socket.send.buffer.bytes": 7000}),
        ({"receive.buffer.bytes": 7000}, {"socket.receive.buffer.bytes": 7000}),
        ({"client_id": "99999999999999"}, {"client.id": "99999999999999"}),
        ({"enable_idempotence": numpy.True_}, {"enable.idempotence": True}),
        ({"session.timeout.ms": 45000}, {"session.timeout.ms": 45000}),  # in Confluent Cloud's configuration
        (
            {"sasl_plain_username": "u", "sasl_plain_password": "p"},
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        ({"ssl_cafile": "ca.pem"}, {"ssl.ca.location": "ca.pem"}),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "u",
                "sasl_plain_password": "p",
            },
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        ),
        ({"enable_idempotence": False, "acks": 1}, {"enable.idempotence": False, "acks": 1}),
        ({"retries": 3}, {"retries": 3}),
    ],
)
def test_kafka_and_kafka_python_names_are_accepted(given, expected):
    found = settings(**given)
    assert {name: found[name] for name in expected} == expected


def test_a_sasl_mechanism_without_its_protocol_is_refused():
    with pytest.raises(
        ConfigError, match=r"security\.protocol is plaintext, so the client would not authenticate"
    ) as error:
        settings(sasl_mechanism="PLAIN", sasl_plain_username="u", sasl_plain_password="p")
    assert "SASL_SSL" in error.value.fix


def test_every_translated_name_is_a_librdkafka_property():
    for target in {*NAMES.values(), *DEFAULTS}:
        assert knows_property(target), target


def test_librdkafka_accepts_the_resulting_settings():
    found = settings(buffer_memory=2**25, max_request_size=1000, retries=5)
    confluent_kafka.Producer(found)


def test_producer_settings_do_not_reach_librdkafka():
    config = client_config(
        "a:1", {"max_block_ms": 1500, "value_serializer": bytes, "key_serializer": str.encode}
    )
    assert (config.max_block, config.value_serializer, config.key_serializer) == (1.5, bytes, str.encode)
    assert not {"max_block_ms", "max.block.ms", "value_serializer"} & set(config.settings)


def test_a_setting_of_the_producer_has_javas_name_too():
    assert client_config("a:1", {"max.block.ms": 1500}).max_block == 1.5


def test_none_means_the_default_as_in_kafka_python():
    assert settings(ssl_cafile=None, linger_ms=None)["linger.ms"] == 5


def test_a_delivery_timeout_of_zero_disables_the_timeout():
    assert client_config("a:1", {"delivery_timeout_ms": 0}).delivery_timeout == math.inf


def test_an_error_from_librdkafka_is_one_line():
    with pytest.raises(ConfigError) as caught:
        client_config("a:1", {"batch_size": 0})
    assert "\n" not in str(caught.value)


def test_derived_times_are_in_seconds():
    config = client_config("a:1", {"delivery_timeout_ms": 1500, "retry.backoff.ms": 2000})
    assert (config.delivery_timeout, config.retry_backoff) == (
        1.5,
        1.0,
    )  # retry.backoff.max.ms caps it at 1 s


def test_a_backoff_cap_below_the_default_lowers_the_backoff():
    assert client_config("a:1", {"retry.backoff.max.ms": 200}).settings["retry.backoff.ms"] == 200
    assert client_config("a:1", {}).retry_backoff == 0.5


# contradictions


@pytest.mark.parametrize(
    ("given", "expected", "fix"),
    [
        ({"acks": 1}, "conflicts with idempotence", "acks='all'"),
        ({"acks": 0}, "conflicts with idempotence", "enable_idempotence=False"),
        ({"retries": 0}, "retries=0", 'ordering="strict"'),
        ({"max_in_flight_requests_per_connection": 6}, "More than 5", "5 or less"),
        ({"linger_ms": 5000, "delivery_timeout_ms": 4000}, "linger_ms=5000", "Lower linger_ms"),
        (
            {"message_timeout_ms": 1000, "delivery_timeout_ms": 2000},
            "both set message.timeout.ms",
            "Keep one",
        ),
        ({"enable.gapless.guarantee": True}, "gapless", 'ordering="strict"'),
        ({"transactional.id": "x"}, "nothing would commit", 'delivery="exactly_once"'),
        ({"max_block_ms": -1}, "0 or more", "With 0, send_message"),
        ({"max_block_ms": "soon"}, "max_block_ms='soon'", "With 0, send_message"),
        ({"linger_ms": "soon"}, "^Setting 'linger_ms': 'soon' is not valid", "the range 0..900000"),
        ({"linger_ms": 10**9}, "'linger_ms': 1000000000 is outside the allowed range", "this range"),
        ({"request_timeout_ms": 5}, "'request_timeout_ms': 5 is outside the allowed range", "this range"),
        ({"acks": "most"}, "'acks': 'most' is not valid", "all, 0 or 1"),
        (
            {"compression_type": "lz5"},
            "'compression_type': 'lz5' is not valid",
            "gzip, snappy, lz4, zstd or auto",
        ),
        ({"debug": "lz5"}, "'debug': Invalid value \"lz5\"", "CONFIGURATION.md"),
        ({"buffer_memory": "much"}, "buffer_memory='much'", "whole number"),
        ({"client_id": object()}, "'client_id': <object object at .* is not a string", "Use a string"),
        ({"client_id": b"me"}, "'client_id': b'me' is not a string", "Use a string"),
        ({"client_id": ["me"]}, r"'client_id': \['me'\] is not a string", "Use a string"),
        ({"client_id": 10**5000}, "'client_id': a value of type int is not a string", "Use a string"),
        ({"client_id": "a\ud800"}, r"'client_id': 'a\\ud800' contains .* surrogate", "Remove"),
        ({"client_id": "a\0b"}, r"'client_id': 'a\\x00b' contains NUL", "Remove"),
        (
            {"linger_ms": object()},
            "'linger_ms': <object object at .* is not a string or a number",
            "the range",
        ),
        ({"acks": 10**5000}, "'acks': a value of type int is not a string", "all, 0 or 1"),
        ({"enable_idempotence": [1]}, r"'enable_idempotence': \[1\] is not a string", "True or False"),
        ({"group.id": "billing"}, "'group.id' is a setting for consumers", "Leave it out"),
        ({"group_id": "billing"}, "'group_id' is a setting for consumers", "Leave it out"),
        ({"auto_offset_reset": "earliest"}, "'auto_offset_reset' is a setting for consumers", "Leave it out"),
        ({"linger_mss": 5}, "Unknown setting 'linger_mss'", "linger"),
        ({"bootstrap_server": "a:1"}, "Unknown setting", "bootstrap"),
        ({"compresion_type": "lz4"}, "Unknown setting", "compression"),
        ({"linger_ms": 5, "queue.buffering.max.ms": 6}, "both set linger.ms", "Keep one"),
    ],
)
def test_a_contradiction_raises_an_error_with_its_fix(given, expected, fix):
    with pytest.raises(ConfigError, match=expected) as raised:
        client_config("localhost:9092", given)
    assert fix in raised.value.fix
    assert fix in str(raised.value)


def test_a_config_error_is_a_value_error():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, ProducerError)


def test_the_same_value_under_two_names_is_not_a_contradiction():
    assert settings(**{"linger_ms": 5, "linger.ms": 5})["linger.ms"] == 5


# addresses


@pytest.mark.parametrize(
    "servers",
    ["a:1,b:2", "a:1, b:2 ,", ["a:1", "b:2"], ("a:1", " b:2")],
)
def test_servers_are_a_list_or_a_comma_separated_string(servers):
    assert addresses(servers) == "a:1,b:2"


@pytest.mark.parametrize(
    "server", ["kafka", "kafka.shop.example:9092", "10.0.0.1:9092", "[::1]:9092", "SASL_SSL://a:1"]
)
def test_addresses_that_librdkafka_accepts_are_valid(server):
    assert addresses(server) == server


@pytest.mark.parametrize("servers", ["", [], ",", ["a b:1"], "a:port", "a:123456", "http//:x"])
def test_an_invalid_address_raises_an_error_with_an_example(servers):
    with pytest.raises(ConfigError, match=r"localhost:9092|broker1:9092"):
        addresses(servers)


@pytest.mark.parametrize("setting", ["bootstrap.servers", "bootstrap_servers", "metadata.broker.list"])
def test_different_brokers_in_the_argument_and_the_settings_raise_an_error(setting):
    with pytest.raises(ConfigError, match="real:9092") as raised:
        client_config(["localhost:9092"], {setting: "real:9092"})
    assert "localhost:9092" in str(raised.value)
    assert "Keep one" in raised.value.fix


@pytest.mark.parametrize("argument", [DEFAULT_SERVERS, None, [], "", "b:2, a:1", ["a:1", "b:2"]])
def test_brokers_only_in_the_settings_or_given_twice_identically_are_accepted(argument):
    config = client_config(argument, {"bootstrap.servers": "a:1,b:2"})
    assert config.bootstrap_servers == "a:1,b:2"


def test_a_producer_refuses_brokers_that_its_settings_contradict():
    with pytest.raises(ConfigError, match="real:9092"):
        ReliableKafkaProducer(["localhost:1"], {"bootstrap.servers": "real:9092"}, store=None)


# secrets


SECRETS = {
    "sasl_plain_password": "hunter2",
    "ssl_password": "hunter2",
    "sasl.oauthbearer.client.secret": "hunter2",
    "ssl.key.pem": "hunter2",
    "ssl.keystore.password": "hunter2",
    "sasl.oauthbearer.config": "hunter2",
    "sasl.oauthbearer.extensions": "hunter2",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_in_the_settings_but_never_displayed(name):
    config = client_config("a:1", {name: SECRETS[name], "sasl_plain_username": "me"})
    assert "hunter2" in config.settings.values()
    for shown in (repr(config), str(config), f"{config}", str(config.masked())):
        assert "hunter2" not in shown
        assert "me" in shown


def test_an_error_about_settings_contains_no_secret():
    with pytest.raises(ConfigError) as raised:
        client_config("a:1", {**SECRETS, "acks": 1})
    assert "hunter2" not in str(raised.value)


def test_settings_are_immutable():
    config = client_config("a:1")
    with pytest.raises(TypeError):
        config.settings["acks"] = "0"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.max_block = 1.0
    assert isinstance(config, ClientConfig)


# retries


def test_the_retry_defaults_are_as_documented():
    assert dataclasses.asdict(RetryConfig()) == {
        "max_retries": 3,
        "initial_delay_ms": 100,
        "max_delay_ms": 30_000,
        "backoff_multiplier": 2.0,
        "jitter": True,
        "retriable_errors": [
            "KafkaTimeoutError",
            "NotLeaderForPartitionError",
            "RequestTimedOutError",
            "BrokerNotAvailableError",
        ],
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_retries", -1),
        ("max_retries", 1.5),
        ("max_retries", None),
        ("max_retries", True),
        ("initial_delay_ms", -1),
        ("initial_delay_ms", "100"),
        ("initial_delay_ms", math.inf),
        ("max_delay_ms", -1),
        ("max_delay_ms", math.nan),
        ("backoff_multiplier", 0.5),
        ("backoff_multiplier", math.nan),
        ("backoff_multiplier", math.inf),
        ("jitter", "no"),
        ("retriable_errors", "KafkaTimeoutError"),
        ("retriable_errors", [5]),
        ("retriable_errors", None),
    ],
)
def test_an_invalid_retry_setting_raises_an_error_with_its_name(field, value):
    with pytest.raises(ConfigError, match=field):
        RetryConfig(**{field: value})


@pytest.mark.parametrize("field", ["initial_delay_ms", "max_delay_ms", "backoff_multiplier", "max_retries"])
def test_only_the_error_about_retries_explains_how_to_disable_them(field):
    with pytest.raises(ConfigError) as raised:
        RetryConfig(**{field: -1})
    assert ("max_retries=0" in str(raised.value)) == (field == "max_retries")


def test_numpy_numbers_are_numbers():
    config = RetryConfig(max_retries=numpy.int64(2), initial_delay_ms=numpy.float64(1.5))
    assert (config.max_retries, config.initial_delay_ms) == (2, 1.5)


# librdkafka's names


def test_property_names_are_read_from_librdkafka():
    assert {"message.timeout.ms", "compression.codec"} <= property_names()
    assert knows_property("request.required.acks")
    assert not knows_property("linger.mss")


def test_the_consumer_settings_are_those_that_the_library_ignores():
    # Properties without a default are not among its names.
    names = property_names() | {"group.id", "group.instance.id", "group.remote.assignor", "offset.store.path"}
    assert names | {"max.partition.fetch.bytes"} >= CONSUMER_SETTINGS  # an alias
    ignored = {name for name in names if _is_ignored_by_producers(name)}
    assert ignored == CONSUMER_SETTINGS - {"max.partition.fetch.bytes"} | ALL_CLIENTS


def _is_ignored_by_producers(name):
    """Return whether librdkafka says that a producer ignores this property; it says so when the client is created."""
    handler = logging.handlers.QueueHandler(lines := queue.SimpleQueue())
    log = logging.Logger(name)
    log.addHandler(handler)
    for value in (
        "1",
        "true",
        "1000000",
        "none",
        "earliest",
        "file",
        "consumer",
        "explicit",
        "range",
        "read_committed",
    ):
        with contextlib.suppress(confluent_kafka.KafkaException, ValueError, TypeError):
            confluent_kafka.Producer({name: value}, logger=log).poll(0)
            break
    texts = [lines.get().getMessage() for _ in range(lines.qsize())]
    return any("is a consumer property and will be ignored" in text for text in texts)


@given(st.text(max_size=30), st.text(max_size=10) | st.integers() | st.none() | st.booleans())
def test_any_setting_is_accepted_or_raises_a_config_error(name, value):
    try:
        config = client_config("a:1", {name: value})
    except ConfigError:
        return
    assert any(knows_property(known) for known in config.settings)


@pytest.mark.slow
@given(
    st.sampled_from(sorted({*DEFAULTS, *NAMES, "retries", "batch_size", "buffer_memory"})),
    st.text(max_size=10) | st.integers() | st.floats() | st.none(),
)
def test_any_value_is_accepted_or_raises_a_config_error(name, value):
    try:
        client_config("a:1", {name: value})
    except ConfigError:
        return


# tokens


TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
CREDENTIALS = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "orders",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
}


def get_token(config):
    return "token", 2e9


@pytest.mark.parametrize("mechanism", ["sasl.mechanism", "sasl.mechanisms", "sasl_mechanism"])
def test_a_token_callback_reaches_every_client_of_the_cluster_and_is_never_displayed(mechanism):
    config = client_config(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            mechanism: "OAUTHBEARER",
            "oauth_cb": get_token,
        }
    )
    callback = config.settings["oauth_cb"]
    assert callback("") == ("token", 2e9)
    assert connection_settings(config.settings)["oauth_cb"] is callback
    assert client_config("a:1", config.given).settings["oauth_cb"] is callback
    assert "oauth_cb" not in config.masked()
    assert "get_token" not in repr(config)


def test_client_credentials_reach_every_client_of_the_cluster_and_the_secret_is_never_displayed():
    config = client_config("a:1", {**TOKENS, **CREDENTIALS})
    assert CREDENTIALS.items() <= connection_settings(config.settings).items()
    assert "hunter2" not in repr(config)
    assert config.masked()["sasl.oauthbearer.client.id"] == "orders"


@pytest.mark.parametrize(
    ("settings", "problem", "fix"),
    [
        ({"oauth_cb": get_token}, "would not authenticate with a token", "SASL_SSL"),
        ({"oauth_cb": get_token, "security.protocol": "SSL"}, "would not authenticate", "SASL_SSL"),
        (
            {**TOKENS, "sasl.mechanism": "PLAIN", "oauth_cb": get_token},
            "would not authenticate",
            "OAUTHBEARER",
        ),
        (TOKENS, "without a source of tokens", "sasl.oauthbearer.method=oidc"),
        ({**TOKENS, **CREDENTIALS, "oauth_cb": get_token}, "two sources", "Keep one"),
        (
            {**TOKENS, "sasl.oauthbearer.method": "oidc"},
            "needs sasl.oauthbearer.client.id",
            "identity provider",
        ),
        ({**TOKENS, "oauth_cb": "module:function"}, "oauth_cb", "sasl.oauthbearer.method=oidc"),
    ],
)
def test_settings_without_a_usable_source_of_tokens_are_refused(settings, problem, fix):
    with pytest.raises(ConfigError, match=problem) as raised:
        client_config("a:1", settings)
    assert fix in raised.value.fix
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("missing", [name for name in CREDENTIALS if not name.endswith("method")])
def test_a_missing_part_of_the_client_credentials_is_named(missing):
    settings = {**TOKENS, **CREDENTIALS}
    del settings[missing]
    with pytest.raises(ConfigError, match=f"needs {missing}"):
        client_config("a:1", settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"enable.sasl.oauthbearer.unsecure.jwt": True},
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        },
        {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
    ],
)
def test_other_sources_of_tokens_are_left_to_the_client(settings):
    assert settings.items() <= client_config("a:1", {**TOKENS, **settings}).settings.items()


@pytest.mark.parametrize("value", ["auto", "AUTO"])
def test_compression_auto_starts_with_lz4_and_each_client_gets_the_codec_of_its_time(value):
    config = client_config("nowhere:9092", {"compression_type": value})
    assert config.settings["compression.type"] == "lz4"
    assert "compression.type" not in config.given
    assert config.masked()["compression.type"] == "auto"
    assert config.compression is not None and config.compression() == "lz4"
    assert client_config("nowhere:9092", {"compression.type": "zstd"}).compression is None
