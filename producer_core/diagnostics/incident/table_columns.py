"""The columns of the tables in a bundle, as the schema of this version has them, and the check of each value."""

from __future__ import annotations

import binascii
import math
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import orjson

from producer_core._internal.identity import Identity
from producer_core.diagnostics.incident.rows import ROWS
from producer_core.dlq.codec import read_attempts, read_headers
from producer_core.dlq.revisions.json_patch import steps_of
from producer_core.dlq.revisions.patch import Patch
from producer_core.store.expired_revisions import EMPTY_PATCH
from producer_core.store.migrate import migrate

MAX_NUMBER, MAX_TIME = 1e15, 6.2e10
"""The bounds of floating-point numbers, and of times in seconds since 1970: pages can show the years 6 to 3934."""
_TIMES = frozenset({"since", "until", "not_before", "lease_until", "failing_since", "window_start"})
"""The columns with seconds since 1970 whose names do not end with `_at`."""

_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default IS NOT NULL FROM duckdb_columns()
WHERE database_name = current_database() AND NOT internal ORDER BY table_name, column_index"""

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """A column. `read` returns a value of JSON as a value of the column, and raises ValueError for any other value.

    Numbers of a column with a `bound` are between -bound and bound.
    """

    name: str
    type: str
    nullable: bool
    has_default: bool
    bound: float | None
    read: Read

    def __call__(self, value: Any) -> Any:
        return None if value is None and self.nullable else self.read(value)


@cache
def columns() -> Mapping[str, tuple[Column, ...]]:
    """Return the columns of each table of ROWS."""
    with duckdb.connect(":memory:") as connection:
        migrate(connection, now=0.0)
        found = connection.execute(_COLUMNS).fetchall()
    return {table: tuple(_column(*row) for row in found if row[0] == table) for table in ROWS}


def are_headers(text: str) -> bool:
    """Whether a text is the headers of a dead letter."""
    try:
        return all(isinstance(name, str) for name, _ in read_headers(text))
    except (ValueError, TypeError):
        return False


def are_attempts(text: str) -> bool:
    """Whether a text is the failed attempts of a dead letter."""
    try:
        found = read_attempts(text)
    except (ValueError, TypeError):
        return False
    return all(
        type(one.failed_at) in (int, float)
        and abs(one.failed_at) <= MAX_TIME
        and isinstance(one.code, str)
        and isinstance(one.text, str)
        for one in found
    )


def is_patch(text: str) -> bool:
    """Whether a text is the patch of a revision, and each of its paths is one."""
    try:
        for operation in Patch.from_json(text).value:
            steps_of(operation["path"])
            if operation["op"] != "remove" and "value" not in operation:
                return False
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def is_effect(text: str) -> bool:
    """Whether a text has the records of a request by topic, and its choices."""
    try:
        found = orjson.loads(text)
        topics, choices = found["topics"], found["choices"]
    except (ValueError, TypeError, KeyError):
        return False
    return (
        isinstance(choices, dict)
        and isinstance(topics, dict)
        and all(type(n) is int for n in topics.values())
    )


def is_identity(text: str) -> bool:
    """Whether a text has the names of a person."""
    try:
        found = Identity.from_json(text)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return all(isinstance(name, str) for name in found.groups)


NO_IDENTITY = '{"text":"","names":[],"persons":[],"groups":[]}'

FORMS: Mapping[tuple[str, str], tuple[Callable[[str], bool], str]] = {
    ("dead_letter_bodies", "headers"): (are_headers, "[]"),
    ("dead_letter_bodies", "attempts"): (are_attempts, "[]"),
    ("dead_letter_revisions", "headers"): (are_headers, "[]"),
    ("dead_letter_revisions", "patch"): (is_patch, EMPTY_PATCH),
    ("replay_requests", "effect"): (is_effect, '{"topics":{},"choices":{}}'),
    ("replay_requests", "identity"): (is_identity, NO_IDENTITY),
    ("replay_requests", "decided_identity"): (is_identity, NO_IDENTITY),
}
"""The columns whose texts have a form without which no page can show the row, and the text instead of another one."""


def _column(table: str, name: str, type_: str, nullable: bool, has_default: bool) -> Column:
    bound = MAX_TIME if name.endswith("_at") or name in _TIMES else MAX_NUMBER if type_ == "DOUBLE" else None
    form = FORMS.get((table, name))
    read = _formed(form[0]) if form else _READ[type_]
    return Column(name, type_, nullable, has_default, bound, _bounded(read, bound) if bound else read)


def _bounded(read: Read, bound: float) -> Read:
    def bounded(value: Any) -> Any:
        found = read(value)
        if abs(found) > bound:
            raise ValueError(f"is not a number from {-bound:.0f} to {bound:.0f}")
        return found

    return bounded


def _whole(low: int, high: int) -> Read:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"is not a whole number from {low} to {high}")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("is not a finite number")
    return float(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("is neither true nor false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("is not a text")
    return value


def _texts(value: Any) -> list[str]:
    if type(value) is not list:
        raise ValueError("is not a list of texts")
    return [_text(one) for one in value]


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError("is not Base64") from error


def _formed(form: Callable[[str], bool]) -> Read:
    def read(value: Any) -> str:
        if not form(_text(value)):
            raise ValueError("does not have the form of this column")
        return str(value)

    return read


_READ: Mapping[str, Read] = {
    "INTEGER": _whole(-(2**31), 2**31 - 1),
    "BIGINT": _whole(-(2**63), 2**63 - 1),
    "UINTEGER": _whole(0, 2**32 - 1),
    "DOUBLE": _number,
    "BOOLEAN": _flag,
    "VARCHAR": _text,
    "BLOB": _bytes,
    "VARCHAR[]": _texts,
}
