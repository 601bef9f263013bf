"""Read the rows of pandas, polars and Arrow frames as plain Python values, in bounded memory."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from producer_core.errors import ConfigError, InvalidMessage

if TYPE_CHECKING:
    import pandas
    import pyarrow

Missing = Literal["null", "refuse"]
"""Treatment of NaN, which has no JSON form. NaT, NA and None always become null."""

_CHUNK = 4096
"""Rows that are converted to Python values at a time."""

_SUPPORTED = "Pass a pandas, polars or Arrow frame, or any object with __arrow_c_stream__."
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A cell without a Python value, and the reason."""

    reason: str


class RowFrame(Protocol):
    """The rows of a frame. `size` is their number, None for a stream."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def size(self) -> int | None: ...
    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        """Yield the rows from `start`, each as a dict of its fields."""


def frame_of(data: Any, *, nan: Missing = "null") -> RowFrame:
    """Return the rows of a frame. Raise InvalidMessage if it is not a frame or its columns cannot become fields."""
    if nan not in get_args(Missing):
        raise ConfigError(
            f"nan={nan!r} is not a known value.", fix=f"Use one of {', '.join(get_args(Missing))}."
        )
    if _from_library(data, "pandas"):
        if not hasattr(data, "columns"):
            raise InvalidMessage("A pandas Series has no fields.", fix="Use series.to_frame('name').")
        return PandasFrame(data, _names(data.columns), nan)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return ArrowFrame(data, nan)
    if hasattr(data, "collect") and hasattr(data, "lazy"):
        raise InvalidMessage("A lazy frame has no rows yet.", fix="Call collect() on it.")
    raise InvalidMessage(f"{type(data).__name__} is not a frame.", fix=_SUPPORTED)


def field(columns: Sequence[str], name: str, what: str) -> str:
    """Return the column's name. Raise InvalidMessage, with the closest name, if there is no such column."""
    if name in columns:
        return name
    near = difflib.get_close_matches(name, columns, n=1)
    known = f"Did you mean {near[0]!r}?" if near else f"The columns are {', '.join(map(repr, columns[:20]))}."
    raise InvalidMessage(
        f"The frame has no column {name!r} for the {what}.",
        fix=f"{known} An index is not a column: use reset_index().",
    )


def _from_library(data: Any, library: str) -> bool:
    return any(base.__module__.partition(".")[0] == library for base in type(data).__mro__)


def _names(columns: Iterable[Any]) -> tuple[str, ...]:
    names = tuple("" if isinstance(name, tuple) else str(name) for name in columns)
    if "" in names:
        raise InvalidMessage(
            "Each column needs a name that is a single string.",
            fix="Flatten a MultiIndex: frame.columns = [...].",
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidMessage(
            f"Two columns are named {twice[0]!r}: one of them would be lost.", fix="Rename one of them."
        )
    return names


class PandasFrame:
    """Reads a pandas frame. Missing values (NaN, NaT, NA, None) become null; other values are unchanged."""

    def __init__(self, frame: pandas.DataFrame, columns: tuple[str, ...], nan: Missing) -> None:
        self._frame = frame
        self._nan = nan
        self.columns = columns
        self.size: int | None = len(frame)

    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        for first in range(start, len(self._frame), _CHUNK):
            chunk = self._frame.iloc[first : first + _CHUNK]
            cells = [self._cells(chunk.iloc[:, place]) for place in range(len(self.columns))]
            if not cells:
                yield from ({} for _ in range(len(chunk)))
            for row in zip(*cells, strict=True):
                yield dict(zip(self.columns, row, strict=True))

    def _cells(self, column: pandas.Series[Any]) -> list[Any]:
        kind = column.dtype.kind
        if kind == "m":
            return _durations(column.to_numpy().astype("timedelta64[ns]").astype("int64").tolist(), 10**9)
        values = list(column.to_numpy()) if str(column.dtype) in ("float32", "float16") else column.tolist()
        missing = column.isna()
        if not missing.any():
            return values
        keep = self._nan == "refuse"
        return [
            None if is_missing and not (keep and isinstance(value, float)) else value
            for value, is_missing in zip(values, missing.tolist(), strict=True)
        ]


class ArrowFrame:
    """Reads a frame through the Arrow C interface: polars, DuckDB, pyarrow."""

    def __init__(self, data: Any, nan: Missing) -> None:
        import pyarrow

        self._nan = nan
        try:
            if hasattr(data, "__arrow_c_stream__"):
                self._reader = pyarrow.RecordBatchReader.from_stream(data)
            else:
                batch = pyarrow.record_batch(data)
                self._reader = pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])
        except (pyarrow.ArrowException, TypeError, ValueError, NotImplementedError) as error:
            raise InvalidMessage(f"The frame cannot be read as Arrow: {error}") from error
        self.columns = _names(self._reader.schema.names)
        self.size: int | None = len(data) if hasattr(data, "__len__") else getattr(data, "num_rows", None)

    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        first = 0
        for batch in self._reader:
            for offset in range(0, batch.num_rows, _CHUNK):
                chunk = batch.slice(offset, _CHUNK)
                begin, first = max(0, start - first), first + chunk.num_rows
                if begin >= chunk.num_rows:
                    continue
                chunk = chunk.slice(begin)
                cells = [self._cells(column) for column in chunk.columns]
                if not cells:
                    yield from ({} for _ in range(chunk.num_rows))
                for row in zip(*cells, strict=True):
                    yield dict(zip(self.columns, row, strict=True))

    def _cells(self, column: pyarrow.Array) -> list[Any]:
        import pyarrow
        from pyarrow import types

        kind = column.type
        if types.is_dictionary(kind):
            values = self._cells(column.dictionary)  # polars gives views, which dictionary_decode cannot read
            return [None if index is None else values[index] for index in column.indices.to_pylist()]
        if types.is_timestamp(kind) and kind.unit == "ns":
            return _nanoseconds(column, kind.tz)
        if types.is_duration(kind):
            return _durations(column.cast(pyarrow.int64()).to_pylist(), _UNITS[kind.unit])
        if types.is_float32(kind) or types.is_float16(kind):
            return self._floats(list(column.to_numpy(zero_copy_only=False)), column.is_null().to_pylist())
        values = _python(column)
        return self._floats(values, None) if types.is_float64(kind) else values

    def _floats(self, values: list[Any], missing: list[bool] | None) -> list[Any]:
        """Convert NaN, which is a value in Arrow, to null unless NaN is refused."""
        if missing is not None:
            values = [
                None if is_missing else value for value, is_missing in zip(values, missing, strict=True)
            ]
        if self._nan == "refuse":
            return values
        return [None if value is not None and value != value else value for value in values]


_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _python(column: pyarrow.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, TypeError, ArithmeticError):
        return [_to_python(cell) for cell in column]  # at least one cell has no Python value


def _to_python(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError, TypeError, ArithmeticError) as error:
        return Unreadable(str(error))


def _nanoseconds(column: pyarrow.Array, zone: str | None) -> list[Any]:
    """Format as ISO 8601 with up to nine digits. Python's own times have only microseconds."""
    import pyarrow

    tz = None if zone is None else pyarrow.lib.string_to_tzinfo(zone)
    return [
        None if count is None else _timestamp(count, tz) for count in column.cast(pyarrow.int64()).to_pylist()
    ]


def _timestamp(nanoseconds: int, zone: Any) -> str | Unreadable:
    seconds, remainder = divmod(nanoseconds, 10**9)
    try:
        timestamp = _EPOCH + timedelta(seconds=seconds)
        if zone is not None:
            timestamp = timestamp.replace(tzinfo=UTC).astimezone(zone)
    except OverflowError as error:
        return Unreadable(str(error))
    text = timestamp.isoformat()
    digits = f".{remainder:09d}".removesuffix("000") if remainder else ""
    return f"{text[:19]}{digits}{text[19:]}"


def _durations(counts: Iterable[int | None], per_second: int) -> list[str | None]:
    """Format as ISO 8601: `PT90.5S`."""
    return [
        None if count is None or count == _NOT_A_TIME else _duration(count, per_second) for count in counts
    ]


_NOT_A_TIME = -(2**63)


def _duration(count: int, per_second: int) -> str:
    whole, remainder = divmod(abs(count), per_second)
    digits = f"{remainder / per_second:.9f}"[1:].rstrip("0").rstrip(".") if remainder else ""
    return f"{'-' if count < 0 else ''}PT{whole}{digits}S"
