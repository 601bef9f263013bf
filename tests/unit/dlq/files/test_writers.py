"""The writers: formulas, times out of range, and many row groups."""

from __future__ import annotations

import csv
import io
import math

import pyarrow.parquet

from producer_core.dlq import DeadLetters
from producer_core.dlq.files import csv_cells, export, import_, selection, writers
from tests.fixtures.replays import add_dead_letters, dead_letter
from tests.fixtures.transfers import ANY, ME, all_rows


def test_no_cell_of_a_csv_file_is_a_formula(store, tmp_path):
    evil = "=HYPERLINK(1)"
    DeadLetters(store).add(
        [
            dead_letter(
                1,
                topic=evil,
                key=b"+1",
                value=b"@SUM(1)",
                error_text='-1+cmd|" /C calc"!A0',
                source="\t=1",
                host="x;=1+1",
                headers=(("=1", b"=2"),),
                timestamp_ms=-5,
            ),
            dead_letter(2, key=b"", value=None, source=None),
        ]
    )
    export(store, ANY, tmp_path / "a.csv", **ME)

    text = (tmp_path / "a.csv").read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))

    for row in rows:
        for cell in row.values():
            assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
    assert csv_cells.plain(rows[0]["topic"]) == evil
    assert csv_cells.plain(rows[0]["timestamp_ms"]) == "-5"
    assert csv_cells.plain(rows[0]["host"]) == "x;=1+1"
    assert ";=1" not in text
    assert '"orders",,"","0' not in text
    assert ',"",,"dead"' in text  # an empty key, and a tombstone of no size


def test_a_file_with_several_row_groups_is_complete(store, other, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "SLICE", 3)
    monkeypatch.setattr(writers, "_GROUP_ROWS", 6)
    add_dead_letters(store, 20)

    export(store, ANY, tmp_path / "a.parquet", **ME)
    import_(other, tmp_path / "a.parquet", **ME)

    assert pyarrow.parquet.ParquetFile(tmp_path / "a.parquet").num_row_groups == 4
    assert all_rows(other, "verdict", "verdict_reason") == all_rows(store, "verdict", "verdict_reason")


def test_extreme_times_do_not_prevent_a_csv_export(store, tmp_path):
    DeadLetters(store).add([dead_letter(1, accepted_at=1e15, failed_at=-1e15)])
    assert math.isfinite(export(store, ANY, tmp_path / "a.csv", **ME).rows)
