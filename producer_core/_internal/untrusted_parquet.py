"""Parquet files of strangers: read in bounded memory, and refused where they unpack to far more than they are.

A file of some kilobytes can hold gigabytes: a value of megabytes stands in it once, and a million rows refer to it. So
columns with a dictionary are read as references, and become Python values a few rows at a time.
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
"""Bytes of values that are unpacked at once, unless one row has more."""

_LARGE, _RATIO = 64 << 20, 1000
"""Ordinary files are below both: text that compresses to a thousandth is repeated, and then in a dictionary."""
_MANY = 10_000_000
_END = 8
_WIDE = 50_000
_LONGEST_INDEX = 64 << 20
"""Bytes at the end of a file that describe its columns; they take many times as much in memory."""


class DecompressionBomb(ValueError):
    """The file would unpack to far more than it is."""


def open_file(source: Any) -> pyarrow.parquet.ParquetFile:
    """Open a file; Bomb, or what pyarrow raises. Columns with a dictionary are read as dictionary arrays."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    _check_index(source)
    with_types = ParquetFile(source)
    about = with_types.metadata
    _check(about)
    try:
        return ParquetFile(source, metadata=about, read_dictionary=_repeated(about))
    except KeyError as error:
        raise ArrowInvalid(f"its index names a column that is not in its schema: {error}") from error


def read_schema(source: Any) -> pyarrow.Schema:
    """Return the schema as the writer gave it."""
    from pyarrow.parquet import read_schema

    _check_index(source)
    return read_schema(source)


def split_batch(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Cut a batch so that the values of each part take about AT_ONCE bytes, or are one row."""
    rows = max(batch.num_rows, 1)
    size = sum(_unpacked(column) for column in batch.columns) // rows
    step = max(1, min(rows, BATCH_BYTES // max(size, 1)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _check_index(source: Any) -> None:
    file = source.open("rb") if isinstance(source, Path) else source
    try:
        if file.seek(0, os.SEEK_END) >= _END:
            file.seek(-_END, os.SEEK_END)
            length = int.from_bytes(file.read(_END)[:4], "little")
            if _LONGEST_INDEX < length <= file.tell():
                raise DecompressionBomb(f"its index has {length:,} bytes")
    finally:
        if file is source:
            file.seek(0)
        else:
            file.close()


def _check(about: pyarrow.parquet.FileMetaData) -> None:
    if about.num_columns > _WIDE:
        raise DecompressionBomb(f"it has {about.num_columns:,} columns")
    for chunk in _chunks(about):
        packed, unpacked = max(chunk.total_compressed_size, 1), chunk.total_uncompressed_size
        if unpacked > _LARGE and unpacked > _RATIO * packed:
            raise DecompressionBomb(
                f"the column {chunk.path_in_schema} unpacks from {packed:,} to {unpacked:,} bytes"
            )
        if "." in chunk.path_in_schema and chunk.num_values > max(_MANY, _RATIO * packed):
            raise DecompressionBomb(
                f"the column {chunk.path_in_schema} has {chunk.num_values:,} values in {packed:,} bytes"
            )
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        packed = max(sum(chunk.total_compressed_size for chunk in chunks), 1)
        unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
        if unpacked > _LARGE and unpacked > _RATIO * packed:
            raise DecompressionBomb(f"its row group {number} unpacks from {packed:,} to {unpacked:,} bytes")


def _repeated(about: pyarrow.parquet.FileMetaData) -> Sequence[str]:
    found = {
        chunk.path_in_schema
        for chunk in _chunks(about)
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    }
    return sorted(found)


def _chunks(about: pyarrow.parquet.FileMetaData) -> Iterator[Any]:
    for group in range(about.num_row_groups):
        row_group = about.row_group(group)
        yield from (row_group.column(place) for place in range(row_group.num_columns))


def _unpacked(column: pyarrow.Array) -> int:
    """Return an upper bound of the bytes that the values of a column take without their dictionary."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        longest = (
            compute.max(compute.binary_length(column.dictionary)).as_py() if len(column.dictionary) else 0
        )
        return len(column) * int(longest or 0)
    if types.is_struct(kind):
        return sum(_unpacked(column.field(place)) for place in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind):
        return _unpacked(column.flatten())
    return int(column.nbytes)
