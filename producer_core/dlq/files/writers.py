"""The writers of the three formats: each takes records a slice at a time and holds a bounded part of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from producer_core.dlq.files import csv_cells
from producer_core.dlq.files.manifest import FORMAT_VERSION, Format
from producer_core.dlq.files.record import COLUMNS, Record, as_text, look, masked_line, raw_line
from producer_core.dlq.files.record import cells as cells_of

if TYPE_CHECKING:
    import pyarrow

    from producer_core.dlq.files.atomic_file import AtomicFile

METADATA = b"producer_core"
"""The key of what a Parquet file says of itself: {"format_version": 1, "masked": false}."""

_GROUP_ROWS, _GROUP_BYTES = 20_000, 32 << 20
_BOM = b"\xef\xbb\xbf"  # else Excel takes UTF-8 for something older


class RecordWriter(Protocol):
    """Writes records into a draft. `close` ends the file's form, not the draft; `abandon` gives it up."""

    def write(self, records: Sequence[Record]) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class LinesWriter:
    """JSON Lines."""

    def __init__(self, file: AtomicFile, *, masked: bool) -> None:
        self._file, self._masked = file, masked

    def write(self, records: Sequence[Record]) -> None:
        line = masked_line if self._masked else raw_line
        self._file.write(b"".join(map(line, records)))

    def close(self) -> None:
        """The last line is the end."""

    def abandon(self) -> None:
        """Nothing is held."""


class CsvWriter(LinesWriter):
    """CSV: comma, quotes, CRLF, UTF-8 with its mark; safe to open in a spreadsheet."""

    def __init__(self, file: AtomicFile, *, masked: bool) -> None:
        super().__init__(file, masked=masked)
        file.write(_BOM + csv_cells.line(list(COLUMNS)))

    def write(self, records: Sequence[Record]) -> None:
        seen = (look(record, reveal=not self._masked) for record in records)
        self._file.write(b"".join(csv_cells.line(cells_of(one)) for one in seen))


class ParquetWriter:
    """Parquet: a row group of a bounded size at a time."""

    def __init__(self, file: AtomicFile, *, masked: bool) -> None:
        import pyarrow.parquet

        self._masked = masked
        self._schema = schema(masked=masked)
        self._sink = pyarrow.PythonFile(file, mode="w")
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._waiting: list[Any] = []
        self._rows = self._size = 0

    def write(self, records: Sequence[Record]) -> None:
        more = batch(records, masked=self._masked)
        self._waiting.append(more)
        self._rows += more.num_rows
        self._size += more.nbytes
        if self._rows >= _GROUP_ROWS or self._size >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """A writer that is forgotten writes its end when it is collected: let it do so now, into nothing."""
        self._waiting = []
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()

    def _write_group(self) -> None:
        import pyarrow

        if self._waiting:
            table = pyarrow.Table.from_batches(self._waiting, schema=self._schema)
            self._waiting, self._rows, self._size = [], 0, 0
            self._writer.write_table(table, row_group_size=table.num_rows)


WRITERS: dict[Format, Callable[..., RecordWriter]] = {
    "parquet": ParquetWriter,
    "jsonl": LinesWriter,
    "csv": CsvWriter,
}


def schema(*, masked: bool) -> pyarrow.Schema:
    """The columns of a Parquet file. A masked one has text where a raw one has bytes."""
    import pyarrow as pa

    text, number, moment = pa.string(), pa.int64(), pa.float64()
    data = text if masked else pa.binary()
    types = {
        **dict.fromkeys(("partition", "replay_count", "landed_partition"), pa.int32()),
        **dict.fromkeys(("value_size", "timestamp_ms", "landed_offset"), number),
        **dict.fromkeys(("quarantined", "replayable"), pa.bool_()),
        **dict.fromkeys(("accepted_at", "failed_at", "state_at"), moment),
        **dict.fromkeys(("key", "value"), data),
        "headers": pa.list_(pa.struct([("name", text), ("value", data)])),
        "attempts": pa.list_(pa.struct([("failed_at", moment), ("code", text), ("text", text)])),
    }
    said = orjson.dumps({"format_version": FORMAT_VERSION, "masked": masked})
    return pa.schema([(name, types.get(name, text)) for name in COLUMNS], metadata={METADATA: said})


def batch(records: Sequence[Record], *, masked: bool) -> pyarrow.RecordBatch:
    """Records as columns."""
    import pyarrow

    rows = [_masked_row(record) for record in records] if masked else records
    fields = schema(masked=masked)
    columns = [pyarrow.array([row[field.name] for row in rows], type=field.type) for field in fields]
    return pyarrow.RecordBatch.from_arrays(columns, schema=fields)


def _masked_row(record: Record) -> Record:
    seen = look(record)
    headers = [(name, as_text(value)) for name, value in seen["headers"]]
    return {**seen, "value": as_text(seen["value"]), "headers": headers}
