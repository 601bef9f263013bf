"""Every table of a store is either in a bundle, by a condition, or left out on purpose."""

from __future__ import annotations

from producer_core.diagnostics.incident import masks
from producer_core.diagnostics.incident.content_check import KNOWN_TABLES
from producer_core.diagnostics.incident.rows import LEFT_OUT, ROWS
from producer_core.store import Store

_COLUMNS = """
SELECT table_name, column_name, data_type FROM duckdb_columns()
WHERE database_name = current_database() AND NOT internal"""


def test_each_table_is_selected_or_left_out(tmp_path):
    with Store.open(tmp_path / "store.duckdb").borrow() as connection:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
    assert {name for (name,) in tables} == KNOWN_TABLES
    assert not ROWS.keys() & LEFT_OUT


def test_each_column_with_contents_is_masked(tmp_path):
    """A column of another type than text would not be masked; add it to the module that masks."""
    with Store.open(tmp_path / "store.duckdb").borrow() as connection:
        columns = [row for row in connection.execute(_COLUMNS).fetchall() if row[0] in ROWS]
    bytes_ = {(table, name) for table, name, type_ in columns if type_ == "BLOB"}
    assert bytes_ == masks.BYTES
    plain = {"INTEGER", "BIGINT", "UINTEGER", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB"}
    assert {type_ for _, _, type_ in columns} <= plain
