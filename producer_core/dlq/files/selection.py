"""The dead letters that a filter matched when an export began: their ids on disk, and the turns that read them.

The store is shared: every look at it is a short turn that a waiting writer interrupts after two seconds. So the ids
are taken first, a window of acceptance times a turn, and kept in a file without a name; then the dead letters are read by
their ids, a few hundred a turn, whatever became of them meanwhile. Memory does not grow with their number.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import duckdb

from producer_core.dlq.codec import BODY_COLUMNS, LETTER_COLUMNS, OLDEST_FIRST
from producer_core.dlq.lookup import fetch
from producer_core.errors import StoreError

if TYPE_CHECKING:
    import pyarrow

    from producer_core.dlq import DeadLetterFilter
    from producer_core.store import Store

T = TypeVar("T")

WINDOW = 100_000
"""Ids taken in one turn."""
SLICE, SLICE_BYTES = 500, 16 << 20
"""Letters read in one turn: at most so many, and no more than one beyond so many bytes of values."""
_PATIENCE = 60.0
_TRIES = 10

_START = "SELECT count(*), max(state_at) FROM dead_letters WHERE {where}"
_BOUNDS = "SELECT quantile_disc(accepted_at, ?) FROM dead_letters WHERE {where}"
_IDS = f"SELECT message_id, value_size, state_at FROM dead_letters WHERE {{where}} ORDER BY {OLDEST_FIRST}"


class KnownRecords(NamedTuple):
    """A dead letter as the start of an export knew it."""

    message_id: str
    value_size: int | None
    state_at: float


@dataclass(frozen=True)
class FrozenSelection:
    """How many matched at the start, and the file with the ids of those that could be taken."""

    matched: int
    _file: IO[bytes]

    def slices(self) -> Iterator[list[KnownRecords]]:
        """The oldest message first, a few hundred at once."""
        some: list[KnownRecords] = []
        size = 0
        for known in self._read():
            some.append(known)
            size += known.value_size or 0
            if len(some) >= SLICE or size >= SLICE_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _read(self) -> Iterator[KnownRecords]:
        import pyarrow

        self._file.seek(0)
        with pyarrow.ipc.open_stream(self._file) as stream:
            for batch in stream:
                yield from map(KnownRecords, *(column.to_pylist() for column in batch.columns))


@contextlib.contextmanager
def freeze(store: Store, where: DeadLetterFilter, folder: Path) -> Iterator[FrozenSelection]:
    """The ids that match now. What is moved into the selection afterwards is not among them."""
    import pyarrow

    condition, parameters = where.where()
    matched, latest, first = turn(store, lambda connection: _start(connection, condition, parameters))
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with tempfile.TemporaryFile(dir=folder) as file:
        with pyarrow.ipc.new_stream(file, first.schema, options=options) as stream:
            stream.write_table(first)
            if matched > WINDOW:
                unmoved = (f"{condition} AND state_at <= ?", [*parameters, latest])
                for window in _windows(store, *unmoved, matched):
                    stream.write_table(turn(store, partial(_ids, window=window)))
        yield FrozenSelection(matched, file)


def read(store: Store, some: Sequence[KnownRecords]) -> list[tuple[KnownRecords, dict[str, Any]]]:
    """The dead letters as they are now, with their bodies; what is gone is left out.

    One turn, or where the machine is so busy that it is cancelled, two with half of them each.
    """
    ids = [known.message_id for known in some]
    try:
        dead_letters, bodies = turn(store, partial(_rows, ids=ids), tries=1 if len(some) > 1 else _TRIES)
    except StoreError as error:
        if len(some) == 1 or not _cancelled(error):
            raise
        half = len(some) // 2
        return [*read(store, some[:half]), *read(store, some[half:])]
    return [
        (known, {"letter": dead_letters[known.message_id], "body": bodies.get(known.message_id)})
        for known in some
        if known.message_id in dead_letters
    ]


def turn(store: Store, look: Callable[[duckdb.DuckDBPyConnection], T], *, tries: int = _TRIES) -> T:
    """One short look at the store. One that was cancelled is tried again."""
    while True:
        tries -= 1
        try:
            with store.borrow(timeout=_PATIENCE) as connection:
                return look(connection)
        except StoreError as error:
            if not tries or not _cancelled(error):
                raise


def _cancelled(error: StoreError) -> bool:
    return isinstance(error.__cause__, duckdb.InterruptException)


def _rows(
    connection: duckdb.DuckDBPyConnection, ids: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    dead_letters = fetch(connection, "dead_letters", LETTER_COLUMNS, ids)
    return dead_letters, fetch(connection, "dead_letter_bodies", BODY_COLUMNS, ids)


def _start(
    connection: duckdb.DuckDBPyConnection, condition: str, parameters: list[Any]
) -> tuple[int, float, pyarrow.Table]:
    """How many match, when the last of them changed, and their ids where one turn can take them all."""
    matched, latest = connection.execute(_START.format(where=condition), parameters).fetchall()[0]
    return matched, latest, _ids(connection, (condition, parameters) if matched <= WINDOW else ("false", []))


def _ids(connection: duckdb.DuckDBPyConnection, window: tuple[str, list[Any]]) -> pyarrow.Table:
    condition, parameters = window
    return connection.sql(_IDS.format(where=condition), params=parameters).to_arrow_table()


def _windows(
    store: Store, condition: str, parameters: list[Any], matched: int
) -> Iterator[tuple[str, list[Any]]]:
    """Conditions that divide what matches by its time of acceptance, in order, into parts of about a window.

    Where very many were accepted at one moment, that moment is divided by the hash of the id.
    """
    parts = matched // WINDOW + 1
    shares = [number / parts for number in range(1, parts)]
    asked = (_BOUNDS.format(where=condition), [shares, *parameters])
    bounds = turn(store, lambda connection: connection.execute(*asked).fetchall()[0][0])
    edges = sorted(Counter(bounds or ()).items())
    for (first, times), (last, _) in pairwise([(-math.inf, 1), *edges, (math.inf, 1)]):
        for part in range(times):
            tests = "accepted_at >= ? AND accepted_at < ? AND hash(message_id) % ? = ?"
            yield f"{condition} AND {tests}", [*parameters, first, last, times, part]
