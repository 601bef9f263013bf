"""The doctor's checks of a schema registry, against a real one: each finding with its fix."""

from __future__ import annotations

import json
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from producer_core.cli import main
from producer_core.diagnostics.doctor.schema_checks import check_schemas

pytestmark = pytest.mark.schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def topic(schema_registry):
    """Return the name of a topic with a value schema at this level."""

    def create(level="BACKWARD", schema=ORDER, kind="AVRO"):
        name = f"doctor-{uuid.uuid4().hex[:8]}"
        with SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}) as client:
            client.register_schema(f"{name}-value", Schema(json.dumps(schema), kind))
            client.set_compatibility(f"{name}-value", level=level)
        return name

    return create


def findings(url, topics, *, option=None, **settings):
    given = {"schema.registry.url": url, "value.serializer": "avro"} if url else {}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    return list(check_schemas(NOWHERE, given, topics, 30.0, url=option))


def test_a_registered_schema_with_a_level_is_ok(schema_registry, topic):
    name = topic()
    found = findings(schema_registry.url, [name])
    assert [finding.level for finding in found] == ["ok", "ok"]
    assert found[0].text.startswith(schema_registry.url)
    assert found[1].check == f"subject {name}-value"
    assert found[1].text.startswith("Version 1 (AVRO, schema id ") and "level BACKWARD" in found[1].text


def test_a_level_of_none_is_a_warning(schema_registry, topic):
    found = findings(schema_registry.url, [topic("NONE")])
    assert found[-1].level == "warning" and "to BACKWARD" in found[-1].fix


def test_a_missing_subject_is_a_problem_unless_the_producer_registers_it(schema_registry):
    name = f"doctor-{uuid.uuid4().hex[:8]}"
    assert (found := findings(schema_registry.url, [name])[-1]).level == "problem"
    assert f"Register a schema under {name}-value" in found.fix
    registers = {"value_schema": json.dumps(ORDER), "auto_register_schemas": True}
    assert findings(schema_registry.url, [name], **registers)[1].level == "ok"
    assert findings(None, [name], option=schema_registry.url)[1].level == "warning"


def test_a_schema_of_another_type_is_a_problem(schema_registry, topic):
    found = findings(
        schema_registry.url,
        [topic(schema={"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, kind="JSON")],
    )
    assert (
        found[1].level == "problem" and "is of type JSON, but value.serializer writes AVRO" in found[1].text
    )


def test_a_schema_of_the_settings_must_be_registered_or_compatible(schema_registry, topic):
    name, url = topic(), schema_registry.url
    assert "is registered with id" in findings(url, [name], value_schema=json.dumps(ORDER))[2].text
    assert findings(url, [name], value_schema=json.dumps(OTHER))[2].level == "problem"
    found = findings(url, [name], value_schema=json.dumps(OTHER), auto_register_schemas=True)[2]
    assert found.level == "problem" and "(BACKWARD): id" in found.text and "schema check" in found.fix


def test_a_key_with_a_schema_is_checked_too(schema_registry, topic):
    found = findings(schema_registry.url, [topic()], key_serializer="avro")
    assert [finding.level for finding in found] == ["ok", "ok", "problem"]


def test_a_registry_that_is_down_is_one_problem_without_its_password():
    found = findings("http://ann:secret@127.0.0.1:1", ["orders"])
    assert [finding.level for finding in found] == ["problem"]
    assert "did not respond" in found[0].text and "schema.registry.url" in found[0].fix
    assert "secret" not in repr(found)


def test_without_a_registry_there_is_no_finding():
    assert findings(None, ["orders"]) == []


def test_the_command_checks_the_registry(schema_registry, topic, tmp_path):
    name = topic()
    result = CliRunner().invoke(
        main,
        f"doctor -b {NOWHERE} --timeout 1s --topic {name} --store {tmp_path / 's.duckdb'} --json "
        f"--schema-registry {schema_registry.url}",
    )
    checks = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert checks["schema registry"]["level"] == "ok"
    assert checks[f"subject {name}-value"]["level"] == "ok"
