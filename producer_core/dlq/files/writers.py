"""Write records as Parquet, JSON Lines or CSV, slice by slice, with limited memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from producer_core.dlq.files import csv_cells
from producer_core.dlq.files.manifest import FORMAT_VERSION, Format
from producer_core.dlq.files.record import COLUMNS, Record, as_text, displayed, masked_line, raw_line
from producer_core.dlq.files.record import cells as cells_of
from producer_core.dlq.files.revision_fields import revisions_raw

if TYPE_CHECKING:
    import pyarrow

    from producer_core.dlq.files.atomic_file import AtomicFile
    from producer_core.kafka.schemas.decoder import SchemaDecoder

METADATA = b"producer_core"
"""The key of the Parquet metadata {"format_version": 2, "masked": false}."""

_GROUP_ROWS, _GROUP_BYTES = 20_000, 32 << 20
_BOM = b"\xef\xbb\xbf"  # without it Excel does not recognize UTF-8


class RecordWriter(Protocol):
    """Writes records to a file. `close` completes the format but leaves the file open; `abort` ends a failed write."""

    def write(self, records: Sequence[Record]) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class LinesWriter:
    """Writes JSON Lines."""

    def __init__(self, file: AtomicFile, *, masked: bool, decoder: SchemaDecoder | None = None) -> None:
        self._file, self._masked, self._decoder = file, masked, decoder

    def write(self, records: Sequence[Record]) -> None:
        if self._masked:
            self._file.write(b"".join(masked_line(record, self._decoder) for record in records))
        else:
            self._file.write(b"".join(map(raw_line, records)))

    def close(self) -> None:
        """Do nothing; the format has no end marker."""

    def abort(self) -> None:
        """Do nothing; no record is buffered."""


class CsvWriter(LinesWriter):
    """Writes CSV with commas, quotes, CRLF and UTF-8 with a byte order mark; safe to open in a spreadsheet."""

    def __init__(self, file: AtomicFile, *, masked: bool, decoder: SchemaDecoder | None = None) -> None:
        super().__init__(file, masked=masked, decoder=decoder)
        file.write(_BOM + csv_cells.line(list(COLUMNS)))

    def write(self, records: Sequence[Record]) -> None:
        rows = (displayed(record, reveal=not self._masked, decoder=self._decoder) for record in records)
        self._file.write(b"".join(csv_cells.line(cells_of(row)) for row in rows))


class ParquetWriter:
    """Writes Parquet in row groups of limited size."""

    def __init__(self, file: AtomicFile, *, masked: bool, decoder: SchemaDecoder | None = None) -> None:
        import pyarrow.parquet

        self._masked, self._decoder = masked, decoder
        self._schema = schema(masked=masked)
        self._sink = pyarrow.PythonFile(file, mode="w")
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._rows = self._size = 0

    def write(self, records: Sequence[Record]) -> None:
        added = batch(records, masked=self._masked, decoder=self._decoder)
        self._batches.append(added)
        self._rows += added.num_rows
        self._size += added.nbytes
        if self._rows >= _GROUP_ROWS or self._size >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def abort(self) -> None:
        """Close the Parquet writer now; otherwise it writes a footer when it is garbage collected."""
        self._batches = []
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()

    def _write_group(self) -> None:
        import pyarrow

        if self._batches:
            table = pyarrow.Table.from_batches(self._batches, schema=self._schema)
            self._batches, self._rows, self._size = [], 0, 0
            self._writer.write_table(table, row_group_size=table.num_rows)


WRITERS: dict[Format, Callable[..., RecordWriter]] = {
    "parquet": ParquetWriter,
    "jsonl": LinesWriter,
    "csv": CsvWriter,
}


def schema(*, masked: bool) -> pyarrow.Schema:
    """Return the columns of a Parquet file. A masked file has text instead of bytes."""
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
    metadata = orjson.dumps({"format_version": FORMAT_VERSION, "masked": masked})
    return pa.schema([(name, types.get(name, text)) for name in COLUMNS], metadata={METADATA: metadata})


def batch(
    records: Sequence[Record], *, masked: bool, decoder: SchemaDecoder | None = None
) -> pyarrow.RecordBatch:
    """Return the records as a record batch."""
    import pyarrow

    rows = [_masked_row(record, decoder) for record in records] if masked else records
    fields = schema(masked=masked)
    rows = [{**row, "revisions": _revisions(row["revisions"], masked=masked)} for row in rows]
    columns = [pyarrow.array([row[field.name] for row in rows], type=field.type) for field in fields]
    return pyarrow.RecordBatch.from_arrays(columns, schema=fields)


def _revisions(revisions: Sequence[Any], *, masked: bool) -> str | None:
    """Return the revisions as JSON in a text, which Parquet keeps whatever their fields become. None without any."""
    if not revisions:
        return None
    return orjson.dumps(revisions if masked else revisions_raw(revisions)).decode()


def _masked_row(record: Record, decoder: SchemaDecoder | None) -> Record:
    masked = displayed(record, decoder=decoder)
    headers = [(name, as_text(value)) for name, value in masked["headers"]]
    return {**masked, "value": as_text(masked["value"]), "headers": headers}
