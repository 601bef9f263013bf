"""`send` with a schema: rows are written with it, and rows that do not fit are malformed, with line and path."""

from __future__ import annotations

import json
import signal
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import SerializationContext

from producer_core.brokers import embedded
from producer_core.cli import main
from tests.integration.kafka.schemas.test_schemas import JSON_ORDER, ORDER, read, register

pytestmark = pytest.mark.schema_registry

ROWS = [
    '{"id": 1, "items": [{"price": 9.5}]}',
    '{"id": 2, "items": [{"price": "dear"}]}',
    "null",
    '{"id": 3}',
]


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1) as running:
        yield running


@pytest.fixture(scope="module")
def client(schema_registry):
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}) as opened:
        yield opened


@pytest.fixture
def topic(broker):
    name = f"rows-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=1)
    return name


@pytest.fixture
def send(broker, schema_registry, topic, tmp_path):
    """Run `send` for a file of rows, with `schema` in a file of this name."""
    rows = tmp_path / "orders.jsonl"
    rows.write_text("\n".join(ROWS))

    def run(*options, name="order.avsc", schema=ORDER, indent=None):
        (tmp_path / name).write_text(json.dumps(schema, indent=indent))
        arguments = [
            "send", topic, rows, "-b", broker.bootstrap_servers, "--store", tmp_path / "store.duckdb",
            "--value-schema", tmp_path / name, "--schema-registry", schema_registry.url, *options,
        ]  # fmt: skip
        return CliRunner().invoke(main, list(map(str, arguments)))

    return run


def dead_letters(store):
    shown = CliRunner().invoke(main, ["dlq", "list", "--store", str(store), "--json"])
    return json.loads(shown.output)["records"]


def test_a_schema_file_that_is_formatted_differently_is_the_registered_schema(client, send, topic):
    """Regression: a registry that compares the text did not find a schema with other spaces."""
    register(client, f"{topic}-value", ORDER)

    ended = send("--json", schema=ORDER, indent=4)

    assert json.loads(ended.stdout)["acknowledged"] == 2


def test_rows_are_written_with_the_schema_and_misfits_are_malformed(broker, client, send, topic, tmp_path):
    register(client, f"{topic}-value", ORDER)
    ended = send("--json")

    summary = json.loads(ended.stdout)
    assert (summary["acknowledged"], summary["malformed"], ended.exit_code) == (2, 2, 1)
    loads = AvroDeserializer(client)
    values = [loads(one.value(), SerializationContext(topic, "value")) for one in read(broker, topic, 2)]
    assert values == [{"id": 1, "items": [{"price": 9.5}]}, {"id": 3, "items": []}]
    found = {
        one["source"]: (one["code"], one["error_text"]) for one in dead_letters(tmp_path / "store.duckdb")
    }
    assert found == {
        "line 2 of orders.jsonl": (
            "malformed", "At value['items'][0]['price']: a value of type str does not fit double.",
        ),
        "line 3 of orders.jsonl": (
            "malformed", "The row is null, which would be a tombstone with a schema.",
        ),
    }  # fmt: skip


def test_a_json_schema_is_recognised_by_the_file_name(client, send, topic):
    register(client, f"{topic}-value", JSON_ORDER, "JSON")
    ended = send("--json", name="order.json", schema=JSON_ORDER)
    summary = json.loads(ended.stdout)
    assert (summary["acknowledged"], summary["malformed"]) == (2, 2)


def test_a_schema_that_is_not_registered_sends_nothing(client, send, topic):
    ended = send()
    assert ended.exit_code == 2
    assert "no such schema" in ended.output
    assert f"{topic}-value" not in client.get_subjects()

    ended = send("-X", "auto.register.schemas=true", "--json")
    assert json.loads(ended.stdout)["acknowledged"] == 2


def test_a_file_with_another_extension_is_refused(send):
    ended = send(name="order.txt")
    assert ended.exit_code == 2
    assert "Name the file .avsc" in ended.output


def test_a_registry_that_hangs_ends_the_send_before_its_first_row(send, schema_registry):
    schema_registry.process.signal(signal.SIGSTOP)
    try:
        ended = send("-X", "schema.registry.timeout=0.2", "-X", "schema.registry.max.retries=0")
    finally:
        schema_registry.process.signal(signal.SIGCONT)
    assert ended.exit_code == 2
    assert "did not respond" in ended.output
