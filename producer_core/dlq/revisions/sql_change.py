"""Change values by an SQL expression, in a DuckDB instance that reaches no file, no network and no store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.json_document import NotJson, natural, parse
from producer_core.dlq.revisions.changes import Changed, EditableRecord
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.errors import ConfigError
from producer_core.store.query_limit import cancelled_after

if TYPE_CHECKING:
    import duckdb

SECONDS = 30.0
"""The longest time of an expression for one slice of records."""
_SETTINGS: dict[str, Any] = {
    "threads": 1,
    "memory_limit": "256MB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
}
_LOCK = (
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_TABLE = """
CREATE TABLE records AS
SELECT unnest(?::INTEGER[]) AS place, unnest(?::VARCHAR[]) AS message_id, unnest(?::VARCHAR[]) AS topic,
       unnest(?::VARCHAR[]) AS key, unnest(?::VARCHAR[])::JSON AS value, unnest(?::VARCHAR[])::JSON AS headers"""
_FIX = 'Write an expression of one JSON value, such as json_merge_patch(value, \'{"currency": "EUR"}\').'


@dataclass(frozen=True)
class SqlChange:
    """Replaces each decoded value by the JSON that an expression returns.

    The expression has the columns `value` and `headers` (JSON), `key` and `topic` (text) and `message_id`. NULL leaves the
    record unchanged. It is computed within `seconds` for each slice, and within 256 MB of memory.
    """

    expression: str
    schema_id: int | None = None
    seconds: float = SECONDS

    def apply(self, records: Sequence[EditableRecord]) -> Sequence[Changed | NotEdited]:
        """Raise ConfigError for an expression that is not valid, or that takes too long or too much memory."""
        readable = [place for place, record in enumerate(records) if record.has_fields]
        texts = self._results([records[place] for place in readable]) if readable else []
        results: list[Changed | NotEdited] = [NotEdited("unreadable", record.problem) for record in records]
        for place, text in zip(readable, texts, strict=True):
            results[place] = _changed(text)
        return results

    def _results(self, records: Sequence[EditableRecord]) -> list[str | None]:
        import duckdb

        with duckdb.connect(":memory:", config=_SETTINGS) as connection:
            connection.execute(_TABLE, _columns(records))
            for setting in _LOCK:  # after this, only the operator's expression runs
                connection.execute(setting)
            try:
                with cancelled_after(connection, self.seconds):
                    return self._evaluated(connection, len(records))
            except duckdb.InterruptException as error:
                raise ConfigError(
                    f"The expression took longer than {self.seconds:g} s.", fix="Simplify it."
                ) from error
            except duckdb.Error as error:
                raise ConfigError(f"The expression is not valid: {_first_line(error)}", fix=_FIX) from error

    def _evaluated(self, connection: duckdb.DuckDBPyConnection, count: int) -> list[str | None]:
        statements = connection.extract_statements(
            f"SELECT place, CAST(({self.expression}\n) AS JSON)::VARCHAR FROM records ORDER BY place"
        )
        if len(statements) != 1:
            raise ConfigError("The expression contains more than one statement.", fix=_FIX)
        rows = connection.execute(statements[0]).fetchmany(count + 1)
        if [place for place, _ in rows] != list(range(count)):
            raise ConfigError("The expression does not return one value for each record.", fix=_FIX)
        return [text for _, text in rows]


def _columns(records: Sequence[EditableRecord]) -> list[list[Any]]:
    return [
        list(range(len(records))),
        [record.message_id for record in records],
        [record.topic for record in records],
        [None if record.key is None else record.key.decode(errors="replace") for record in records],
        [json.dumps(record.value) for record in records],
        [json.dumps(_headers(record)) for record in records],
    ]


def _headers(record: EditableRecord) -> dict[str, str | None]:
    return {name: None if value is None else value.decode(errors="replace") for name, value in record.headers}


def _changed(text: str | None) -> Changed | NotEdited:
    if text is None:
        return Changed()
    try:
        return Changed(natural(parse(text.encode())))
    except NotJson as error:
        return NotEdited("invalid", f"The expression returned a value that cannot be written: {error}.")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
