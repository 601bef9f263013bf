"""The reader of Parquet: rows as JSON objects, timestamps as ISO 8601, binary as base64, decimals as text."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import orjson

from producer_core._internal import untrusted_parquet
from producer_core.cli.send.input_file import InputError, InputSource, readable
from producer_core.cli.send.rows import InputRow, InputRows, MalformedRow

if TYPE_CHECKING:
    import pyarrow

_ROWS_AT_ONCE = 1024


class ParquetRows(InputRows):
    """Reads batches of about a thousand rows. A pipe is copied to disk first: the index of Parquet is at its end."""

    unit = "row"

    def __init__(self, source: InputSource, *, skip: int = 0) -> None:
        super().__init__(source, skip=skip)
        self._read = 0
        self._total: int | None = None
        self._file: Any = None

    def progress(self) -> tuple[int, int | None]:
        return self._read, self._total

    content = progress

    @property
    def covered(self) -> int:
        return self._read

    def prepare(self) -> None:
        if self._file is not None:
            return
        import pyarrow

        self.source.keep()
        try:
            self._file = untrusted_parquet.open_file(self._decompressed())
            self.columns = tuple(self._file.schema_arrow.names)
        except untrusted_parquet.DecompressionBomb as error:
            raise InputError(
                f"{self.name} is refused: {_text(error)}.", fix="Reading such a file would exhaust memory."
            ) from error
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.name} is not a Parquet file: {_text(error)}.") from error
        self._total = self._file.metadata.num_rows
        if len(set(self.columns)) < len(self.columns):
            raise InputError(
                f"{self.name} has a duplicate column name; one column would be lost.",
                fix="Rename one of the columns.",
            )

    def _decompressed(self) -> IO[bytes]:
        """Return the file. Decompress to disk, because the content may be larger than the memory."""
        if self.source.stream is self.source.raw:
            return self.source.stream
        compressed = self.source.stream
        self.source.stream = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as this source
        with readable(self.name), compressed:
            shutil.copyfileobj(compressed, self.source.stream, 1 << 20)
        return self.source.stream

    def _rows(self) -> Iterator[InputRow | MalformedRow]:
        self.prepare()
        for batch in self._batches():
            if self._read + batch.num_rows <= self.skip:
                self._read += batch.num_rows
                continue
            for value in self._each(batch):
                if self._stopped:
                    return
                self._read += 1
                if self._read > self.skip:
                    yield InputRow(self._read, value, value, b"")

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        try:
            yield from self._file.iter_batches(batch_size=_ROWS_AT_ONCE)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.name} is damaged after row {self._read}: {_text(error)}.") from error

    def _each(self, batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any]]:
        import pyarrow

        try:
            for part in untrusted_parquet.split_batch(batch):
                yield from self._values(part)
        except pyarrow.ArrowException as error:  # a reference to a value that the dictionary lacks
            raise InputError(f"{self.name} is damaged after row {self._read}: {_text(error)}.") from error

    def _values(self, batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any]]:
        names = batch.schema.names
        columns = [self._plain(name, column) for name, column in zip(names, batch.columns, strict=True)]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))

    def _plain(self, name: str, column: pyarrow.Array) -> list[Any]:
        """Return a column as Python values that JSON can represent."""
        import pyarrow
        from pyarrow import types

        kind = column.type
        if types.is_dictionary(kind):
            return self._plain(name, column.dictionary_decode())
        if types.is_timestamp(kind):
            return _iso(column)
        if types.is_duration(kind):
            return [None if ticks is None else _duration(ticks, kind.unit) for ticks in _integers(column)]
        if types.is_time(kind):
            return [None if text is None else text for text in column.cast(pyarrow.string()).to_pylist()]
        try:
            values: list[Any] = column.to_pylist()
        except (ValueError, OverflowError, pyarrow.ArrowException) as error:
            raise InputError(
                f"The column {name!r} of {self.name} ({kind}) cannot be represented in JSON: {_text(error)}.",
                fix="Cast the column, or drop it.",
            ) from error
        if types.is_primitive(kind) or types.is_string(kind) or types.is_large_string(kind):
            return values
        return [_without_bytes(value) for value in values]


def _text(error: Exception) -> str:
    return str(error).rstrip(".")


def raw_of(value: Any) -> bytes:
    """Return a row without raw bytes as JSON. NaN becomes null."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


def _iso(column: pyarrow.Array) -> list[str | None]:
    """Return timestamps of any unit as ISO 8601. Those with a zone are in UTC, so no zone data is needed."""
    import pyarrow
    import pyarrow.compute

    zoned = column.type.tz is not None
    naive = pyarrow.compute.cast(column, pyarrow.timestamp(column.type.unit))
    texts = pyarrow.compute.cast(naive, pyarrow.string()).to_pylist()
    return [None if text is None else text.replace(" ", "T", 1) + "Z" * zoned for text in texts]


def _integers(column: pyarrow.Array) -> list[int | None]:
    import pyarrow

    found: list[int | None] = column.cast(pyarrow.int64()).to_pylist()
    return found


def _duration(ticks: int, unit: str) -> str:
    """Return an exact ISO 8601 duration in seconds."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    whole, rest = divmod(abs(ticks), 10**digits)
    fraction = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{'-' * (ticks < 0)}PT{whole}{fraction}S"


def _without_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _without_bytes(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_bytes(item) for item in value]
    return value
