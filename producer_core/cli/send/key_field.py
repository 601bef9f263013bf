"""The message key of a row, from one of its fields."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from producer_core.cli.send.rows import InputRow
from producer_core.errors import InvalidMessage

_LISTED = 10
"""Fields that an error lists."""


class MissingKeyField(InvalidMessage):
    """The row does not have the field of the key. `fix` lists its fields, which differ from row to row."""


def key_of(row: InputRow, name: str) -> str | int | None:
    """Return the field's value as a key: text unchanged, numbers as in the input, null as no key."""
    if not isinstance(row.fields, dict):
        raise InvalidMessage(f"The row is not an object, so it has no field {name!r} for the key.")
    if name not in row.fields:
        raise MissingKeyField(f"The row has no field {name!r} for the key.", fix=_listed(row.fields))
    value = row.fields[name]
    # a large integer was parsed as a float; parse it as text
    if isinstance(value, float) and isinstance(row.value, bytes):
        value = json.loads(row.value, parse_float=str)[name]
    return _key(value, name)


def _listed(fields: Iterable[str]) -> str:
    names = [field if field.isprintable() else repr(field) for field in fields]
    if not names:
        return "It has no fields."
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"Its fields: {', '.join(names[:_LISTED])}{more}."


def _key(value: Any, name: str) -> str | int | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return value
    if isinstance(value, float | Decimal):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise InvalidMessage(f"The field {name!r} is of type {type(value).__name__}, which cannot be a key.")
