"""Check whether a schema is compatible with the versions of a subject, and name the fields that are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from producer_core.errors import ConfigError
from producer_core.kafka.schemas.rejections import unusable_response

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient, ServerConfig

Direction = Literal["backward", "forward"]
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A field that breaks a rule. `backward`: the new schema cannot read records of `version`; `forward`: the reverse."""

    direction: Direction
    version: int
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The registry's verdict on a schema. `level` is the rule of the subject; without `versions` the subject is new.

    `problems` explains a negative verdict for Avro; it is empty if the registry's rule is stricter than Avro's resolution.
    """

    subject: str
    level: str
    versions: tuple[int, ...]
    compatible: bool
    problems: tuple[Incompatibility, ...] = ()


def check_compatibility(client: SchemaRegistryClient, subject: str, schema: Schema) -> Compatibility:
    """Return the registry's verdict.

    Raise ConfigError for a text that is not an Avro schema, and the client's exception if the registry does not respond
    or refuses.
    """
    if schema.schema_type == "AVRO":
        _parsed(str(schema.schema_str))
    versions = tuple(or_absent(lambda: client.get_versions(subject)) or ())
    level = compatibility_level(client, subject)
    if not versions:
        return Compatibility(subject, level, (), compatible=True)
    if level.endswith("_TRANSITIVE"):
        compatible, compared = client.test_compatibility_all_versions(subject, schema), versions
    else:
        compatible, compared = client.test_compatibility(subject, schema), versions[-1:]
    problems = () if compatible else tuple(_problems(client, subject, schema, level, compared))
    return Compatibility(subject, level, versions, compatible, problems)


def compatibility_level(client: SchemaRegistryClient, subject: str | None = None) -> str:
    """Return the compatibility level of the subject, or that of the registry if the subject has none."""
    own = or_absent(lambda: client.get_config(subject)) if subject else None
    level = (own and _level(own)) or _level(client.get_config())
    if not level:
        raise unusable_response("it has no compatibility level")
    return str(getattr(level, "value", level)).upper()


def _level(config: ServerConfig) -> Any:
    return config.compatibility_level or config.compatibility


def or_absent(ask: Any) -> Any:
    """Return the answer, or None if the registry does not have the subject."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code != _NOT_FOUND:
            raise
        return None


def _problems(
    client: SchemaRegistryClient, subject: str, schema: Schema, level: str, versions: tuple[int, ...]
) -> Iterator[Incompatibility]:
    if schema.schema_type != "AVRO":
        return
    for version in versions:
        registered: RegisteredSchema = client.get_version(subject, version)
        old = registered.schema.schema_str or "null"
        if level.startswith(("BACKWARD", "FULL")):
            for field, reason in avro_problems(reader=str(schema.schema_str), writer=old):
                yield Incompatibility("backward", version, field, reason)
        if level.startswith(("FORWARD", "FULL")):
            for field, reason in avro_problems(reader=old, writer=str(schema.schema_str)):
                yield Incompatibility("forward", version, field, reason)


def avro_problems(*, reader: str, writer: str) -> list[tuple[str, str]]:
    """Return each field that `reader` cannot read from records of `writer`, with the reason.

    The rules are those of Avro's schema resolution, as the package avro implements them. A field of a record that several
    fields have is named once, at the first of them. The path of an array's items
    ends with [], that of a map's values with {}. The path of the whole value is empty.
    """
    return list(dict.fromkeys(_unreadable(_parsed(reader), _parsed(writer), "", set())))


def _parsed(text: str) -> Any:
    from avro.errors import AvroException
    from avro.schema import parse

    try:
        return parse(text)
    except AvroException as error:
        raise ConfigError(f"This is not an Avro schema: {error}.", fix="Check the file.") from error


Compared = set[tuple[str, str]]
"""The pairs of records that were compared, by name: a recursive schema must not be followed forever, and a record that
many fields have must not be compared once per path."""


def _unreadable(reader: Any, writer: Any, path: str, compared: Compared) -> Iterator[tuple[str, str]]:
    kinds = (reader.type, writer.type)
    if kinds == ("record", "record"):
        if (pair := (reader.fullname, writer.fullname)) in compared:
            return
        compared.add(pair)
        inner = list(_unreadable_fields(reader, writer, path, compared))
    elif kinds == ("array", "array"):
        inner = list(_unreadable(reader.items, writer.items, f"{path}[]", compared))
    elif kinds == ("map", "map"):
        inner = list(_unreadable(reader.values, writer.values, f"{path}{{}}", compared))
    elif kinds == ("union", "union"):
        inner = list(_unreadable_branches(reader, writer, path, compared))
    else:
        inner = list(_mismatch(reader, writer, path))
    yield from inner


def _unreadable_fields(reader: Any, writer: Any, path: str, compared: Compared) -> Iterator[tuple[str, str]]:
    if reader.name != writer.name and writer.name not in (reader.props.get("aliases") or ()):
        yield path, f"The record {writer.name} is named {reader.name}."
    written = {field.name: field for field in writer.fields}
    for field in reader.fields:
        place = f"{path}.{field.name}" if path else field.name
        names = [field.name, *(field.props.get("aliases") or ())]
        source = next((written[name] for name in names if name in written), None)
        if source is not None:
            yield from _unreadable(field.type, source.type, place, compared)
        elif not field.has_default:
            yield place, "The field is missing and has no default."


def _unreadable_branches(
    reader: Any, writer: Any, path: str, compared: Compared
) -> Iterator[tuple[str, str]]:
    same = {(branch.type, getattr(branch, "fullname", "")): branch for branch in reader.schemas}
    for branch in writer.schemas:
        found = same.get((branch.type, getattr(branch, "fullname", "")))
        if found is None:
            yield from _mismatch(reader, branch, path)
        else:
            yield from _unreadable(found, branch, path, compared)


def _mismatch(reader: Any, writer: Any, path: str) -> Iterator[tuple[str, str]]:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    result = ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)  # type: ignore[no-untyped-call]
    if result.compatibility is not SchemaCompatibilityType.compatible:
        kinds = sorted({kind.value.replace("_", " ") for kind in result.incompatibilities})
        details = sorted(str(message) for message in result.messages)
        yield path, f"{', '.join(kinds).capitalize()}: {'; '.join(details)}."
