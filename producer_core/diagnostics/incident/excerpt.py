"""Read the rows of an incident from a copy of the store, masked on request, as lines of a bundle."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import orjson

from producer_core._internal.decision_objective import SETTING as OBJECTIVES
from producer_core._internal.decision_objective import DecisionObjective, objectives_of
from producer_core.diagnostics.incident import rows
from producer_core.diagnostics.incident.masks import Masks, short_ids
from producer_core.diagnostics.incident.replaced_ids import ReplacedIds
from producer_core.diagnostics.incident.table_columns import columns
from producer_core.diagnostics.incident.table_lines import header_line, row_line
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.dlq.files.selection import SLICE, SLICE_BYTES
from producer_core.dlq.lookup import fetch_rows
from producer_core.errors import ConfigError
from producer_core.store import file_errors
from producer_core.store.duckdb_instance import create_instance

_ROWS = 1000
"""Rows that are fetched together."""
_FEW_ROWS = 20
_BODIES, _REVISIONS = "dead_letter_bodies", "dead_letter_revisions"
_SIZES = (
    f"SELECT message_id, coalesce(value_size, 0) FROM whole.dead_letters WHERE {rows.ROWS['dead_letters']}"
)
_ERRORS = (
    f"SELECT DISTINCT fingerprint, code, error_text FROM whole.dead_letters WHERE {rows.ROWS['dead_letters']}"
)
_FINGERPRINTS = """
SELECT DISTINCT fingerprint FROM whole.dead_letter_counts UNION SELECT fingerprint FROM whole.cause_resolutions"""
_REQUESTS = "SELECT request_id FROM whole.replay_requests"
_OBJECTIVES = f"SELECT value FROM whole.settings WHERE name = '{OBJECTIVES}'"
_ALERTS = "SELECT alert_id, rule, subject, started_at FROM whole.alerts"
_HOSTS = """
SELECT host FROM whole.producers UNION SELECT host FROM whole.pipeline_jobs
UNION SELECT host FROM whole.audit WHERE host IS NOT NULL"""
_FILTERED = ("audit", "operations")
"""The tables with filters."""

Row = Sequence[Any]


class Excerpt:
    """The rows of one incident in a copy of the store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, window: IncidentWindow) -> None:
        self._connection = connection
        self._bounds = {
            "begin": float(window.begin),
            "since": float(window.since),
            "until": float(window.until),
        }
        connection.execute("CREATE TABLE work.incident_objectives (topic VARCHAR, allowed DOUBLE)")
        for topic, objective in self._objectives().items():
            connection.execute(
                "INSERT INTO work.incident_objectives VALUES (?, ?)", [topic, objective.within]
            )
        connection.execute(
            f"CREATE TABLE work.incident_letters AS {rows.DEAD_LETTERS.format(**self._bounds)}"
        )

    def masks(self) -> Masks:
        """Return the masks of this incident, which know all its ids."""
        ids = ReplacedIds()
        ids.add_errors((known, code, text) for known, code, text in self._read(_ERRORS))
        for (known,) in self._read(_FINGERPRINTS):
            ids.replaced(known)
        ids.keep(host for (host,) in self._read(_HOSTS))
        ids.keep(request_id for (request_id,) in self._read(_REQUESTS))
        ids.add_alerts((known, rule, subject, at) for known, rule, subject, at in self._read(_ALERTS))
        for table in _FILTERED:
            for (selection,) in self._read(f"SELECT DISTINCT selection FROM ({_query(table)})"):
                for known in short_ids(selection):
                    ids.replaced(known)
        return Masks(ids)

    def tables(self, masks: Masks | None) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield each table that has rows, with its lines."""
        for table in rows.ROWS:
            found = self._bodies() if table == _BODIES else self._rows(table)
            first = next(found, None)
            if first is not None:
                yield table, _lines(table, itertools.chain((first,), found), masks)

    def _objectives(self) -> Mapping[str, DecisionObjective]:
        """Return the decision objectives of the store by topic; none if another version wrote other ones."""
        for (value,) in self._read(_OBJECTIVES):
            with contextlib.suppress(ConfigError, ValueError):
                return objectives_of({OBJECTIVES: orjson.loads(value)})
        return {}

    def _rows(self, table: str) -> Iterator[Row]:
        yield from self._read(_query(table), _FEW_ROWS if table == _REVISIONS else _ROWS)
        if table in rows.EARLIER:
            yield from self._read(f"SELECT {_names(table)} FROM ({rows.EARLIER[table]})")

    def _bodies(self) -> Iterator[Row]:
        """Yield the bodies, read in slices: one body may have megabytes."""
        names = [column.name for column in columns()[_BODIES]]
        ids: list[str] = []
        size = 0
        for message_id, value_size in self._read(_SIZES):
            ids.append(message_id)
            size += value_size
            if len(ids) >= SLICE or size >= SLICE_BYTES:
                yield from fetch_rows(self._connection, _BODIES, names, ids)
                ids, size = [], 0
        yield from fetch_rows(self._connection, _BODIES, names, ids)

    def _read(self, sql: str, number: int = _ROWS) -> Iterator[Row]:
        """Yield the rows of a query, fetched by this number. The connection can run others at the same time."""
        with contextlib.closing(self._connection.cursor()) as reader:
            reader.execute(sql.format(**self._bounds))
            while found := reader.fetchmany(number):
                yield from found


@contextlib.contextmanager
def opened(whole: Path, window: IncidentWindow) -> Iterator[Excerpt]:
    """Open a copy of the store, which no process may be using, for the block."""
    instance = create_instance(whole)
    quoted = str(whole).replace("'", "''")
    try:
        instance.execute(f"ATTACH '{quoted}' AS whole (TYPE duckdb, READ_ONLY)")
        instance.execute("ATTACH ':memory:' AS work")
        instance.execute("USE whole")
        yield Excerpt(instance, window)
    except duckdb.Error as error:
        raise file_errors.from_duckdb(error, whole) from error
    finally:
        instance.close()


def _query(table: str) -> str:
    source = rows.SOURCES.get(table, f'whole."{table}"')
    return f"SELECT {_names(table)} FROM {source} WHERE {rows.ROWS[table]}"


def _names(table: str) -> str:
    return ", ".join(f'"{column.name}"' for column in columns()[table])


def _lines(table: str, found: Iterable[Row], masks: Masks | None) -> Iterator[bytes]:
    yield header_line(table)
    for row in found if masks is None else masks.rows(table, found):
        yield row_line(table, row)
