"""The dry run of a replay against a real registry: records with older schemas, and whether the latest version reads them."""

from __future__ import annotations

import json
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from producer_core import replay
from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.handle import Replay
from producer_core.replay.schema_versions import schema_versions
from producer_core.replay.selection_counts import SchemaIdCount, count_schema_ids
from producer_core.store import Store
from tests.fixtures.dead_letter_pages import dead_letter

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": ""}
REQUIRED = {"name": "note", "type": "string"}
EVERYTHING = DeadLetterFilter()


def avro(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def written(schema_id, text=b"x"):
    return b"\0" + schema_id.to_bytes(4, "big") + text


@pytest.fixture(autouse=True)
def no_registry_in_the_environment(monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_CONFIG", raising=False)


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


@pytest.fixture
def topic(schema_registry):
    """Register versions of a new topic's values; return its name and their schema ids."""

    def create(*versions, kind="AVRO", level="NONE"):
        name = f"replay-{uuid.uuid4().hex[:8]}"
        with SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}) as client:
            client.register_schema(f"{name}-value", Schema(versions[0], kind))
            client.set_compatibility(f"{name}-value", level=level)
            ids = [client.register_schema(f"{name}-value", Schema(text, kind)) for text in versions]
        return name, ids

    return create


def sentences(store, *options):
    result = CliRunner().invoke(
        main, ["dlq", "replay", "--dry-run", "--json", *options, "--store", str(store.path)]
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_schema_ids_are_counted_by_topic(store):
    DeadLetters(store).add(
        [
            *(dead_letter(number, value=written(7)) for number in range(3)),
            dead_letter(3, value=written(8)),
            dead_letter(4, value=written(7), replayable=False),
            dead_letter(5, value=written(7), topic="other"),
            dead_letter(6, value=b'{"n": 1}'),
            dead_letter(7, value=b"\0\0\0"),
            dead_letter(8, value=None),
            dead_letter(9, value=written(0)),
        ]
    )
    found = [SchemaIdCount("payments", 7, 3), SchemaIdCount("other", 7, 1), SchemaIdCount("payments", 8, 1)]
    assert count_schema_ids(store, EVERYTHING) == found
    assert count_schema_ids(store, DeadLetterFilter(topic="other")) == [found[1]]
    assert count_schema_ids(store, EVERYTHING, limit=2) == [SchemaIdCount("payments", 7, 2)]


@pytest.mark.schema_registry
def test_older_records_that_the_latest_version_reads_are_a_fact(store, topic, schema_registry):
    name, (first, latest) = topic(avro(ID), avro(ID, NOTE))
    DeadLetters(store).add(
        [dead_letter(number, topic=name, value=written(first if number else latest)) for number in range(3)]
    )
    store.change_settings({"schema_registry": schema_registry.url}, who="ann", origin="test")
    run = sentences(store)
    assert run["sentences"][-1] == (
        f"2 records of {name} were written with version 1 of {name}-value. The latest version 2 reads them."
    )
    assert run["schemas"]["older"][0] | {"reason": ""} == {
        "topic": name, "records": 2, "schema_id": first, "subject": f"{name}-value", "version": 1, "latest": 2,
        "readable": True, "reason": "",
    }  # fmt: skip


@pytest.mark.schema_registry
def test_records_that_the_latest_version_cannot_read_come_first_with_the_field(
    store, topic, schema_registry, monkeypatch
):
    name, (first, _) = topic(avro(ID), avro(ID, REQUIRED))
    DeadLetters(store).add([dead_letter(1, topic=name, value=written(first))])
    monkeypatch.setenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", schema_registry.url)
    assert sentences(store)["sentences"][0] == (
        f"1 record of {name} was written with version 1 of {name}-value. Consumers with the latest version 2 cannot read "
        "it: note: The field is missing and has no default."
    )
    planned = Replay(
        store, replay.plan(store, EVERYTHING, who="ann", origin="test", can_run=True).operation_id
    )
    assert planned.dry_run().schemas.unreadable == 1


@pytest.mark.schema_registry
def test_records_with_the_latest_schema_need_no_sentence(store, topic, schema_registry):
    name, (only,) = topic(avro(ID))
    DeadLetters(store).add([dead_letter(1, topic=name, value=written(only))])
    found = schema_versions(store, EVERYTHING, given={"schema.registry.url": schema_registry.url})
    assert (found.older, found.problem) == ((), "")


@pytest.mark.schema_registry
def test_a_schema_of_another_subject_is_named(store, topic, schema_registry):
    name, _ = topic(avro(ID))
    _, (foreign,) = topic(avro(NOTE))
    DeadLetters(store).add([dead_letter(1, topic=name, value=written(foreign))])
    found = schema_versions(store, EVERYTHING, given={"schema.registry.url": schema_registry.url})
    assert list(found.facts()) == [
        f"1 record of {name} has the schema id {foreign}. {name}-value does not have this schema."
    ]


@pytest.mark.schema_registry
@pytest.mark.parametrize(("level", "readable"), [("BACKWARD", True), ("NONE", None)])
def test_json_schemas_are_compared_by_the_registry(store, topic, schema_registry, level, readable):
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
    }
    texts = [
        json.dumps({**schema, "properties": {"id": {"type": "integer"}}}),
        json.dumps({**schema, "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}),
    ]
    name, (first, _) = topic(*texts, kind="JSON", level=level)
    DeadLetters(store).add([dead_letter(1, topic=name, value=written(first))])
    found = schema_versions(store, EVERYTHING, given={"schema.registry.url": schema_registry.url})
    assert [one.readable for one in found.older] == [readable]


def test_a_registry_that_is_down_is_one_sentence_and_without_one_nothing_is_said(store):
    DeadLetters(store).add([dead_letter(1, value=written(7))])
    assert "schemas" not in " ".join(sentences(store)["sentences"])
    found = schema_versions(store, EVERYTHING, given={"schema.registry.url": "http://127.0.0.1:1"})
    assert found.older == () and found.problem.startswith(
        "The versions of the schemas are not known. The schema registry did not respond"
    )
