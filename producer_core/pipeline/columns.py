"""Telemetry records as columns: JSON to one Arrow table of the store's types, and what does not fit it told apart.

Whole columns are made at once, some 20 µs a record; Spark's SQL, cell by cell, took twenty times that. A value that
stands where another type belongs is refused, never changed: one refused row would stop the store's merge.
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
"""Kinds that each batch has; the others came later, and older producers do not send them."""
_TIMES = ("window_start", "started_at", "seen_at", "closed_at")
_LATEST = 253_402_300_800
"""10000-01-01, the first second of which no calendar here can speak: one such row would end every page and report."""
_VERSIONS = range(-(2**31), 2**31)
_AT_ONCE = 1 << 20
"""Bytes of JSON that are Python objects at the same time: some ten times as many bytes."""
_MISFITS = (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException)

Record = Mapping[str, Any]
Numbered = Sequence[tuple[int, Record]]


@dataclass(frozen=True)
class TypedBatch:
    """`batches`: one row a record that fits, its kinds as lists of structs with the store's columns. `strange`: the
    places of the others, each with its schema version (None: no telemetry at all)."""

    batches: pa.Table
    strange: Mapping[int, int | None]


def typed(values: Iterable[bytes | None]) -> TypedBatch:
    """Records' values as a table of `SCHEMA`. What `producer_core.metrics.telemetry.encode` makes always fits."""
    tables: list[pa.Table] = []
    strange: dict[int, int | None] = {}
    for some in _portions(values):
        _add(list(_ours(some, strange)), tables, strange)
    return TypedBatch(
        pa.concat_tables(tables) if tables else SCHEMA.empty_table(), dict(sorted(strange.items()))
    )


def _portions(values: Iterable[bytes | None]) -> Iterator[list[tuple[int, bytes | None]]]:
    some: list[tuple[int, bytes | None]] = []
    size = 0
    for numbered in enumerate(values):
        some.append(numbered)
        size += len(numbered[1] or b"")
        if size >= _AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _ours(
    values: Sequence[tuple[int, bytes | None]], strange: dict[int, int | None]
) -> Iterator[tuple[int, Record]]:
    """Those of our version that say which batch they are; the others are noted in `strange`."""
    for place, value in values:
        try:
            record = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict) and record.get("v") == SCHEMA_VERSION and _is_batch(record):
            yield place, record
        else:
            strange[place] = _version(record)


def _is_batch(record: Record) -> bool:
    sequence, first = record.get("sequence"), record.get("first")
    return (
        type(record["v"]) is int
        and isinstance(record.get("producer_id"), str)
        and type(sequence) is int  # bool is none
        and 0 <= sequence <= HIGHEST
        and (first is None or (type(first) is int and 0 <= first <= sequence))
    )


def _version(record: Any) -> int | None:
    version = record.get("v") if isinstance(record, dict) else None
    return version if type(version) is int and version in _VERSIONS else None


def _add(records: Numbered, tables: list[pa.Table], strange: dict[int, int | None]) -> None:
    """All at once; where one of them does not fit, in halves, until that one is alone."""
    if not records:
        return
    try:
        tables.append(_table([record for _, record in records]))
    except _MISFITS:
        if len(records) == 1:
            strange[records[0][0]] = SCHEMA_VERSION
            return
        half = len(records) // 2
        _add(records[:half], tables, strange)
        _add(records[half:], tables, strange)


def _table(records: Sequence[Record]) -> pa.Table:
    def told(name: str) -> list[Any]:
        return [record.get(name) for record in records]

    sequences = told("sequence")
    firsts = [
        first if first is not None else own for first, own in zip(told("first"), sequences, strict=True)
    ]
    arrays = [
        pa.array(told("producer_id"), pa.string()),
        pa.array(firsts, pa.int64()),
        pa.array(sequences, pa.int64()),
        *(_lists(told(name), kind.row, always=name in _ALWAYS) for name, kind in KINDS.items()),
        _heartbeats(told("producer")),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _lists(kinds: Sequence[Any], row: type[Any], *, always: bool) -> pa.ListArray:
    """The rows of one kind, a list of structs a record."""
    lists = [rows if always or rows is not None else [] for rows in kinds]
    if not {list}.issuperset(map(type, lists)):
        raise TypeError("rows that are no list")
    ends = accumulate(map(len, lists), initial=0)
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), _structs(list(chain.from_iterable(lists)), row)
    )


def _heartbeats(told: Sequence[Any]) -> pa.StructArray:
    """One struct a record, null where it has no heartbeat."""
    structs = _structs([row for row in told if row is not None], ProducerRow)
    places = accumulate(row is not None for row in told)
    return structs.take(
        pa.array(
            [at - 1 if row is not None else None for at, row in zip(places, told, strict=True)], pa.int64()
        )
    )


def _structs(rows: Sequence[Any], kind: type[Any]) -> pa.StructArray:
    if not {list}.issuperset(map(type, rows)):
        raise TypeError("a row that is no list")
    made = _COLUMNS[kind]
    columns: Any = (
        zip(*rows, strict=True) if rows else ((),) * len(made)
    )  # rows of unequal length are refused
    arrays = [make(column) for make, column in zip(made, columns, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(_struct(kind)))


def _column(name: str, hint: Any) -> Callable[[Sequence[Any]], pa.Array]:
    """Makes an array of values that are all of the allowed types: pa.array alone would make 1 of 1.5, and 1.0 of True."""
    wanted, allowed = _type(name, hint), _allowed(hint)

    def make(values: Sequence[Any]) -> pa.Array:
        if not allowed.issuperset(map(type, values)):
            raise TypeError(f"not all are {wanted}")
        made = pa.array(values, wanted)
        if wanted == pa.int64():
            _check_size(made)
        if name in _TIMES:
            _check_time(made)
        return made

    return make


def _check_size(made: pa.Array) -> None:
    """ValueError for a number whose sums with others would leave 64 bits: one such would stop every rollup."""
    from pyarrow import compute

    ends = compute.min_max(made).as_py()
    if max(abs(ends["min"] or 0), abs(ends["max"] or 0)) > HIGHEST:
        raise ValueError("a number beyond 2**53")


def _check_time(made: pa.Array) -> None:
    """ValueError for a moment that no clock shows. A wrong clock is none of these: what it dates counts."""
    from pyarrow import compute

    ends = compute.min_max(made).as_py()
    if (ends["min"] or 0) < 0 or (ends["max"] or 0) >= _LATEST:
        raise ValueError("a time outside of the years 1970 to 9999")


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
"""A row a batch."""
