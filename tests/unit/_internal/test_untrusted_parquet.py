"""`dlq import` and `send` read Parquet files that unpack to far more than their size in bounded memory."""

from __future__ import annotations

import gzip
import random
import struct

import pyarrow
import pytest
from pyarrow import parquet as writer

from producer_core._internal import untrusted_parquet
from producer_core.cli.send.input_file import InputError, open_source
from producer_core.cli.send.parquet_rows import ParquetRows

VALUE = b"x" * (1 << 20)
ROWS = 300


@pytest.fixture
def repeated(tmp_path):
    """A file of a few kilobytes with 300 MB of values, each stored as a reference to one of them."""
    path = tmp_path / "repeated.parquet"
    values = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * ROWS, pyarrow.int32()), [VALUE])
    table = pyarrow.table({"n": range(ROWS), "value": values})
    writer.write_table(table, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    return path


def test_repeated_values_are_unpacked_a_few_rows_at_a_time(repeated):
    parts = [
        part
        for batch in untrusted_parquet.open_file(repeated).iter_batches(1024)
        for part in untrusted_parquet.split_batch(batch)
    ]

    assert sum(part.num_rows for part in parts) == ROWS
    assert max(part.num_rows for part in parts) <= untrusted_parquet.BATCH_BYTES // len(VALUE)
    assert parts[-1].column("value").dictionary_decode().to_pylist()[-1] == VALUE
    assert untrusted_parquet.open_file(repeated).read_row_group(0).nbytes < 2 * len(VALUE)


def test_the_schema_is_read_unchanged(repeated):
    assert untrusted_parquet.read_schema(repeated).field("value").type == pyarrow.binary()


@pytest.mark.slow
def test_a_page_that_unpacks_to_a_thousand_times_its_size_is_rejected(tmp_path):
    path = tmp_path / "zeros.parquet"
    table = pyarrow.table({"value": [b"\0" * (80 << 20)]})
    writer.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 100_000

    with pytest.raises(untrusted_parquet.DecompressionBomb, match="unpacks from"):
        untrusted_parquet.open_file(path)


def test_ordinary_rows_are_read_in_whole_batches(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [{"n": n, "name": f"name-{n % 7}", "tags": [{"tag": "a"}, {"tag": None}]} for n in range(2000)]
    writer.write_table(pyarrow.Table.from_pylist(rows), path)

    parts = [
        part
        for batch in untrusted_parquet.open_file(path).iter_batches(1024)
        for part in untrusted_parquet.split_batch(batch)
    ]

    assert [part.num_rows for part in parts] == [1024, 976]
    assert [row for part in parts for row in part.to_pylist()] == rows


def test_columns_that_together_unpack_to_a_thousand_times_their_size_are_rejected(tmp_path):
    path = tmp_path / "columns.parquet"
    zeros = pyarrow.array([b"\0" * (20 << 20)])
    table = pyarrow.table([zeros] * 5, names=[f"c{number}" for number in range(5)])
    writer.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)

    with pytest.raises(InputError, match="row group 0 unpacks from"):
        read(path)


@pytest.mark.slow
def test_a_hundred_thousand_columns_are_rejected(tmp_path):
    path = tmp_path / "wide.parquet"
    schema = pyarrow.schema([(f"c{number}", pyarrow.int8()) for number in range(100_000)])
    writer.write_table(schema.empty_table(), path)

    with pytest.raises(InputError, match="has 100,000 columns"):
        read(path)


def test_a_footer_of_gigabytes_is_rejected_before_it_is_read(tmp_path):
    path, length = tmp_path / "index.parquet", 1 << 30
    with path.open("wb") as file:
        file.write(b"PAR1")
        file.truncate(length + 4)
        file.seek(0, 2)
        file.write(struct.pack("<I", length) + b"PAR1")

    with pytest.raises(InputError, match="its footer has 1,073,741,824 bytes"):
        read(path)


def not_utf_8():
    offsets, data = pyarrow.py_buffer(struct.pack("<ii", 0, 2)), pyarrow.py_buffer(b"\xff\xfe")
    return pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, offsets, data])


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([2**31 - 1], pyarrow.int32()).cast(pyarrow.date32()),
        pyarrow.array([[{"x": 2**63 - 1}]], pyarrow.list_(pyarrow.struct([("x", pyarrow.timestamp("us"))]))),
        not_utf_8(),
        pyarrow.ListArray.from_arrays([0, 1], not_utf_8()),
    ],
    ids=["a date", "a nested moment", "a text", "a nested text"],
)
def test_a_value_that_cannot_be_converted_is_reported_with_its_column(tmp_path, column):
    path = tmp_path / "values.parquet"
    writer.write_table(pyarrow.table({"when": column}), path)

    with pytest.raises(InputError, match="The column 'when'"):
        read(path)


@pytest.mark.slow
def test_a_damaged_file_yields_its_rows_or_an_error_with_its_name(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [{"n": number, "s": f"v{number}"} for number in range(3000)]
    writer.write_table(pyarrow.Table.from_pylist(rows), path)
    intact, rng, reported_damage = path.read_bytes(), random.Random(1), 0
    index = len(intact) - 8 - int.from_bytes(intact[-8:-4], "little")

    for number in range(150):
        damaged = bytearray(intact)
        damaged[rng.randrange(index, len(intact) - 8) if number % 3 else rng.randrange(index)] ^= (
            1 << rng.randrange(8)
        )
        path.write_bytes(
            damaged[: rng.choice((len(intact), len(intact), len(intact), rng.randrange(len(intact))))]
        )
        try:
            read(path)
        except InputError as error:
            assert "rows.parquet" in str(error)
            reported_damage += 1
    assert reported_damage > 30


def test_a_compressed_file_is_unpacked_on_disk_and_its_damage_is_reported(tmp_path):
    path = tmp_path / "rows.parquet.gz"
    table = pyarrow.table({"n": range(2000)})
    writer.write_table(table, tmp_path / "rows.parquet")
    packed = gzip.compress((tmp_path / "rows.parquet").read_bytes())

    path.write_bytes(packed)
    assert len(read(path)) == 2000
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="the archive is damaged"):
        read(path)


def read(path):
    return list(ParquetRows(open_source(path)))
