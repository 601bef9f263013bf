"""Dead letters with a schema id where people look, against a real registry: decoded, masked, and bounded without it."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import uuid

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.schemas.subject_check import OTHER_SUBJECTS
from producer_core.store import Store
from tests.fixtures.dead_letter_pages import dead_letter, page_of
from tests.fixtures.pages import html_of

pytestmark = pytest.mark.schema_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "password", "type": "string"},
        {"name": "email", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "photo", "type": "bytes"},
    ],
}
VALUE = {
    "id": 7, "password": "hunter2", "email": "ann.lee@example.com",
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "amount": decimal.Decimal("9.50"),
    "photo": b"\xff\x00",
}  # fmt: skip
MASKED = {
    "id": 7, "password": "***", "email": "a***@example.com", "at": "2026-01-02T03:04:05+00:00", "amount": "9.50",
    "photo": "2 bytes that are not text",
}  # fmt: skip


TOPIC = f"views-{uuid.uuid4().hex[:8]}"
UNKNOWN = 2**31 - 2
"""A schema id that the registry does not have."""


@pytest.fixture(autouse=True)
def no_registry_in_the_environment(monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_CONFIG", raising=False)


@pytest.fixture(scope="module")
def client(schema_registry):
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}) as opened:
        yield opened


@pytest.fixture(scope="module")
def avro(client):
    """Return the bytes of VALUE with the id of its schema, as confluent-kafka writes them. Keys have it, too."""
    serializer = AvroSerializer(client, json.dumps(ORDER))
    serializer(VALUE, SerializationContext(TOPIC, MessageField.KEY, []))
    return serializer(VALUE, SerializationContext(TOPIC, MessageField.VALUE, []))


@pytest.fixture
def path(tmp_path, avro):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add(
        [
            dead_letter(1, topic=TOPIC, value=avro),
            dead_letter(2, topic=TOPIC, value=b"\0" + UNKNOWN.to_bytes(4, "big") + b" not Avro", key=avro),
            dead_letter(3, topic=TOPIC, value=None),
            dead_letter(4, value=avro),
        ]
    )
    return store.path


def run(path, *arguments):
    result = CliRunner().invoke(main, [*map(str, arguments), "--store", str(path)])
    assert result.exit_code == 0, result.output
    return result


def shown(path, message_id, *options):
    return json.loads(run(path, "dlq", "show", message_id, "--json", *options).stdout)


def test_show_decodes_and_masks_a_value_by_field_name(path, schema_registry):
    found = shown(path, "m-1", "--schema-registry", schema_registry.url)
    assert found["value"] == MASKED
    assert found["value_schema"]["format"] == "Avro" and found["value_schema"]["note"] is None
    text = run(path, "dlq", "show", "m-1", "--schema-registry", schema_registry.url).stdout
    assert f", Avro, schema id {found['value_schema']['id']}):" in text
    assert '"password": "***"' in text and "hunter2" not in text


def test_revealed_values_are_decoded_too(path, schema_registry, avro):
    found = shown(path, "m-1", "--reveal", "-X", f"schema.registry.url={schema_registry.url}")
    assert found["value"] == {**MASKED, "password": "hunter2", "email": VALUE["email"], "photo": "0xff00"}
    assert json.loads(run(path, "audit", "--json").stdout)[0]["action"] == "reveal"


def test_a_schema_that_the_registry_has_for_another_topic_is_not_used(path, schema_registry):
    """The dead letter m-4 is of the topic payments."""
    found = shown(path, "m-4", "--schema-registry", schema_registry.url)
    assert found["value"].endswith("bytes that are not text")
    assert found["value_schema"]["note"] == OTHER_SUBJECTS


def test_an_id_that_the_registry_does_not_have_and_a_tombstone(path, schema_registry, avro):
    found = shown(path, "m-2", "--schema-registry", schema_registry.url)
    assert found["value"] == "14 bytes that are not text"
    assert found["value_schema"]["id"] == UNKNOWN and "no such schema" in found["value_schema"]["note"]
    assert json.loads(found["key"]) == MASKED
    none = shown(path, "m-3", "--schema-registry", schema_registry.url)
    assert none["value"] is None and "value_schema" not in none


def test_without_a_registry_the_id_and_the_reason_are_shown(path):
    text = run(path, "dlq", "show", "m-1").stdout
    assert "schema id" in text and "No schema registry is configured." in text
    assert "hunter2" not in text


def test_the_store_has_the_address_for_every_command(path, schema_registry):
    run(path, "store", "set", f"schema_registry={schema_registry.url}")
    assert shown(path, "m-1")["value"] == MASKED
    listed = json.loads(run(path, "dlq", "list", "--json").stdout)["records"]
    assert json.loads(next(row["key"] for row in listed if row["message_id"] == "m-2")) == MASKED


def test_exports_for_people_are_decoded_and_files_to_import_are_not(path, schema_registry, tmp_path, avro):
    options = ("--schema-registry", schema_registry.url)
    run(path, "dlq", "export", tmp_path / "a.jsonl", "--masked", *options)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["value"] for line in lines if line["message_id"] == "m-1"] == [MASKED]
    run(path, "dlq", "export", tmp_path / "a.csv", *options)
    with (tmp_path / "a.csv").open(encoding="utf-8-sig") as file:
        rows = {row["message_id"]: row for row in csv.DictReader(file)}
    assert json.loads(rows["m-1"]["value"].removeprefix("'")) == MASKED
    assert rows["m-2"]["value"].startswith(f"schema id {UNKNOWN}, 14 bytes that are not text. ")
    run(path, "dlq", "export", tmp_path / "a.parquet", "--masked", *options)
    values = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert json.loads(next(row["value"] for row in values if row["message_id"] == "m-1")) == MASKED
    run(path, "dlq", "export", tmp_path / "raw.parquet", *options)
    values = pyarrow.parquet.read_table(tmp_path / "raw.parquet").to_pylist()
    assert next(row["value"] for row in values if row["message_id"] == "m-1") == avro


def test_data_frames_of_a_notebook_are_decoded(path, schema_registry, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", schema_registry.url)
    dead = DeadLetters(Store.open(path, create=False))
    values = dead.to_frame(DeadLetterFilter(ids=("m-1",)), kind="arrow", bodies=True).to_pylist()
    assert json.loads(values[0]["value"]) == MASKED


def test_json_with_a_schema_and_an_id_in_a_header(client, schema_registry, tmp_path):
    topic = f"views-{uuid.uuid4().hex[:8]}"
    schema = json.dumps(
        {"type": "object", "title": "Payment", "properties": {"password": {"type": "string"}}}
    )
    value = JSONSerializer(schema, client)(
        {"password": "hunter2"}, SerializationContext(topic, MessageField.VALUE, [])
    )
    registered = client.register_schema_full_response(f"{topic}-value", Schema(schema, "JSON"))
    assert value[5:] == b'{"password":"hunter2"}'
    header = ("__value_schema_id", b"\0" + registered.schema_id.to_bytes(4, "big"))
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add(
        [
            dead_letter(1, topic=topic, value=value),
            dead_letter(2, topic=topic, value=value[5:], headers=(header,)),
        ]
    )
    for message_id in ("m-1", "m-2"):
        found = shown(store.path, message_id, "--schema-registry", schema_registry.url)
        assert found["value"] == {"password": "***"}
        assert found["value_schema"] == {"id": registered.schema_id, "format": "JSON", "note": None}


def test_protobuf_is_decoded_with_its_compiled_schema(client, schema_registry, tmp_path):
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    from google.protobuf.wrappers_pb2 import StringValue

    context = SerializationContext(f"views-{uuid.uuid4().hex[:8]}", MessageField.VALUE, [])
    value = protobuf.ProtobufSerializer(StringValue, client)(
        StringValue(value="ann.lee@example.com"), context
    )
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([dead_letter(1, topic=context.topic, value=value)])
    found = shown(store.path, "m-1", "--schema-registry", schema_registry.url)
    assert found["value"] == "a***@example.com" and found["value_schema"]["format"] == "Protobuf"


@pytest.mark.slow
def test_the_dashboard_shows_the_decoded_value_where_it_shows_json(path, schema_registry, monkeypatch):
    run(path, "store", "set", f"schema_registry={schema_registry.url}")
    page = page_of(path, monkeypatch, letter="m-1")
    assert any(json.loads(part.value) == MASKED for part in page.code if part.language == "json")
    assert "Avro with schema id" in html_of(page) and "hunter2" not in html_of(page)
    page.query_params["letter"] = "m-2"
    page.run()
    assert "binary data, which cannot be masked, with schema id 2147483646." in html_of(page)
    assert "no such schema" in html_of(page) and "a***@example.com" in html_of(page)


@pytest.mark.slow
def test_the_dashboard_decodes_a_value_when_the_registry_is_back(path, schema_registry, monkeypatch):
    page = page_of(path, monkeypatch, letter="m-1")
    assert "No schema registry is configured." in html_of(page)
    run(path, "store", "set", f"schema_registry={schema_registry.url}")
    page.run()
    assert any(part.language == "json" and json.loads(part.value) == MASKED for part in page.code)
