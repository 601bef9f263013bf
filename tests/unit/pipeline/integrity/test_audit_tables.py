"""The audit's tables: bounded memory, a temporary folder, and findings as Parquet."""

from __future__ import annotations

import re
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import producer_core.pipeline.integrity as package
from producer_core.metrics.ack_ledger import MODULUS, WINDOW
from producer_core.pipeline.integrity.audit_tables import audit_tables, rules
from producer_core.pipeline.integrity.findings import written
from tests.fixtures.audit_reports import report
from tests.fixtures.comparing import records_of

ONE = uuid.UUID(int=2**127 + 5)


def test_records_beyond_the_memory_are_in_a_temporary_folder_until_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    number = 100_000
    one = records_of([0] * number, range(number), [ONE.bytes + bytes(8)] * number)

    with audit_tables("20MB") as tables:
        tables.add_records("add_records", [one] * 10)
        spilled = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
        assert tables.count("log") == 10 * number

    assert spilled > 5 << 20
    assert [*tmp_path.iterdir()] == []


def test_the_folder_is_removed_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RuntimeError), audit_tables():
        raise RuntimeError
    assert [*tmp_path.iterdir()] == []


def test_an_id_is_read_as_the_producer_wrote_it_and_an_impossible_sequence_is_none():
    ids = [ONE.bytes + (2**40).to_bytes(8), None, b"\xff" * 24]
    with audit_tables() as tables:
        tables.add_records("add_records", [records_of([3, 4, 5], [7, 8, 9], ids)])
        assert tables.select("FROM log ORDER BY partition") == [
            (3, 7, ONE, 2**40), (4, 8, None, None), (5, 9, None, None)
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("-3", -3), ("7.5", None), ("", None), ("x", None), (None, None), ("9" * 19, None), ("9" * 18, 10**18 - 1)],
)  # fmt: skip
def test_only_whole_numbers_of_64_bits_are_numbers(text, number):
    with audit_tables() as tables:
        tables.put("texts", pa.table({"t": pa.array([text], pa.string())}))
        assert tables.select("SELECT whole(t) FROM texts") == [(number,)]


def test_the_sums_of_groups_are_those_of_the_ledger():
    seq, off = 3 * WINDOW + 17, 5 * MODULUS + 99
    with audit_tables() as tables:
        tables.put("one", pa.table({"seq": [seq], "off": [off]}))
        found = tables.select("SELECT place(seq), mark(seq, off), seq >> 12 FROM one")
    assert found == [(seq % WINDOW, (seq % WINDOW + 1) * (off % MODULUS), seq // WINDOW)]


def test_all_findings_are_written_as_parquet(tmp_path):
    with audit_tables() as tables:
        tables.put(
            "findings",
            pa.table({
                "kind": ["lost", "duplicated"], "seq": [2**40, 7], "partition": pa.array([0, 1], pa.int32()), "off": [5, 6],
                "session": pa.array([ONE.bytes] * 2, pa.uuid()), "other_partition": pa.array([None, 2], pa.int32()),
                "other_off": pa.array([None, 9], pa.int64()),
            }),
        )  # fmt: skip
        done = written(replace(report(), audit_id="a"), tables, tmp_path / "found", None)

    assert done.findings_path == str(tmp_path / "found" / "a")
    assert [one.name for one in (tmp_path / "found").iterdir()] == ["a"]
    with duckdb.connect() as connection:
        rows = connection.execute(f"FROM '{done.findings_path}/*.parquet'").fetchall()
    assert rows == [
        ("duplicated", f"{ONE}-7", 1, 6, 2, 9, ONE.bytes, 7),
        ("lost", f"{ONE}-{2**40}", 0, 5, None, None, ONE.bytes, 2**40),
    ]


def test_every_rule_is_run():
    source = "".join(file.read_text() for file in Path(package.__file__).parent.glob("*.py"))
    named = {*re.findall(r'"(\w+)"', source)}
    assert {*rules("ledgers", "comparison", "verdicts")} <= named
