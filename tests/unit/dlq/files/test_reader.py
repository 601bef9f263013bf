"""The reader skips and reports bad records, and refuses a file of another schema."""

from __future__ import annotations

import json
import os
import tracemalloc

import pyarrow.parquet
import pytest

from producer_core.dlq.files import export, import_, reader, selection, writers
from producer_core.errors import TransferError
from tests.fixtures.replays import add_dead_letters
from tests.fixtures.transfers import ANY, ME, all_rows, audit, rewrite

ROWS = 300


def test_invalid_lines_are_reported_and_the_others_are_imported(store, other, tmp_path):
    ids = add_dead_letters(store, 12)
    target = tmp_path / "a.jsonl"
    export(store, ANY, target, **ME)

    def change(lines):
        records = [json.loads(line) for line in lines]
        records[0]["verdict"] = "certainly"
        records[1]["value_base64"] = "not base64"
        records[2]["message_id"] = "not an id"
        records[3]["partition"] = 2**31
        records[4]["value_size"] = 7
        del records[5]["topic"]
        records[6]["headers_base64"] = [["a"]]
        records[7]["failed_at"] = 1e300
        records[8] = ["not an object"]
        out = [json.dumps(record).encode() + b"\n" for record in records]
        return [*out[:10], b"\n", out[10], out[11][:40]]

    rewrite(target, change)
    done = import_(other, target, **ME, no_manifest=True)

    assert (done.new, done.refused) == (2, 10)
    assert [one.place.split(" (")[0] for one in done.bad] == [
        f"line {number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13)
    ]
    assert ids[0] in done.bad[0].place
    assert "certainly" in done.bad[0].reason
    assert {row["message_id"] for row in all_rows(other)} == set(ids[9:11])
    assert "10 rows rejected" in audit(other)[-1][2]


@pytest.mark.slow
def test_only_the_damaged_rows_of_a_parquet_file_are_rejected(store, other, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "SLICE", 5)
    monkeypatch.setattr(writers, "_GROUP_ROWS", 5)
    add_dead_letters(store, 15, value=os.urandom(400))
    target = tmp_path / "a.parquet"
    export(store, ANY, target, **ME)
    file = pyarrow.parquet.ParquetFile(target)
    place = file.metadata.row_group(1).column(file.schema_arrow.get_field_index("message_id"))
    raw = bytearray(target.read_bytes())
    begin = place.dictionary_page_offset or place.data_page_offset
    raw[begin : begin + place.total_compressed_size] = b"\xff" * place.total_compressed_size
    target.write_bytes(raw)

    with pytest.raises(TransferError, match="sha256"):
        import_(other, target, **ME)
    done = import_(other, target, **ME, no_manifest=True)

    assert (done.new, done.refused) == (10, 5)
    assert done.bad[0].place == "rows 6 to 10"


def test_a_parquet_file_of_another_program_is_rejected(other, tmp_path):
    table = pyarrow.table({"message_id": ["a"], "value": [b"x"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    with pytest.raises(TransferError, match="not written by dlq export"):
        import_(other, tmp_path / "a.parquet", **ME, no_manifest=True)
    (tmp_path / "b.parquet").write_text("nonsense")
    with pytest.raises(TransferError, match="not a readable Parquet file"):
        import_(other, tmp_path / "b.parquet", **ME, no_manifest=True)


def test_repeated_values_of_an_export_are_unpacked_a_few_rows_at_a_time(store, tmp_path):
    [_] = add_dead_letters(store, 1, value=b"x" * (1 << 20))
    target, repeated = tmp_path / "a.parquet", tmp_path / "repeated.parquet"
    export(store, ANY, target, **ME)
    row = pyarrow.parquet.read_table(target)
    pyarrow.parquet.write_table(
        pyarrow.concat_tables([row] * ROWS).combine_chunks(), repeated, compression="zstd"
    )
    assert repeated.stat().st_size < 1 << 20

    tracemalloc.start()
    try:
        count = sum(len(items) for items in reader.read(repeated, "parquet"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert count == ROWS
    assert peak < 100 << 20  # of 300 MB


@pytest.mark.slow
def test_an_export_that_unpacks_to_a_thousand_times_its_size_is_rejected(other, tmp_path):
    table = pyarrow.table({"value": [b"\0" * (80 << 20)]})
    pyarrow.parquet.write_table(
        table, tmp_path / "zeros.parquet", compression="zstd", use_dictionary=False, write_statistics=False
    )

    with pytest.raises(TransferError, match="decompression bomb"):
        import_(other, tmp_path / "zeros.parquet", **ME, no_manifest=True)
