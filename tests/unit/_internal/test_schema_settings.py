"""The settings of schemas are removed from the client's, and contradictions raise with a fix."""

from __future__ import annotations

import pytest

from producer_core import ConfigError
from producer_core._internal.schema_settings import pop_schema_settings, without_unused_registry
from producer_core.config import client_config

URL = {"schema.registry.url": "http://registry:8081"}
SCHEMA = '{"type": "string"}'


def test_the_settings_of_schemas_do_not_reach_the_kafka_client():
    settings = {"value_serializer": "Avro", "schema_registry_url": "http://registry:8081", "linger.ms": 5}
    config = client_config("a:1", settings)

    assert config.schemas.formats == {"value": "avro"}
    assert config.schemas.client == {"url": "http://registry:8081"}
    assert not [name for name in config.settings if "schema" in name or "serializer" in name]


def test_settings_without_schemas_give_none():
    given = {"linger.ms": 5, "value_serializer": bytes}
    assert pop_schema_settings(given) is None
    assert given == {"linger.ms": 5, "value_serializer": bytes}


def test_numbers_and_flags_of_a_settings_file_are_converted():
    found = pop_schema_settings({
        **URL, "value.serializer": "avro", "schema.registry.timeout": "2.5", "schema.registry.max.retries": "3",
        "schema.registry.cache.latest.ttl.sec": "60", "auto.register.schemas": "true", "value.schema": SCHEMA,
    })  # fmt: skip
    assert found.client["timeout"] == 2.5
    assert found.client["max.retries"] == 3
    assert (found.ttl, found.auto_register, found.schemas) == (60, True, {"value": SCHEMA})


def test_a_schema_can_be_the_path_of_a_file(tmp_path):
    (tmp_path / "order.avsc").write_text(SCHEMA)
    for path in (tmp_path / "order.avsc", str(tmp_path / "order.avsc")):
        found = pop_schema_settings({**URL, "key.serializer": "avro", "key.schema": path})
        assert found.schemas == {"key": SCHEMA}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"value.serializer": "avro"}, "schema.registry.url is not set"),
        (URL, "no serializer uses the schema registry"),
        ({**URL, "value.serializer": "protobuf"}, "ProtobufSerializer"),
        ({**URL, "value.serializer": "io.confluent.kafka.serializers.KafkaAvroSerializer"}, "'avro' or 'json'"),
        ({**URL, "value.serializer": "avro", "auto.register.schemas": True}, "no schema to register"),
        ({**URL, "value.serializer": "avro", "key.schema": SCHEMA}, "key.serializer is not"),
        ({**URL, "value.serializer": "avro", "value.schema": "absent.avsc"}, "cannot be read"),
        ({**URL, "value.serializer": "avro", "value.schema": 5}, "neither a schema nor a path"),
        ({**URL, "value.serializer": "avro", "schema.registry.timeout": "soon"}, "timeout='soon' is not a number"),
        ({**URL, "value.serializer": "avro", "auto.register.schemas": "maybe"}, "not true or false"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_raise(settings, text):
    with pytest.raises(ConfigError, match=text):
        client_config("a:1", settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("timeout", "max.retries", "cache.latest.ttl.sec", "retries.wait.ms")
     for value in ("nan", "inf", float("inf"), -1, "-0.5", 1e300)]
    + [("timeout", 0), ("cache.capacity", 0)],
)  # fmt: skip
def test_a_number_that_no_wait_can_have_raises(name, value):
    settings = {**URL, "value.serializer": "avro", f"schema.registry.{name}": value}
    with pytest.raises(ConfigError, match=rf"schema\.registry\.{name}=.* is not between"):
        client_config("a:1", settings)


def test_a_registry_that_no_serializer_uses_is_left_out_for_a_client():
    registry = {"schema.registry.url": "http://registry", "linger.ms": "5"}
    assert without_unused_registry(registry) == {"linger.ms": "5"}
    used = {**registry, "value_serializer": "avro"}
    assert without_unused_registry(used) == used
