"""Convert telemetry records from JSON to one Arrow table of the store's types; separate those that do not fit.

Whole columns are converted at once, in about 20 µs a record; Spark's SQL, which converts cell by cell, took twenty
times as long. A value of another type is rejected, never converted: a single row that the store refuses would stop
the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, get_args, get_type_hints

import orjson
import pyarrow as pa

from producer_core.metrics.batch import KINDS
from producer_core.metrics.telemetry import HIGHEST, SCHEMA_VERSION
from producer_core.store import ProducerRow

_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_SMALL = ("bucket", "broker_id")
"""INTEGER in the store."""
_ALWAYS = ("statistics", "latencies", "errors")
"""Kinds that every batch has; the others were added later, and older producers do not send them."""
_TIMES = ("window_start", "started_at", "seen_at", "closed_at")
_LATEST = 253_402_300_800
"""10000-01-01, beyond the calendars of Python and DuckDB: one such row would break every page and report."""
_VERSIONS = range(-(2**31), 2**31)
_CHUNK_BYTES = 1 << 20
"""Bytes of JSON that exist as Python objects at the same time; the objects take about ten times as many bytes."""
_CONVERSION_ERRORS = (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException)

Record = Mapping[str, Any]
Numbered = Sequence[tuple[int, Record]]


@dataclass(frozen=True)
class TypedBatch:
    """Hold the converted records and the positions of the rejected ones.

    `batches` has one row per record; its kinds are lists of structs with the store's columns. `rejected` maps the
    position of each other record to its schema version; None marks a value that is not telemetry at all.
    """

    batches: pa.Table
    rejected: Mapping[int, int | None]


def to_table(values: Iterable[bytes | None]) -> TypedBatch:
    """Convert values to a table of `SCHEMA`; output of `producer_core.metrics.telemetry.encode` always fits."""
    tables: list[pa.Table] = []
    rejected: dict[int, int | None] = {}
    for chunk in _chunks(values):
        _add(list(_readable(chunk, rejected)), tables, rejected)
    return TypedBatch(
        pa.concat_tables(tables) if tables else SCHEMA.empty_table(), dict(sorted(rejected.items()))
    )


def _chunks(values: Iterable[bytes | None]) -> Iterator[list[tuple[int, bytes | None]]]:
    chunk: list[tuple[int, bytes | None]] = []
    size = 0
    for numbered in enumerate(values):
        chunk.append(numbered)
        size += len(numbered[1] or b"")
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _readable(
    values: Sequence[tuple[int, bytes | None]], rejected: dict[int, int | None]
) -> Iterator[tuple[int, Record]]:
    """Yield the batches of this schema version; add the other values to `rejected`."""
    for place, value in values:
        try:
            record = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict) and record.get("v") == SCHEMA_VERSION and _is_batch(record):
            yield place, record
        else:
            rejected[place] = _version(record)


def _is_batch(record: Record) -> bool:
    sequence, first = record.get("sequence"), record.get("first")
    return (
        type(record["v"]) is int
        and isinstance(record.get("producer_id"), str)
        and type(sequence) is int  # excludes bool
        and 0 <= sequence <= HIGHEST
        and (first is None or (type(first) is int and 0 <= first <= sequence))
    )


def _version(record: Any) -> int | None:
    version = record.get("v") if isinstance(record, dict) else None
    return version if type(version) is int and version in _VERSIONS else None


def _add(records: Numbered, tables: list[pa.Table], rejected: dict[int, int | None]) -> None:
    """Convert all records at once; on a failure, split in halves until the record that does not fit is alone."""
    if not records:
        return
    try:
        tables.append(_table([record for _, record in records]))
    except _CONVERSION_ERRORS:
        if len(records) == 1:
            rejected[records[0][0]] = SCHEMA_VERSION
            return
        half = len(records) // 2
        _add(records[:half], tables, rejected)
        _add(records[half:], tables, rejected)


def _table(records: Sequence[Record]) -> pa.Table:
    def column(name: str) -> list[Any]:
        return [record.get(name) for record in records]

    sequences = column("sequence")
    firsts = [
        first if first is not None else own for first, own in zip(column("first"), sequences, strict=True)
    ]
    arrays = [
        pa.array(column("producer_id"), pa.string()),
        pa.array(firsts, pa.int64()),
        pa.array(sequences, pa.int64()),
        *(_lists(column(name), kind.row, always=name in _ALWAYS) for name, kind in KINDS.items()),
        _heartbeats(column("producer"), column("application")),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _lists(kinds: Sequence[Any], row: type[Any], *, always: bool) -> pa.ListArray:
    """Return the rows of one kind: a list of structs per record."""
    lists = [rows if always or rows is not None else [] for rows in kinds]
    if not {list}.issuperset(map(type, lists)):
        raise TypeError("the rows are not a list")
    ends = accumulate(map(len, lists), initial=0)
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), _structs(list(chain.from_iterable(lists)), row)
    )


def _heartbeats(rows: Sequence[Any], applications: Sequence[Any]) -> pa.StructArray:
    """Return one struct per record, null for a record without a heartbeat. The application is a field of the record."""
    _check_lists([row for row in rows if row is not None])
    given = [
        [*row, "" if name is None else name]
        for row, name in zip(rows, applications, strict=True)
        if row is not None
    ]
    structs = _structs(given, ProducerRow)
    places = accumulate(row is not None for row in rows)
    return structs.take(
        pa.array(
            [at - 1 if row is not None else None for at, row in zip(places, rows, strict=True)], pa.int64()
        )
    )


def _check_lists(rows: Sequence[Any]) -> None:
    if not {list}.issuperset(map(type, rows)):
        raise TypeError("a row is not a list")


def _structs(rows: Sequence[Any], kind: type[Any]) -> pa.StructArray:
    _check_lists(rows)
    columns_of_kind = _COLUMNS[kind]
    # raises ValueError for rows of unequal length
    columns: Any = zip(*rows, strict=True) if rows else ((),) * len(columns_of_kind)
    arrays = [make(column) for make, column in zip(columns_of_kind, columns, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(_struct(kind)))


def _column(name: str, hint: Any) -> Callable[[Sequence[Any]], pa.Array]:
    """Return a function that makes an array and rejects values of other types.

    `pa.array` alone would turn 1.5 into 1 and True into 1.0.
    """
    wanted, allowed = _type(name, hint), _allowed(hint)

    def make(values: Sequence[Any]) -> pa.Array:
        if not allowed.issuperset(map(type, values)):
            raise TypeError(f"some values are not {wanted}")
        made = pa.array(values, wanted)
        if wanted == pa.int64():
            _check_size(made)
        if name in _TIMES:
            _check_time(made)
        return made

    return make


def _check_size(made: pa.Array) -> None:
    """Raise ValueError for a number whose sum with others could exceed 64 bits, because that would stop every
    rollup."""
    from pyarrow import compute

    ends = compute.min_max(made).as_py()
    if max(abs(ends["min"] or 0), abs(ends["max"] or 0)) > HIGHEST:
        raise ValueError("a number is greater than 2**53")


def _check_time(made: pa.Array) -> None:
    """Raise ValueError for a time outside the calendar. Times of a wrong clock are accepted and counted."""
    from pyarrow import compute

    ends = compute.min_max(made).as_py()
    if (ends["min"] or 0) < 0 or (ends["max"] or 0) >= _LATEST:
        raise ValueError("a time is outside the years 1970 to 9999")


def _allowed(hint: Any) -> frozenset[type]:
    """Whole numbers may stand where a float belongs."""
    types = frozenset(get_args(hint) or (hint,))
    return types | {int} if float in types else types


def _type(name: str, hint: Any) -> pa.DataType:
    """Arrow's type for a row's field; `X | None` is X, as every column may be null."""
    if name in _SMALL:
        return pa.int32()
    return _TYPES[next((part for part in get_args(hint) if part is not type(None)), hint)]


def _struct(kind: type[Any]) -> pa.StructType:
    return pa.struct([(name, _type(name, hint)) for name, hint in get_type_hints(kind).items()])


_COLUMNS = {
    kind: [_column(name, hint) for name, hint in get_type_hints(kind).items()]
    for kind in (ProducerRow, *(kind.row for kind in KINDS.values()))
}

SCHEMA = pa.schema(
    [("producer_id", pa.string()), ("first", pa.int64()), ("sequence", pa.int64())]
    + [(name, pa.list_(_struct(kind.row))) for name, kind in KINDS.items()]
    + [("producer", _struct(ProducerRow))]
)
"""One row per batch."""
