"""Read the dead letters of a file in slices of limited size; invalid records are returned as rejected."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from producer_core._internal import untrusted_parquet
from producer_core.dlq.files.manifest import FORMAT_VERSION, Format
from producer_core.dlq.files.validation import ABSENT_EARLIER, ImportedRecord, imported_record
from producer_core.dlq.files.writers import METADATA, schema
from producer_core.errors import TransferError

if TYPE_CHECKING:
    import pyarrow

SLICE, SLICE_BYTES = 1000, 16 << 20
_LONGEST_LINE = 1 << 30


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A part of a file that is not a valid dead letter, with its place and the reason."""

    place: str
    reason: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


Item = ImportedRecord | RejectedRecord


def read(path: Path, file_format: Format) -> Iterator[list[Item]]:
    """Yield the records of the file in order. Raise TransferError for a masked or unreadable file."""
    items = _lines(path) if file_format == "jsonl" else _rows(path)
    slice_: list[Item] = []
    size = 0
    for item in items:
        slice_.append(item)
        size += (item.value_size or 0) if isinstance(item, ImportedRecord) else 0
        if len(slice_) >= SLICE or size >= SLICE_BYTES:
            yield slice_
            slice_, size = [], 0
    if slice_:
        yield slice_


def masked_file(path: Path) -> TransferError:
    """Return the error for a masked file."""
    return TransferError(
        f"{path} is masked, so its original content is missing and it cannot be imported.",
        fix="Export again without --masked.",
    )


# JSON Lines


def _lines(path: Path) -> Iterator[Item]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if line.strip():
                yield _line(path, number, line)


def _line(path: Path, number: int, line: bytes) -> Item:
    place = f"line {number:,}"
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return RejectedRecord(place, f"not JSON ({error})")
    if not isinstance(value, dict):
        return RejectedRecord(place, "not a JSON object")
    if value.get("masked"):
        raise masked_file(path)
    try:
        value["key"] = _bytes(value, "key_base64")
        value["value"] = _bytes(value, "original_value_base64" if value.get("revisions") else "value_base64")
        value["headers"] = [
            (name, _decoded(item, "headers")) for name, item in _field(value, "headers_base64")
        ]
        return imported_record(value)
    except (ValueError, TypeError) as error:
        return RejectedRecord(_place(place, value), str(error))


def _bytes(value: dict[str, Any], name: str) -> bytes | None:
    return _decoded(_field(value, name), name)


def _field(value: dict[str, Any], name: str) -> Any:
    if name not in value:
        raise ValueError(f"field {name!r} is missing")
    return value[name]


def _decoded(text: Any, name: str) -> bytes | None:
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not base64") from error


# Parquet


def _rows(path: Path) -> Iterator[Item]:
    import pyarrow

    try:
        found, file = untrusted_parquet.read_schema(path), untrusted_parquet.open_file(path)
    except untrusted_parquet.DecompressionBomb as error:
        raise TransferError(
            f"{path} was rejected: {error}.", fix="It may be a decompression bomb; check its source."
        ) from error
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TransferError(f"{path} is not a readable Parquet file: {error}.") from error
    with file:
        _check_schema(path, found)
        first = 1
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield from _group(file, group, first, rows)
            first += rows


def _check_schema(path: Path, found: pyarrow.Schema) -> None:
    try:
        metadata = orjson.loads((found.metadata or {})[METADATA])
        masked, version = metadata["masked"], metadata["format_version"]
    except (KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise TransferError(
            f"{path} was not written by dlq export.",
            fix="Use producer-core send for the rows of any other file.",
        ) from error
    if masked:
        raise masked_file(path)
    if version > FORMAT_VERSION:
        raise TransferError(f"{path} has the newer format version {version}.", fix="Upgrade producer-core.")
    for column in schema(masked=False):
        index = found.get_field_index(column.name)
        if index < 0 and column.name in ABSENT_EARLIER:
            continue
        if index < 0 or found.field(index).type != column.type:
            raise TransferError(f"{path} has no column {column.name!r} of type {column.type}.")


def _group(file: pyarrow.parquet.ParquetFile, group: int, first: int, rows: int) -> Iterator[Item]:
    import pyarrow

    row_bytes = file.metadata.row_group(group).total_byte_size // max(rows, 1)
    batch_size = max(1, min(SLICE, SLICE_BYTES // max(row_bytes, 1)))
    done = 0
    try:
        for batch in file.iter_batches(batch_size=batch_size, row_groups=[group]):
            for part in untrusted_parquet.split_batch(batch):
                for number, row in enumerate(part.to_pylist(), start=first + done):
                    yield _row(number, row)
                done += part.num_rows
    except (pyarrow.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        remaining = rows - done
        yield RejectedRecord(_row_numbers(first + done, first + rows - 1), f"damaged ({error})", remaining)


def _row(number: int, row: dict[str, Any]) -> Item:
    try:
        row["headers"] = [(pair["name"], pair["value"]) for pair in row["headers"]]
        row["attempts"] = [(one["failed_at"], one["code"], one["text"]) for one in row["attempts"]]
        row["revisions"] = orjson.loads(row["revisions"]) if row.get("revisions") else None
        return imported_record(row)
    except (ValueError, TypeError) as error:
        return RejectedRecord(_place(f"row {number:,}", row), str(error))


def _place(place: str, row: dict[str, Any]) -> str:
    """Return the place with the message id, if the record has one."""
    message_id = row.get("message_id")
    return f"{place} ({message_id[:80]})" if isinstance(message_id, str) and message_id else place


def _row_numbers(first: int, last: int) -> str:
    return f"row {first:,}" if first == last else f"rows {first:,} to {last:,}"
