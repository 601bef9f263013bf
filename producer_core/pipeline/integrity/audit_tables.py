"""Hold an audit's ids, offsets and ledger rows in a DuckDB of this process, and run the rules of `sql/` over them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from producer_core.pipeline.integrity.spans import OffsetSpan
from producer_core.store.queries import Query, parse

MEMORY = "1GB"
"""Memory of the tables; what exceeds it is in a temporary folder. A record of the range takes 36 bytes."""

_SPAN = ("start", "end", "low", "stable", "high", "after", "floor", "judged")


class AuditTables:
    """Run rules, each of which reads tables and returns or creates one; a table has the name of its rule."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        for rule in rules("definitions").values():
            connection.execute(rule.sql)

    def create(
        self, table: str, rule: str | None = None, /, *, texts: Mapping[str, str] | None = None, **given: Any
    ) -> None:
        """Create or replace a table with the result of its rule; `texts` are SQL for the rule's braces."""
        found = _rule(rule or table)
        sql = found.sql
        for name, text in (texts or {}).items():
            sql = sql.replace(f"{{{name}}}", text)
        self._connection.execute(f"CREATE OR REPLACE TABLE {table} AS {sql}", found.bind(given))

    def add(self, rule: str, tables: Iterable[pa.Table]) -> None:
        """Run a rule that adds `arriving`, once for each Arrow table."""
        for arriving in tables:
            self._connection.register("arriving", arriving)
            self._connection.execute(_rule(rule).sql)
            self._connection.unregister("arriving")

    def add_records(self, rule: str, tables: Iterable[pa.Table]) -> None:
        """Run a rule that adds `arriving` for Arrow tables of (partition, offset, id)."""
        self.add(rule, map(_with_parts, tables))

    def find(self, *names: str, **given: Any) -> None:
        """Add what these rules find to the findings."""
        for name in names:
            found = _rule(name)
            own = {key: value for key, value in given.items() if key in found.parameters}
            self._connection.execute(
                f"INSERT INTO findings BY NAME FROM ({found.sql}) WHERE kind IS NOT NULL", found.bind(own)
            )

    def put(self, table: str, content: pa.Table) -> None:
        """Create or replace a table with the content of an Arrow table."""
        self._connection.register("arriving", content)
        self._connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM arriving")
        self._connection.unregister("arriving")

    def drop(self, *tables: str) -> None:
        """Release tables that no later rule reads."""
        for table in tables:
            self._connection.execute(f"DROP TABLE {table}")

    def put_spans(self, spans: Mapping[int, OffsetSpan]) -> None:
        """Set the spans that zones refer to."""
        bounds = [{name: getattr(span, name) for name in _SPAN} for span in spans.values()]
        kind = pa.struct([(name, pa.int64()) for name in _SPAN])
        self.put(
            "spans", pa.table({"partition": pa.array([*spans], pa.int32()), "span": pa.array(bounds, kind)})
        )

    def put_waiting(self, ids: Sequence[tuple[bytes, int]]) -> None:
        """Set the ids without an offset that the previous audit could not judge."""
        sessions, seqs = zip(*ids, strict=True) if ids else ((), ())
        self.put(
            "waiting",
            pa.table({"session": pa.array(sessions, pa.binary()), "seq": pa.array(seqs, pa.int64())}),
        )

    def rows(self, rule: str, **given: Any) -> list[tuple[Any, ...]]:
        """Return the result of a rule as tuples."""
        found: list[tuple[Any, ...]] = self._relation(rule, given).fetchall()
        return found

    def row(self, rule: str, **given: Any) -> tuple[Any, ...]:
        """Return the only row of a rule's result."""
        (found,) = self.rows(rule, **given)
        return found

    def arrow(self, rule: str, **given: Any) -> pa.Table:
        """Return the result of a rule as an Arrow table."""
        return self._relation(rule, given).to_arrow_table()

    def batches(self, rule: str, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the result of a rule in batches of `size` rows."""
        yield from self._relation(rule, {}).to_arrow_reader(size)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the result of a statement about the tables."""
        found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return found

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(self.select(f"SELECT count(*) FROM {table}")[0][0])

    def write_parquet(self, rule: str, path: Path) -> None:
        """Write the result of a rule to a Parquet file."""
        target = str(path).replace("'", "''")
        self._connection.execute(f"COPY ({_rule(rule).sql}) TO '{target}' (FORMAT parquet)")

    def _relation(self, rule: str, given: Mapping[str, Any]) -> duckdb.DuckDBPyRelation:
        found = _rule(rule)
        return self._connection.sql(found.sql, params=found.bind(given))


@contextmanager
def audit_tables(memory: str = MEMORY) -> Iterator[AuditTables]:
    """Open empty tables; their memory is bounded, and their temporary folder is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="producer-core-audit-") as folder:
        settings = {"memory_limit": memory, "temp_directory": folder, "preserve_insertion_order": "false"}
        connection = duckdb.connect(config=settings)
        try:
            yield AuditTables(connection)
        finally:
            connection.close()


def _with_parts(records: pa.Table) -> pa.Table:
    """Split the ids into session and sequence; Arrow takes a tenth of DuckDB's time for it."""
    ids = records["id"]
    return pa.table(
        {
            "partition": records["partition"],
            "offset": records["offset"],
            "first_bytes": pc.binary_slice(ids, 0, 16),
            "last_bytes": pc.binary_slice(ids, 16, 24),
        }
    )


@cache
def rules(*names: str) -> Mapping[str, Query]:
    """Return the rules of these files."""
    folder = files("producer_core.pipeline.integrity").joinpath("sql")
    return {rule.name: rule for name in names for rule in parse(folder.joinpath(f"{name}.sql").read_text())}


def _rule(name: str) -> Query:
    return rules("ledgers", "comparison", "verdicts")[name]
