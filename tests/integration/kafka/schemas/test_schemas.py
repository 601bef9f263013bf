"""Messages with a schema, on a real registry: written, read back by confluent-kafka, refused, and independent of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import uuid
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.type_pb2 import Option

from producer_core import InvalidMessage, ReliableKafkaProducer, SchemaUnavailable
from producer_core.brokers import embedded
from tests.fixtures.enqueueing import quick_producer
from tests.support import eventually

pytestmark = pytest.mark.schema_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [{"name": "price", "type": "double"}],
        }}, "default": []},
    ],
}  # fmt: skip
WITH_NOTE = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
JSON_ORDER = {
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string"},
        "items": {"type": "array", "items": {"properties": {"price": {"type": "number"}}}},
    },
    "required": ["id"],
}
CONVERTED = [{"id": 7, "items": [{"price": "9.5"}]}, {"id": 7.9}]
"""Values that fastavro's writer converts to the type of the schema."""
QUIET = {"store": None, "run_replays": False, "health_check_interval": 3600}


@pytest.fixture
def topic():
    """A topic of the test's own, because the tests share the registry."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def client(schema_registry):
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}) as opened:
        yield opened


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1) as running:
        yield running


def register(client, subject, schema, kind="AVRO"):
    return client.register_schema(subject, Schema(json.dumps(schema), kind))


def settings_for(registry, form="avro", **others):
    return {
        "schema.registry.url": registry.url,
        "value.serializer": form,
        "schema.registry.timeout": 30,
        **others,
    }


def producer_for(registry, form="avro", **others):
    return quick_producer(config=settings_for(registry, form, **others))


def sent(producer, transport, topic, *arguments, **options):
    producer.send_message(topic, *arguments, **options)
    producer.flush()
    return transport.log[topic][-1]


def schema_id(data):
    assert data[:1] == b"\0"
    return int.from_bytes(data[1:5], "big")


def read(broker, topic, count):
    reader = Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest",
        "log_level": 0,
    })  # fmt: skip
    reader.subscribe([topic])
    found = []
    try:
        eventually(
            lambda: (
                found.extend(one for one in reader.consume(10, 0.2) if not one.error()) or len(found) >= count
            )
        )
    finally:
        reader.close()
    return found


@contextlib.contextmanager
def not_responding(registry):
    """Stop the registry's process: it accepts connections and does not answer."""
    registry.process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        registry.process.signal(signal.SIGCONT)


# written and read back


def test_records_of_the_avro_serializer_are_read_by_the_deserializer(broker, client, topic):
    config = {
        "value_serializer": AvroSerializer(client, json.dumps(ORDER)),
        "key_serializer": AvroSerializer(client, '"string"'),
    }
    with ReliableKafkaProducer(broker.bootstrap_servers, config, **QUIET) as producer:
        producer.send_message(topic, {"id": 7, "items": [{"price": 9.5}]}, "seven")
        producer.send_message(topic, None, "eight")
    values = {one.key(): one.value() for one in read(broker, topic, 2)}

    loads = AvroDeserializer(client)
    found = {
        loads(key, SerializationContext(topic, MessageField.KEY)): loads(
            value, SerializationContext(topic, "value")
        )
        for key, value in values.items()
    }
    assert found == {"seven": {"id": 7, "items": [{"price": 9.5}]}, "eight": None}


def test_from_settings_alone_the_latest_schema_of_the_subject_is_used(broker, client, schema_registry, topic):
    register(client, f"{topic}-value", ORDER)
    latest = register(client, f"{topic}-value", WITH_NOTE)
    register(client, f"{topic}-key", "long")
    settings = settings_for(schema_registry, **{"key.serializer": "avro"})
    with ReliableKafkaProducer(broker.bootstrap_servers, settings, **QUIET) as producer:
        producer.send_message(topic, {"id": 7, "note": "gift"}, 42)
    (record,) = read(broker, topic, 1)

    loads = AvroDeserializer(client)
    assert schema_id(record.value()) == latest
    assert loads(record.value(), SerializationContext(topic, "value")) == {
        "id": 7,
        "items": [],
        "note": "gift",
    }
    assert loads(record.key(), SerializationContext(topic, "key")) == 42


def test_json_is_validated_and_converted_as_without_a_schema(client, schema_registry, topic):
    number = register(client, f"{topic}-value", JSON_ORDER, "JSON")
    producer, transport = producer_for(schema_registry, "json")
    with producer:
        data = sent(producer, transport, topic, {"id": 7, "at": datetime(2026, 1, 2, tzinfo=UTC)}).value

    loads = JSONDeserializer(None, schema_registry_client=client)
    assert schema_id(data) == number
    assert loads(data, SerializationContext(topic, "value")) == {"id": 7, "at": "2026-01-02T00:00:00+00:00"}


def test_the_json_and_protobuf_serializers_of_confluent_kafka_are_accepted(client, topic):
    by_json = JSONSerializer(json.dumps(JSON_ORDER), client)
    by_protobuf = ProtobufSerializer(Option, client, {"auto.register.schemas": True})
    producer, transport = quick_producer(config={"value_serializer": by_json})
    with producer:
        assert sent(producer, transport, topic, {"id": 7}).value.endswith(b'{"id":7}')
        option = Option(name="colour")
        data = sent(producer, transport, f"{topic}-proto", option, value_serializer=by_protobuf).value
    assert schema_id(data)
    assert data.endswith(option.SerializeToString())


def test_many_threads_can_send_the_first_message_of_a_topic(client, schema_registry, topic):
    number = register(client, f"{topic}-value", ORDER)
    producer, transport = producer_for(schema_registry)
    with producer:
        threads = [threading.Thread(target=producer.send_message, args=(topic, {"id": n})) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert {schema_id(one.value) for one in transport.log[topic]} == {number}
    assert len(transport.log[topic]) == 8


# registering


def test_a_schema_is_registered_only_if_the_settings_say_so(client, schema_registry, topic):
    given = {"value.schema": json.dumps(ORDER)}
    producer, _ = producer_for(schema_registry, **given)
    with producer, pytest.raises(SchemaUnavailable, match="no such schema"):
        producer.send_message(topic, {"id": 1})
    assert f"{topic}-value" not in client.get_subjects()

    producer, transport = producer_for(schema_registry, **given, **{"auto.register.schemas": True})
    with producer:
        data = sent(producer, transport, topic, {"id": 1}).value
    assert schema_id(data) == client.get_latest_version(f"{topic}-value").schema_id


def test_a_given_schema_stays_in_use_when_the_subject_has_a_later_one(client, schema_registry, topic):
    first = register(client, f"{topic}-value", ORDER)
    register(client, f"{topic}-value", WITH_NOTE)
    producer, transport = producer_for(schema_registry, **{"value.schema": json.dumps(ORDER)})
    with producer:
        assert schema_id(sent(producer, transport, topic, {"id": 1}).value) == first


def test_an_incompatible_schema_is_refused_with_the_field(client, schema_registry, topic):
    register(client, f"{topic}-value", ORDER)
    client.set_compatibility(f"{topic}-value", level="BACKWARD")
    changed = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    settings = {"value.schema": json.dumps(changed), "auto.register.schemas": True}
    producer, _ = producer_for(schema_registry, **settings)
    with producer, pytest.raises(SchemaUnavailable, match=r"rejected the schema.*/fields/0/type"):
        producer.send_message(topic, {"id": "x"})


def test_a_topic_without_a_schema_is_refused_and_no_subject_created(client, schema_registry, topic):
    producer, _ = producer_for(schema_registry)
    with producer:
        with pytest.raises(SchemaUnavailable, match=rf"no such schema.*{topic}-value"):
            producer.send_message(topic, {"id": 1})
        assert f"{topic}-value" not in client.get_subjects()

        register(client, f"{topic}-value", ORDER)  # the producer asks again for a message after some seconds
        eventually(lambda: accepted(producer, topic, {"id": 1}))


def test_a_schema_of_another_type_is_refused(client, schema_registry, topic):
    register(client, f"{topic}-value", JSON_ORDER, "JSON")
    producer, _ = producer_for(schema_registry, "avro")
    with producer, pytest.raises(SchemaUnavailable, match="of type JSON, not AVRO"):
        producer.send_message(topic, {"id": 1})


# what does not fit


@pytest.mark.parametrize(
    ("form", "value", "place"),
    [
        ("avro", {"id": "7"}, "['id']"),
        ("avro", {"items": []}, "['id']"),
        ("avro", {"id": 7, "items": [{"price": 1.5}, {"price": "dear"}]}, "['items'][1]['price']"),
        ("avro", {"id": 7, "curency": "EUR"}, "['curency']"),
        ("avro", {"id": 7, "items": [{"price": "9.5"}]}, "['items'][0]['price']"),
        ("avro", {"id": 7.9}, "['id']"),
        ("json", {"id": "7"}, "['id']"),
        ("json", {"id": 7, "items": [{"price": 1.5}, {"price": "dear"}]}, "['items'][1]['price']"),
    ],
)
def test_a_value_that_does_not_fit_raises_with_the_path_of_the_field(
    client, schema_registry, topic, form, value, place
):
    schema, kind = (ORDER, "AVRO") if form == "avro" else (JSON_ORDER, "JSON")
    register(client, f"{topic}-value", schema, kind)
    own = AvroSerializer(client, json.dumps(ORDER), conf={"validate.strict.allow.default": True})
    of_user = own if form == "avro" else JSONSerializer(json.dumps(JSON_ORDER), client)
    producer, transport = producer_for(schema_registry, form)
    with producer:
        for serializer in (None, of_user):
            if serializer is not None and value in CONVERTED:  # by confluent-kafka's own serializer
                continue
            with pytest.raises(InvalidMessage) as raised:
                producer.send_message(topic, value, value_serializer=serializer)
            assert str(raised.value).startswith(f"At value{place}: ")
        assert producer.send_batch(topic, [value, {"id": 8}])["failed"] == 1
    assert len(transport.log[topic]) == 1


# a registry that does not respond


def test_cached_topics_go_on_and_others_raise_while_the_registry_hangs(client, schema_registry, topic):
    for name in (topic, f"{topic}-other"):
        register(client, f"{name}-value", ORDER)
    settings = {"schema.registry.timeout": 0.3, "schema.registry.max.retries": 0}
    producer, transport = producer_for(schema_registry, **settings)
    with producer:
        eventually(lambda: accepted(producer, topic, {"id": 1}))
        with not_responding(schema_registry):
            assert sent(producer, transport, topic, {"id": 2}).value
            with pytest.raises(InvalidMessage):
                producer.send_message(topic, {"id": "x"})
            with pytest.raises(SchemaUnavailable, match="did not respond"):
                producer.send_message(f"{topic}-other", {"id": 3})
        eventually(lambda: accepted(producer, f"{topic}-other", {"id": 3}))


def accepted(producer, topic, value):
    try:
        return producer.send_message(topic, value)
    except SchemaUnavailable:
        return None


def test_a_new_version_is_used_after_the_time_to_live_and_an_old_one_while_the_registry_hangs(
    client, schema_registry, topic, caplog
):
    first = register(client, f"{topic}-value", ORDER)
    settings = {
        "schema.registry.cache.latest.ttl.sec": 0,
        "schema.registry.timeout": 0.3,
        "schema.registry.max.retries": 0,
    }
    producer, transport = producer_for(schema_registry, **settings)
    with producer:
        eventually(lambda: accepted(producer, topic, {"id": 1}))
        assert schema_id(transport_value(producer, transport, topic)) == first
        second = register(client, f"{topic}-value", WITH_NOTE)
        eventually(lambda: schema_id(sent(producer, transport, topic, {"id": 2}).value) == second)
        with not_responding(schema_registry):
            assert schema_id(sent(producer, transport, topic, {"id": 3}).value) == second
            eventually(lambda: "the cached schema stays in use" in caplog.text)


def transport_value(producer, transport, topic):
    producer.flush()
    return transport.log[topic][-1].value


def test_send_async_leaves_its_event_loop_free_while_the_registry_hangs(client, schema_registry, topic):
    """The loop itself lets the registry continue; a blocked loop could not."""
    register(client, f"{topic}-value", ORDER)
    settings = {"schema.registry.timeout": 20, "schema.registry.max.retries": 0}
    producer, _ = producer_for(schema_registry, **settings)

    async def send_while_ticking():
        with not_responding(schema_registry):
            sending = asyncio.create_task(producer.send_async(topic, {"id": 1}))
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not sending.done()
        return await sending

    with producer:
        assert asyncio.run(send_while_ticking()).error is None


# bytes are fixed when a message is accepted


def test_a_journal_sends_the_accepted_bytes_without_the_registry(client, schema_registry, topic, tmp_path):
    first = register(client, f"{topic}-value", ORDER)
    config = settings_for(schema_registry)
    stuck, transport = quick_producer(
        lambda delivery: "hold", config=config, journal_dir=tmp_path / "journal"
    )
    stuck.send_message(topic, {"id": 7})
    stuck.close(timeout=0.1)
    assert not transport.log[topic]
    register(client, f"{topic}-value", WITH_NOTE)

    with not_responding(schema_registry):
        producer, transport = quick_producer(config=config, journal_dir=tmp_path / "journal")
        with producer:
            eventually(lambda: transport.log[topic])
    assert schema_id(transport.log[topic][0].value) == first


class Counting:
    """An Avro serializer that counts its calls."""

    def __init__(self, client):
        self._by_avro, self.calls = AvroSerializer(client, json.dumps(ORDER)), 0

    def __call__(self, value, context):
        self.calls += 1
        return self._by_avro(value, context)


def test_a_retry_sends_the_accepted_bytes(client, topic):
    serializer, attempts = Counting(client), []

    def fail_once(delivery):
        attempts.append(delivery.value)
        return "NOT_ENOUGH_REPLICAS" if len(attempts) == 1 else None

    producer, transport = quick_producer(fail_once, config={"value_serializer": serializer})
    with producer:
        data = sent(producer, transport, topic, {"id": 7}).value
    assert (serializer.calls, attempts) == (1, [data, data])


def test_a_replay_sends_the_accepted_bytes_without_the_registry(client, schema_registry, topic, tmp_path):
    first = register(client, f"{topic}-value", ORDER)
    settings = settings_for(schema_registry)
    with embedded.start(brokers=1, topics={topic: 1}) as broker:
        broker.reject(topic, "POLICY_VIOLATION")
        store = tmp_path / "store.duckdb"
        with ReliableKafkaProducer(broker.bootstrap_servers, settings, store=store) as producer:
            producer.send_message(topic, {"id": 7})
            producer.flush()
            (dead_letter,) = producer.get_dlq_messages()
            register(client, f"{topic}-value", WITH_NOTE)
            broker.accept(topic)
            with not_responding(schema_registry):
                assert producer.replay_dlq_messages(topic) == 1
        (record,) = read(broker, topic, 1)
    assert record.value() == dead_letter.value
    assert schema_id(record.value()) == first
