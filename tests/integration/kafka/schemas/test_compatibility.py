"""`schema check` against a real registry: its verdict, the fields that break the rule, and exit codes."""

from __future__ import annotations

import json
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from producer_core.cli import main

pytestmark = pytest.mark.schema_registry

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
OPTIONAL = {"name": "note", "type": "string", "default": ""}
REQUIRED = {"name": "note", "type": "string"}


def with_field(extra):
    return {**OLD, "fields": [*OLD["fields"], extra]}


@pytest.fixture(scope="module")
def client(schema_registry):
    with SchemaRegistryClient({"url": schema_registry.url, "timeout": 30}) as opened:
        yield opened


@pytest.fixture
def subject(client):
    """Return the name of a subject with one version and this compatibility level."""

    def create(level, *versions, kind="AVRO"):
        name = f"check-{uuid.uuid4().hex[:8]}-value"
        for version in versions:
            client.register_schema(name, Schema(json.dumps(version), kind))
        client.set_compatibility(name, level=level)
        return name

    return create


@pytest.fixture
def check(schema_registry, tmp_path):
    def run(subject, schema, *options, name="order.avsc"):
        (tmp_path / name).write_text(schema if isinstance(schema, str) else json.dumps(schema))
        return CliRunner().invoke(
            main,
            ["schema", "check", str(tmp_path / name), "--subject", subject]
            + (["--schema-registry", schema_registry.url] if not options else list(options)),
        )

    return run


@pytest.mark.parametrize(
    ("level", "schema", "code", "direction"),
    [
        ("BACKWARD", with_field(OPTIONAL), 0, None),
        (
            "BACKWARD",
            with_field(REQUIRED),
            1,
            "Consumers with the new schema cannot read records of version 1.",
        ),
        ("FORWARD", with_field(REQUIRED), 0, None),
        (
            "FORWARD",
            {**OLD, "fields": []},
            1,
            "Consumers with version 1 cannot read records of the new schema.",
        ),
        ("FULL", with_field(REQUIRED), 1, "Consumers with the new schema cannot read records of version 1."),
        ("NONE", {**OLD, "fields": []}, 0, None),
    ],
)
def test_the_registrys_verdict_is_the_exit_code_and_the_broken_rule_is_named(
    subject, check, level, schema, code, direction
):
    name = subject(level, OLD)
    ended = check(name, schema)

    assert ended.exit_code == code, ended.output
    assert f"({level})" in ended.output
    if direction is not None:
        assert direction in ended.output
        assert "The field is missing and has no default." in ended.output


def test_a_transitive_level_includes_every_version(subject, check, schema_registry):
    optional = {"name": "id", "type": "long", "default": 0}
    versions = [{**OLD, "fields": []}, {**OLD, "fields": [optional]}]
    schemas = (
        check(subject("BACKWARD", *versions), OLD),
        check(subject("BACKWARD_TRANSITIVE", *versions), OLD),
    )

    assert [ended.exit_code for ended in schemas] == [0, 1]
    assert "records of version 1" in schemas[1].output


def test_the_check_registers_nothing(client, subject, check):
    name = subject("BACKWARD", OLD)
    check(name, with_field(OPTIONAL))

    assert client.get_versions(name) == [1]
    new = f"check-{uuid.uuid4().hex[:8]}-value"
    ended = check(new, OLD)
    assert (ended.exit_code, "has no versions yet" in ended.output) == (0, True)
    assert new not in client.get_subjects()


def test_json_schemas_are_checked_without_the_field(subject, check):
    closed = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    changed = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    ended = check(subject("BACKWARD", closed, kind="JSON"), changed, name="order.json")

    assert ended.exit_code == 1
    assert "The registry does not name the field." in ended.output


def test_a_config_file_names_the_registry_and_json_has_the_problems(
    schema_registry, subject, check, tmp_path
):
    settings = tmp_path / "client.properties"
    settings.write_text(f"bootstrap.servers=localhost:9092\nschema.registry.url={schema_registry.url}\n")
    name = subject("BACKWARD", OLD)
    ended = check(name, with_field(REQUIRED), "--config-file", str(settings), "--json")

    assert json.loads(ended.output) == {
        "subject": name,
        "level": "BACKWARD",
        "versions": [1],
        "compatible": False,
        "problems": [
            {
                "direction": "backward",
                "version": 1,
                "field": "note",
                "reason": "The field is missing and has no default.",
            }
        ],
    }


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        (OLD, ("--schema-registry", "http://127.0.0.1:1"), "did not respond"),
        (OLD, ("--json",), "--schema-registry is missing"),
        ("{", (), "not an Avro schema"),
    ],
)
def test_a_check_that_cannot_run_exits_with_2(check, schema, options, text):
    ended = check("orders-value", schema, *options)

    assert ended.exit_code == 2
    assert text in ended.output
