"""Serializers with a context see topic, field and headers; plain ones are called with the value alone."""

from __future__ import annotations

import functools
import json
import pickle
import sys

import orjson
import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroSerializer
from confluent_kafka.serialization import IntegerSerializer, SerializationContext, StringSerializer

from producer_core import ConfigError, InvalidMessage, SchemaUnavailable
from producer_core.brokers.ports import free_ports
from producer_core.kafka.schemas.serializers import takes_context
from tests.fixtures.enqueueing import quick_producer

AVRO = {"schema.registry.url": "http://127.0.0.1:1", "value.serializer": "avro"}


class Recorder:
    """A serializer that records the contexts it gets. `signatures` counts how often its signature is read."""

    def __init__(self):
        self.contexts, self.signatures = [], 0

    @property
    def __signature__(self):
        self.signatures += 1
        import inspect

        return inspect.signature(lambda value, context: None)

    def __call__(self, value, context):
        self.contexts.append((context.topic, context.field, list(context.headers)))
        return json.dumps(value).encode()


class OneArgument:
    def __call__(self, value):
        return b""


def with_default(value, ctx=None):
    return b""


def annotated(value, where: SerializationContext | None = None):
    return b""


def sent(producer, transport, *arguments, **options):
    producer.send_message("orders", *arguments, **options)
    producer.flush()
    return transport.log["orders"][-1]


@pytest.mark.parametrize(
    "serializer",
    [StringSerializer(), IntegerSerializer(), lambda value, context: b"", with_default, annotated, Recorder(),
     functools.partial(lambda prefix, value, context: b"", b"x")],
)  # fmt: skip
def test_a_serializer_with_two_arguments_takes_a_context(serializer):
    assert takes_context(serializer)


@pytest.mark.parametrize(
    "serializer",
    [None, bytes, str.encode, pickle.dumps, orjson.dumps, json.dumps, lambda value: b"", OneArgument(), repr,
     lambda *values: b"", lambda value, protocol=None: b""],
)  # fmt: skip
def test_a_function_whose_second_argument_is_something_else_takes_none(serializer):
    assert not takes_context(serializer)


def test_a_serializer_sees_topic_field_and_headers_of_each_message():
    value, key = Recorder(), Recorder()
    producer, transport = quick_producer(config={"value_serializer": value, "key.serializer": key})
    with producer:
        delivery = sent(producer, transport, {"id": 1}, {"k": 1}, headers={"trace": "abc"})

    assert key.contexts == [("orders", "key", [("trace", b"abc")])]
    assert value.contexts == [("orders", "value", [("trace", b"abc")])]
    assert (delivery.value, delivery.key) == (b'{"id": 1}', b'{"k": 1}')
    assert ("trace", b"abc") in delivery.headers


def test_a_header_that_a_serializer_appends_is_sent():
    def serializer(value, context):
        context.headers.append(("schema", "7"))
        return b"v"

    producer, transport = quick_producer()
    with producer:
        assert ("schema", b"7") in sent(producer, transport, {}, value_serializer=serializer).headers


def test_the_serializer_of_a_message_replaces_the_one_of_the_producer():
    producer, transport = quick_producer(config={"value_serializer": lambda value, context: b"producer"})
    with producer:
        assert sent(producer, transport, {}).value == b"producer"
        assert sent(producer, transport, {}, value_serializer=lambda value: b"message").value == b"message"
        assert sent(producer, transport, {}, value_serializer=with_default).value == b""


def test_bytes_and_tombstones_do_not_reach_a_serializer():
    recorder = Recorder()
    producer, transport = quick_producer(config={"value_serializer": recorder})
    with producer:
        assert sent(producer, transport, b"raw").value == b"raw"
        assert sent(producer, transport, None, "k").value is None
    assert recorder.contexts == []


def test_a_key_of_bytes_reaches_its_serializer():
    recorder = Recorder()
    producer, transport = quick_producer(
        config={"key_serializer": lambda key, context: recorder("k", context)}
    )
    with producer:
        assert sent(producer, transport, {}, b"raw").key == b'"k"'


def test_the_signature_is_read_once_and_not_for_each_message():
    recorder = Recorder()
    producer, transport = quick_producer(config={"value_serializer": recorder})
    with producer:
        for _ in range(5):
            sent(producer, transport, {})
            sent(producer, transport, {}, value_serializer=recorder)
    assert (len(recorder.contexts), recorder.signatures) == (10, 1)


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (ValueError("bad amount"), InvalidMessage, "serializer failed: bad amount"),
        (InvalidMessage("too old"), InvalidMessage, "^too old$"),
        (ConnectionRefusedError("refused"), SchemaUnavailable, "did not respond: refused"),
    ],
)
def test_the_exception_of_a_serializer_decides_the_error(raised, expected, text):
    def serializer(value, context):
        raise raised

    producer, _ = quick_producer(config={"value_serializer": serializer})
    with producer:
        with pytest.raises(expected, match=text):
            producer.send_message("orders", {})
        assert producer.get_stats()["messages_sent"] == 0


def test_a_serializer_with_a_context_that_returns_none_writes_no_tombstone():
    producer, _ = quick_producer(config={"value_serializer": lambda value, context: None})
    with producer, pytest.raises(InvalidMessage, match="returned None"):
        producer.send_message("orders", {})


@pytest.mark.parametrize("body", [b"<html>Please log in</html>", b"null"])
def test_a_login_page_that_a_users_serializer_gets_is_not_the_fault_of_the_message(serve, body):
    url, _ = serve(lambda path, release: (200, body))
    with SchemaRegistryClient({"url": url, "timeout": 10, "max.retries": 0}) as client:
        producer, _ = quick_producer(config={"value_serializer": AvroSerializer(client, '"string"')})
        with producer, pytest.raises(SchemaUnavailable, match="response cannot be used"):
            producer.send_message("orders", "x")


async def asynchronous(value, context):
    return b""


def test_an_asynchronous_serializer_is_refused():
    with pytest.raises(ConfigError, match="asynchronous"):
        quick_producer(config={"value_serializer": asynchronous})


def test_an_asynchronous_serializer_of_confluent_kafka_is_refused():
    client = AsyncSchemaRegistryClient({"url": "http://127.0.0.1:1"})
    made = AsyncAvroSerializer(client, '"string"')
    serializer = made if not hasattr(made, "__await__") else _awaited(made)
    with pytest.raises(ConfigError, match="AvroSerializer instead of AsyncAvroSerializer"):
        quick_producer(config={"value_serializer": serializer})


def _awaited(made):
    import asyncio

    async def wait():
        return await made

    return asyncio.run(wait())


@pytest.mark.parametrize("settings", [{}, {"timeout": 3}])
def test_a_registry_client_without_a_timeout_is_reported(caplog, settings):
    with SchemaRegistryClient({"url": "http://127.0.0.1:1", **settings}) as client:
        producer, _ = quick_producer(config={"value_serializer": AvroSerializer(client, '"string"')})
        producer.close()
    assert ("has no timeout" in caplog.text) == (not settings)


# from settings alone


@pytest.mark.slow
def test_a_registry_that_is_down_raises_and_accepts_nothing():
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    producer, _ = quick_producer(config={**AVRO, "schema.registry.url": url})
    with producer:
        with pytest.raises(SchemaUnavailable, match="did not respond"):
            producer.send_message("orders", {"id": 1})
        entry = producer.send_batch("orders", [{"id": 1}])["results"][0]
        assert (entry.status, entry.verdict) == ("failed", "not_sent")
        assert producer.get_stats()["messages_sent"] == 0


def test_other_settings_of_the_registry_reach_its_client():
    settings = {"schema_registry_basic_auth_user_info": "me:secret", "schema.registry.timeout": "2.5"}
    producer, _ = quick_producer(config={**AVRO, **settings})
    with producer:
        client = producer._serializers._registry.client
        assert client.config()["basic.auth.user.info"] == "me:secret"
        assert client.config()["timeout"] == 2.5
        assert "secret" not in f"{producer.config!r}{producer.config.schemas!r}"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"schema.registry.frobnicate": "1"}, "frobnicate"),
        ({"schema.registry.url": "ftp://registry"}, "does not begin with http"),
        ({"schema.registry.basic.auth.user.info": "nobody"}, "username"),
    ],
)
def test_settings_that_the_client_rejects_raise_at_once(settings, text):
    with pytest.raises(ConfigError, match=text):
        quick_producer(config={**AVRO, **settings})


@pytest.mark.parametrize(
    "module", ["confluent_kafka.schema_registry", "confluent_kafka.schema_registry.avro"]
)
def test_without_the_packages_of_the_extra_the_error_names_it(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'producer-core\[schemas\]'"):
        quick_producer(config=AVRO)
