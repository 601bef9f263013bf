"""Every table of a store is either in a bundle, by a condition, or left out on purpose."""

from __future__ import annotations

from producer_core.diagnostics.incident import masks
from producer_core.diagnostics.incident.rows import LEFT_OUT, ROWS
from producer_core.diagnostics.incident.table_columns import columns
from producer_core.store import Store


def test_each_table_is_selected_or_left_out(tmp_path):
    with Store.open(tmp_path / "store.duckdb").borrow() as connection:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
    assert {name for (name,) in tables} == ROWS.keys() | LEFT_OUT
    assert not ROWS.keys() & LEFT_OUT


def test_each_column_with_contents_is_masked():
    """A column of another type than text would not be masked; add it to the module that masks."""
    found = {(table, column.name): column.type for table in ROWS for column in columns()[table]}
    assert {place for place, type_ in found.items() if type_ == "BLOB"} == masks.BYTES
    plain = {"INTEGER", "BIGINT", "UINTEGER", "DOUBLE", "BOOLEAN", "VARCHAR", "VARCHAR[]", "BLOB"}
    assert {*found.values()} <= plain
    names = {name for _, name in found}
    assert found.keys() >= masks.HASHES | masks.IDENTITIES | masks.FREE_TEXTS
    assert names >= masks.WORDS | masks.UNMASKED | masks.NAMES | masks.SHORT_IDS | masks.SELECTIONS
