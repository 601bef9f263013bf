"""Parquet files that unpack to far more than they are: `dlq import` and `send` read them in bounded memory."""

from __future__ import annotations

import pyarrow
import pytest
from pyarrow import parquet as writer

from producer_core import parquet

VALUE = b"x" * (1 << 20)
ROWS = 300


@pytest.fixture
def repeated(tmp_path):
    """A file of some kilobytes with 300 MB of values, each of which stands there as a reference."""
    path = tmp_path / "repeated.parquet"
    values = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * ROWS, pyarrow.int32()), [VALUE])
    table = pyarrow.table({"n": range(ROWS), "value": values})
    writer.write_table(table, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    return path


def test_repeated_values_are_unpacked_a_few_rows_at_a_time(repeated):
    parts = [part for batch in parquet.opened(repeated).iter_batches(1024) for part in parquet.slices(batch)]

    assert sum(part.num_rows for part in parts) == ROWS
    assert max(part.num_rows for part in parts) <= parquet.AT_ONCE // len(VALUE)
    assert parts[-1].column("value").dictionary_decode().to_pylist()[-1] == VALUE
    assert parquet.opened(repeated).read_row_group(0).nbytes < 2 * len(VALUE)


def test_the_schema_is_the_one_that_was_written(repeated):
    assert parquet.schema_of(repeated).field("value").type == pyarrow.binary()


def test_a_page_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    path = tmp_path / "zeros.parquet"
    table = pyarrow.table({"value": [b"\0" * (80 << 20)]})
    writer.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 100_000

    with pytest.raises(parquet.Bomb, match="unpacks from"):
        parquet.opened(path)


def test_ordinary_rows_are_read_in_whole_batches(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [{"n": n, "name": f"name-{n % 7}", "tags": [{"tag": "a"}, {"tag": None}]} for n in range(2000)]
    writer.write_table(pyarrow.Table.from_pylist(rows), path)

    parts = [part for batch in parquet.opened(path).iter_batches(1024) for part in parquet.slices(batch)]

    assert [part.num_rows for part in parts] == [1024, 976]
    assert [row for part in parts for row in part.to_pylist()] == rows
