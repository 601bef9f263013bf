"""Serialize a slice's dead letters, in their order, into one binary value of a DataFrame row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.delivery.dead_letter import ReplayRecord

if TYPE_CHECKING:
    import pyarrow


def packed(dead_letters: Sequence[ReplayRecord]) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _schema()) as stream:
        stream.write_table(pa.Table.from_pylist(list(map(_row, dead_letters)), schema=_schema()))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: bytes) -> list[ReplayRecord]:
    import pyarrow as pa

    with pa.ipc.open_stream(content) as stream:
        return [_dead_letter(row) for row in stream.read_all().to_pylist()]


def _row(dead_letter: ReplayRecord) -> dict[str, Any]:
    return dead_letter._asdict() | {
        "headers": [{"name": name, "value": value} for name, value in dead_letter.headers]
    }


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("message_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()),
            ("value", pa.binary()), ("headers", pa.list_(header)), ("timestamp_ms", pa.int64()),
            ("accepted_at", pa.float64()), ("verdict", pa.string()), ("verdict_reason", pa.string()),
        ]
    )  # fmt: skip


def _dead_letter(row: Mapping[str, Any]) -> ReplayRecord:
    headers = tuple((header["name"], header["value"]) for header in row["headers"])
    return ReplayRecord(**{**row, "headers": headers})
