"""Write the rows of an incident to a new store, masked on request.

The new file is written once, from the rows that belong to the incident. It never contains other content, not even deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb

from producer_core.diagnostics.incident import masks, rows
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.dlq.codec import BODY_COLUMNS
from producer_core.store import Store, file_errors
from producer_core.store.connection_pool import ConnectionPool
from producer_core.store.merge import insert

_WAIT = 60.0
_TEXTS, _BODIES = 1000, 200
"""Texts and bodies that are masked together."""
_COLUMNS = "SELECT database_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
_ERRORS = "SELECT DISTINCT fingerprint, code, error_text FROM whole.dead_letters"

Masker = Callable[[str], str]


def write_excerpt(whole: Path, target: Path, window: IncidentWindow, *, masked: bool) -> None:
    """Write a new store to `target` with the rows of the incident in the store `whole`, which no process may be using."""
    Store.open(target).close()
    pool = ConnectionPool(target)
    try:
        with _attached(pool, target, whole) as connection:
            _Excerpt(connection, window).write(masked=masked)
    except duckdb.Error as error:
        raise file_errors.from_duckdb(error, target) from error
    finally:
        pool.close()


def row_counts(path: Path) -> Mapping[str, int]:
    """Return the number of rows of each table that has any."""
    store = Store.open(path, create=False)
    try:
        return {name: number for name, number in store.info().rows.items() if number}
    finally:
        store.close()


@contextlib.contextmanager
def _attached(pool: ConnectionPool, target: Path, whole: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection to the new store, with the store `whole` and an empty database in memory, `work`."""
    quoted = str(whole).replace("'", "''")
    with pool.alone(timeout=_WAIT), pool.attached(target, write=True) as connection:
        connection.execute(f"ATTACH '{quoted}' AS whole (TYPE duckdb, READ_ONLY)")
        connection.execute("ATTACH ':memory:' AS work")
        try:
            yield connection
        finally:
            for name in ("work", "whole"):
                with contextlib.suppress(duckdb.Error):
                    connection.execute(f"DETACH {name}")


class _Excerpt:
    """Copies the rows of one incident."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, window: IncidentWindow) -> None:
        self._connection = connection
        self._bounds: dict[str, Any] = {
            "begin": float(window.begin),
            "since": float(window.since),
            "until": float(window.until),
        }
        self._maskers: Mapping[str, Masker] = {}
        self._fingerprints = masks.Fingerprints([])
        self._columns: Mapping[tuple[str, str, str], str] = {
            (database, table, name): type_
            for database, table, name, type_ in connection.execute(_COLUMNS).fetchall()
        }

    def write(self, *, masked: bool) -> None:
        self._run(f"CREATE TABLE work.incident_letters AS {rows.DEAD_LETTERS}")
        if masked:
            self._prepare_masks()
        for table, condition in rows.ROWS.items():
            self._run(f'DELETE FROM store."{table}"')
            if masked and table == "dead_letter_bodies":
                self._write_masked_bodies()
            else:
                self._write_rows(table, f'SELECT * FROM whole."{table}" WHERE {condition}')
        for table, query in rows.EARLIER.items():
            self._write_rows(table, query)
        self._run("DELETE FROM store.dead_letter_counts")  # triggers have counted too
        self._run(rows.COUNTS)

    def _run(self, sql: str) -> duckdb.DuckDBPyConnection:
        return self._connection.execute(sql.format(**self._bounds))

    # masking

    def _prepare_masks(self) -> None:
        self._fingerprints = masks.Fingerprints(self._run(_ERRORS).fetchall())
        self._maskers = {
            "text": masks.text_masker(self._fingerprints),
            "selection": masks.selection_masker(self._fingerprints),
            "json": masks.masked_json,
        }

    def _write_rows(self, table: str, query: str) -> None:
        """Insert the rows of a query on `whole`; if a masker is set, with masked texts."""
        common = self._common_columns(table)
        replaced = self._replacements(table, query, common) if self._maskers else {}
        columns = ", ".join(f'"{name}"' for name in common)
        values = ", ".join(replaced.get(name, f'source."{name}"') for name in common)
        self._run(f'INSERT INTO store."{table}" ({columns}) SELECT {values} FROM ({query}) AS source')

    def _replacements(self, table: str, query: str, columns: Mapping[str, str]) -> dict[str, str]:
        """Return an expression for each column with masked content."""
        found: dict[str, str] = {}
        texts = [name for name, type_ in columns.items() if type_ == "VARCHAR" and name not in masks.UNMASKED]
        for form, masker in self._maskers.items():
            chosen = [name for name in texts if masks.form_of(table, name) == form]
            if chosen and self._collect(f"{form}s_of_{table}", query, chosen, masker):
                found |= {name: _looked_up(f"{form}s_of_{table}", name) for name in chosen}
        if table == "dead_letters":
            found |= self._key_and_fingerprint(query)
        return found

    def _collect(self, work: str, query: str, columns: list[str], masker: Masker) -> bool:
        """Write the texts whose masked form differs to a table of `work`; return whether there are any."""
        self._run(f"CREATE OR REPLACE TABLE work.{work} (plain VARCHAR, masked VARCHAR)")
        parts = " UNION ALL ".join(f'SELECT "{name}" AS plain FROM source' for name in columns)
        found = False
        sql = f"WITH source AS ({query}) SELECT DISTINCT plain FROM ({parts}) WHERE plain IS NOT NULL"
        for texts in self._slices(sql):
            changed = [(text, masked) for (text,) in texts if (masked := masker(text)) != text]
            insert(self._connection, f"work.{work}", ("plain", "masked"), changed)
            found = found or bool(changed)
        return found

    def _key_and_fingerprint(self, query: str) -> dict[str, str]:
        """Mask the keys. The key's mark, a small hash of the key, is left out: all of them could be tried."""
        self._run("CREATE OR REPLACE TABLE work.masked_keys (plain BLOB, masked BLOB)")
        for keys in self._slices(f"SELECT DISTINCT key FROM ({query}) WHERE key IS NOT NULL"):
            changed = [(key, masked) for (key,) in keys if (masked := masks.masked_key(key)) != key]
            insert(self._connection, "work.masked_keys", ("plain", "masked"), changed)
        self._run("CREATE OR REPLACE TABLE work.masked_fingerprints (plain VARCHAR, masked VARCHAR)")
        replaced = list(self._fingerprints.replaced.items())
        insert(self._connection, "work.masked_fingerprints", ("plain", "masked"), replaced)
        return {
            "key": _looked_up("masked_keys", "key"),
            "key_mark": "NULL",
            "fingerprint": _looked_up("masked_fingerprints", "fingerprint"),
        }

    def _slices(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query in slices. Between them the connection can write."""
        with contextlib.closing(self._connection.cursor()) as reader:
            reader.execute(sql.format(**self._bounds))
            while found := reader.fetchmany(_TEXTS):
                yield found

    def _write_masked_bodies(self) -> None:
        """Mask the bodies in slices: one body may have megabytes."""
        columns = ", ".join(BODY_COLUMNS)
        ((last,),) = self._run("SELECT max(rowid) FROM whole.dead_letter_bodies").fetchall()
        for first in range(0, (-1 if last is None else last) + 1, _BODIES):
            found = self._run(
                f"SELECT {columns} FROM whole.dead_letter_bodies WHERE rowid >= {first} AND rowid < {first + _BODIES}"
                f" AND {rows.ROWS['dead_letter_bodies']}"
            ).fetchall()
            insert(
                self._connection,
                "store.dead_letter_bodies",
                BODY_COLUMNS,
                list(map(masks.masked_body, found)),
            )

    def _common_columns(self, table: str) -> dict[str, str]:
        """Return the columns, with their types, that both stores have: another version may have added some."""
        return {
            name: type_
            for (database, of, name), type_ in self._columns.items()
            if (database, of) == ("store", table) and ("whole", table, name) in self._columns
        }


def _looked_up(work: str, column: str) -> str:
    """Return an expression for the masked form of a column."""
    known = f'SELECT masked FROM work.{work} WHERE plain = source."{column}"'
    return f'coalesce(({known}), source."{column}")'
