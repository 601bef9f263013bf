"""Migrations after LAST_REQUIRED are additive: versions that lack them read the store and add to it."""

from __future__ import annotations

import duckdb
import pytest

from producer_core.store.migrate import LAST_REQUIRED, migrations

WRITTEN_BY_POSITION = {
    "merged_batches", "pipeline_progress", "audit_marks", "dead_letter_counts", "replay_waves",
    "schema_migrations", "additive_migrations", "required_features",
}  # fmt: skip
"""Tables into which earlier versions insert without the names of the columns."""
READ_WHOLE = {"operations", "silences"}
"""Tables whose rows 8e6e558a reads with all columns, and rejects with an unknown one."""
_SUMMED = {"statistics", "latencies", "errors", "client_statistics", "broker_statistics"}
ROLLED_UP = _SUMMED | {f"expired_{name}" for name in _SUMMED}
"""Tables whose rows earlier versions replace with their sums, without the columns that they do not know."""

LATER = [one for one in migrations() if one.version > LAST_REQUIRED]


@pytest.fixture
def connection():
    with duckdb.connect() as opened:
        for one in migrations()[:LAST_REQUIRED]:
            opened.execute(one.sql)
        yield opened


def rows(connection, query):
    return {tuple(row[:-1]): row[-1] for row in connection.execute(query).fetchall()}


def schema(connection):
    """Return what earlier versions may use, by kind and name, with its definition."""
    columns = (
        "SELECT table_name, column_name, {'type': data_type, 'optional': is_nullable OR column_default IS NOT NULL, "
        "'nullable': is_nullable} FROM duckdb_columns() WHERE NOT internal"
    )
    return {
        "column": rows(connection, columns),
        "position": rows(
            connection,
            "SELECT table_name, column_index, column_name FROM duckdb_columns() WHERE NOT internal",
        ),
        "index": rows(connection, "SELECT table_name, index_name, sql FROM duckdb_indexes()"),
        "trigger": rows(connection, "SELECT table_name, trigger_name, sql FROM duckdb_triggers()"),
        "view": rows(connection, "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal"),
        "constraint": rows(
            connection,
            "SELECT table_name, constraint_type, constraint_text, count(*) FROM duckdb_constraints() GROUP BY ALL",
        ),
    }


def violations(connection, sql):
    """Apply a migration; return how an earlier version would notice it."""
    before = schema(connection)
    tables = {table for table, _ in before["column"]}
    connection.execute(sql)
    after = schema(connection)
    found = [
        f"{kind} {'.'.join(map(str, name))} is gone or changed"
        for kind, known in before.items()
        for name, definition in known.items()
        if after[kind].get(name) != definition
    ]
    for kind in ("column", "index", "trigger", "constraint"):
        for name in after[kind].keys() - before[kind].keys():
            if name[0] not in tables:
                continue
            if kind == "column":
                if not after[kind][name]["optional"]:
                    found.append(f"column {'.'.join(name)} is NOT NULL without a default")
                if name[0] in WRITTEN_BY_POSITION:
                    found.append(f"earlier versions insert into {name[0]} by position")
                if name[0] in READ_WHOLE:
                    found.append(f"earlier versions read all columns of {name[0]}")
                if name[0] in ROLLED_UP:
                    found.append(f"earlier versions roll up {name[0]} without {name[1]}")
            elif kind == "index":
                if "UNIQUE" in after[kind][name].upper():
                    found.append(f"index {name[1]} rejects rows of earlier versions")
            else:
                found.append(f"{kind} {name[1]} on {name[0]} affects rows of earlier versions")
    return found


@pytest.mark.parametrize("number", range(len(LATER) + 1))
def test_every_migration_after_the_last_required_one_is_additive(connection, number):
    for one in LATER[: number - 1] if number else []:
        connection.execute(one.sql)

    assert violations(connection, LATER[number - 1].sql if number else "SELECT 1") == []


def test_the_last_required_migration_is_the_one_with_the_list_of_features():
    """Raise LAST_REQUIRED only for a change that every earlier version must refuse; see docs/operations/upgrade.md."""
    assert (LAST_REQUIRED, migrations()[LAST_REQUIRED - 1].name) == (11, "replay_waves")


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE colours (name VARCHAR NOT NULL)",
        "ALTER TABLE producers ADD COLUMN colour VARCHAR",
        "ALTER TABLE producers ADD COLUMN colour VARCHAR DEFAULT ''",
        "CREATE VIEW colours AS SELECT topic FROM dead_letters",
        "INSERT INTO required_features VALUES ('colours', 0)",
    ],
)
def test_additions_are_allowed(connection, sql):
    assert violations(connection, sql) == []


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE audit_marks",
        "DROP VIEW message_statistics",
        "DROP INDEX dead_letters_by_id",
        "DROP TRIGGER dead_letters_in ON dead_letters",
        "ALTER TABLE producers DROP COLUMN settings",
        "ALTER TABLE producers RENAME COLUMN settings TO options",
        "ALTER TABLE producers RENAME TO clients",
        "ALTER TABLE producers ALTER COLUMN pid TYPE VARCHAR",
        "ALTER TABLE producers ALTER COLUMN connection_error SET NOT NULL",
        "ALTER TABLE producers ADD COLUMN colour VARCHAR; ALTER TABLE producers ALTER COLUMN colour SET NOT NULL",
        "ALTER TABLE merged_batches ADD COLUMN colour VARCHAR",
        "ALTER TABLE statistics ADD COLUMN colour VARCHAR",
        "ALTER TABLE operations ADD COLUMN colour VARCHAR",
        "CREATE UNIQUE INDEX producers_by_host ON producers (host)",
        "CREATE TRIGGER more AFTER INSERT ON producers FOR EACH STATEMENT DELETE FROM notices",
        "CREATE OR REPLACE VIEW message_statistics AS SELECT 1 AS topic",
    ],
)
def test_a_change_that_an_earlier_version_notices_is_a_violation(connection, sql):
    assert violations(connection, sql)
