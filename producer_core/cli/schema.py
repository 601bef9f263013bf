"""The `schema` commands: check a schema against the versions of a subject."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, output, registry_options
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.kafka.schemas.compatibility import Compatibility, Incompatibility

_WAIT = 30.0
"""Seconds that a check waits for all its requests."""
_TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_SENTENCES = {
    "backward": "Consumers with the new schema cannot read records of version {}.",
    "forward": "Consumers with version {} cannot read records of the new schema.",
}


@click.group(short_help="Check schemas against a registry.")
def schema() -> None:
    """Check schemas against a schema registry, before a producer uses them."""


@schema.command(short_help="Check whether a schema is compatible.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--subject", required=True, metavar="SUBJECT", help="For example orders-value.")
@registry_options.registry_options
@options.as_json
@click.pass_context
def check(
    ctx: click.Context,
    file: Path,
    subject: str,
    url: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Check whether the schema in FILE is compatible with SUBJECT. It registers nothing.

    \b
      producer-core schema check order.avsc --subject orders-value --schema-registry http://localhost:8081

    The registry decides, by the subject's compatibility level: a BACKWARD schema can read the records of the latest
    version, a FORWARD schema writes records that the latest version can read, FULL is both, and TRANSITIVE levels include
    all versions. For Avro, the command names each field that breaks the rule. A subject without versions accepts every
    schema. The file is .avsc for Avro, .json for JSON Schema or .proto for Protobuf.

    Exit code: 0 if the schema is compatible, 1 if not, 2 if the check could not run. The JSON object is {"subject", "level",
    "versions": [1, …], "compatible", "problems": [{"direction": "backward" or "forward", "version", "field", "reason"}]}.
    """
    found = _check(_registry_settings(url, settings, config_file), subject, file)
    if as_json:
        output.emit(dataclasses.asdict(found))
    else:
        _show(found, file)
    ctx.exit(0 if found.compatible else 1)


def _registry_settings(
    url: str | None, settings: tuple[tuple[str, str], ...], config_file: Path | None
) -> dict[str, Any]:
    found = registry_options.chosen_registry(url, settings, config_file)
    if not found.get("schema.registry.url"):
        raise click.UsageError("--schema-registry is missing. Or set schema.registry.url in --config-file.")
    # The settings name a registry only together with a serializer, which this command does not use.
    return {"value.serializer": "avro"} | found


def _check(settings: dict[str, Any], subject: str, file: Path) -> Compatibility:
    from producer_core._internal.bounded_call import call_within
    from producer_core._internal.schema_settings import pop_schema_settings
    from producer_core.errors import SchemaUnavailable
    from producer_core.kafka.schemas.registry import Registry

    kind, text = _read(file)
    parsed = pop_schema_settings(settings)
    assert parsed is not None
    registry = Registry(parsed)
    try:
        return call_within(
            _WAIT, lambda: registry.compatibility(subject, text, kind), name="schema-compatibility"
        )
    except TimeoutError:
        raise Failed(
            f"The schema registry did not respond within {_WAIT:g} s.",
            "Check the address, and that the registry is running.",
        ) from None
    except SchemaUnavailable as error:
        raise Failed(error.what, "Check the address, the credentials and the schema.") from error
    finally:
        registry.close()


def _read(file: Path) -> tuple[str, str]:
    kind = _TYPES.get(file.suffix.lower())
    if kind is None:
        raise Failed(
            f"The format of the schema cannot be determined from the file name {file.name}.",
            "Name the file .avsc for Avro, .json for JSON Schema or .proto for Protobuf.",
        )
    try:
        return kind, file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{file} cannot be read: {error}.") from error


def _show(found: Compatibility, file: Path) -> None:
    if not found.versions:
        output.say(f"{found.subject} has no versions yet: {file.name} would be the first.")
        return
    if found.compatible:
        output.say(f"{file.name} is compatible with {found.subject} ({found.level}).")
        return
    output.say(f"{file.name} is not compatible with {found.subject} ({found.level}).")
    for place in dict.fromkeys((one.direction, one.version) for one in found.problems):
        output.say(_SENTENCES[place[0]].format(place[1]))
        for one in found.problems:
            if (one.direction, one.version) == place:
                output.say(f"  {_field(one)}: {one.reason}")
    if not found.problems:
        output.say("The registry does not name the field.")


def _field(problem: Incompatibility) -> str:
    return problem.field or "the whole value"
