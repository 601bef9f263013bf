"""Read Parquet files from untrusted sources in bounded memory, and reject decompression bombs.

A file of a few kilobytes can hold gigabytes: it stores a value of a few megabytes once, and a million rows refer to it.
Columns with a dictionary are therefore read as references and converted to Python values a few rows at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

BATCH_BYTES = 32 << 20
"""Bytes of values that are unpacked at a time, unless a single row has more."""

_MIN_BOMB_BYTES, _MAX_RATIO = 64 << 20, 1000
"""Ordinary files stay below both: text that compresses to a thousandth is repeated, and so is in a dictionary."""
_MAX_NESTED_VALUES = 10_000_000
_TRAILER = 8
_MAX_COLUMNS = 50_000
_MAX_FOOTER_BYTES = 64 << 20
"""Maximum size of a file's footer, which describes its columns. In memory it takes many times as much."""


class DecompressionBomb(ValueError):
    """The file would unpack to far more than its size."""


def open_file(source: Any) -> pyarrow.parquet.ParquetFile:
    """Open a file with dictionary columns as dictionary arrays. Raise DecompressionBomb, or pyarrow's errors."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    _check_footer(source)
    with_types = ParquetFile(source)
    metadata = with_types.metadata
    _check_sizes(metadata)
    try:
        return ParquetFile(source, metadata=metadata, read_dictionary=_dictionary_columns(metadata))
    except KeyError as error:
        raise ArrowInvalid(f"its footer names a column that is not in its schema: {error}") from error


def read_schema(source: Any) -> pyarrow.Schema:
    """Return the schema that the writer stored."""
    from pyarrow.parquet import read_schema

    _check_footer(source)
    return read_schema(source)


def split_batch(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Split a batch so that the values of each part take about BATCH_BYTES bytes, or the part is one row."""
    rows = max(batch.num_rows, 1)
    size = sum(_unpacked_size(column) for column in batch.columns) // rows
    step = max(1, min(rows, BATCH_BYTES // max(size, 1)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _check_footer(source: Any) -> None:
    file = source.open("rb") if isinstance(source, Path) else source
    try:
        if file.seek(0, os.SEEK_END) >= _TRAILER:
            file.seek(-_TRAILER, os.SEEK_END)
            length = int.from_bytes(file.read(_TRAILER)[:4], "little")
            if _MAX_FOOTER_BYTES < length <= file.tell():
                raise DecompressionBomb(f"its footer has {length:,} bytes")
    finally:
        if file is source:
            file.seek(0)
        else:
            file.close()


def _check_sizes(metadata: pyarrow.parquet.FileMetaData) -> None:
    if metadata.num_columns > _MAX_COLUMNS:
        raise DecompressionBomb(f"it has {metadata.num_columns:,} columns")
    for chunk in _chunks(metadata):
        packed, unpacked = max(chunk.total_compressed_size, 1), chunk.total_uncompressed_size
        if unpacked > _MIN_BOMB_BYTES and unpacked > _MAX_RATIO * packed:
            raise DecompressionBomb(
                f"the column {chunk.path_in_schema} unpacks from {packed:,} to {unpacked:,} bytes"
            )
        if "." in chunk.path_in_schema and chunk.num_values > max(_MAX_NESTED_VALUES, _MAX_RATIO * packed):
            raise DecompressionBomb(
                f"the column {chunk.path_in_schema} has {chunk.num_values:,} values in {packed:,} bytes"
            )
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        packed = max(sum(chunk.total_compressed_size for chunk in chunks), 1)
        unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
        if unpacked > _MIN_BOMB_BYTES and unpacked > _MAX_RATIO * packed:
            raise DecompressionBomb(f"its row group {number} unpacks from {packed:,} to {unpacked:,} bytes")


def _dictionary_columns(metadata: pyarrow.parquet.FileMetaData) -> Sequence[str]:
    found = {
        chunk.path_in_schema
        for chunk in _chunks(metadata)
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    }
    return sorted(found)


def _chunks(metadata: pyarrow.parquet.FileMetaData) -> Iterator[Any]:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        yield from (row_group.column(place) for place in range(row_group.num_columns))


def _unpacked_size(column: pyarrow.Array) -> int:
    """Return an upper bound of the bytes that a column's values take without their dictionary."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        longest = (
            compute.max(compute.binary_length(column.dictionary)).as_py() if len(column.dictionary) else 0
        )
        return len(column) * int(longest or 0)
    if types.is_struct(kind):
        return sum(_unpacked_size(column.field(place)) for place in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind):
        return _unpacked_size(column.flatten())
    return int(column.nbytes)
