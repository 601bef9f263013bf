"""Freeze the ids of the dead letters that an export covers, and read these dead letters in short transactions.

The store is shared, and a waiting writer interrupts a reader after two seconds. The ids are therefore read first, in
windows of acceptance times, and kept in an unnamed temporary file. The dead letters are then read by id, a few hundred
per transaction, in their current state. Memory use does not grow with their number.
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
from producer_core.dlq.replay_waves import claimed_by_wave
from producer_core.dlq.revisions.revision import exported_revisions
from producer_core.errors import StoreError

if TYPE_CHECKING:
    import pyarrow

    from producer_core.dlq import DeadLetterFilter
    from producer_core.dlq.revisions.revision import Revision
    from producer_core.store import Store

T = TypeVar("T")

WINDOW = 100_000
"""Ids read in one transaction."""
SLICE, SLICE_BYTES = 500, 16 << 20
"""The maximum number of dead letters read in one transaction, and the bytes of values after which no further
one is added."""
STORE_TIMEOUT = 60.0
"""Seconds to wait for the store."""
_MAX_TRIES = 10

_START = "SELECT count(*), max(state_at) FROM dead_letters WHERE {where}"
_BOUNDS = "SELECT quantile_disc(accepted_at, ?) FROM dead_letters WHERE {where}"
_IDS = f"SELECT message_id, value_size, state_at FROM dead_letters WHERE {{where}} ORDER BY {OLDEST_FIRST}"


class KnownRecords(NamedTuple):
    """A dead letter at the start of an export."""

    message_id: str
    value_size: int | None
    state_at: float


@dataclass(frozen=True)
class FrozenSelection:
    """The number of dead letters that matched at the start, and the file with their ids."""

    matched: int
    _file: IO[bytes]

    def slices(self) -> Iterator[list[KnownRecords]]:
        """Yield slices of limited size, the oldest message first."""
        slice_: list[KnownRecords] = []
        size = 0
        for known in self._read():
            slice_.append(known)
            size += known.value_size or 0
            if len(slice_) >= SLICE or size >= SLICE_BYTES:
                yield slice_
                slice_, size = [], 0
        if slice_:
            yield slice_

    def windows(self) -> Iterator[list[str]]:
        """Yield the message ids in lists of up to WINDOW or a little more."""
        for batch in self._batches():
            yield batch.column(0).to_pylist()

    def _read(self) -> Iterator[KnownRecords]:
        for batch in self._batches():
            yield from map(KnownRecords, *(column.to_pylist() for column in batch.columns))

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        self._file.seek(0)
        with pyarrow.ipc.open_stream(self._file) as stream:
            yield from stream


@contextlib.contextmanager
def freeze(store: Store, where: DeadLetterFilter, folder: Path) -> Iterator[FrozenSelection]:
    """Store the ids that match now in a temporary file for the block. Later matches are not included."""
    import pyarrow

    condition, parameters = where.where()
    matched, latest, first = read_with_retries(
        store, lambda connection: _start(connection, condition, parameters)
    )
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with tempfile.TemporaryFile(dir=folder) as file:
        with pyarrow.ipc.new_stream(file, first.schema, options=options) as stream:
            stream.write_table(first)
            if matched > WINDOW:
                unchanged = (f"{condition} AND state_at <= ?", [*parameters, latest])
                for window in _windows(store, *unchanged, matched):
                    stream.write_table(read_with_retries(store, partial(_ids, window=window)))
        yield FrozenSelection(matched, file)


def read(store: Store, records: Sequence[KnownRecords]) -> list[tuple[KnownRecords, dict[str, Any]]]:
    """Return the dead letters with bodies in their current state; deleted ones are left out.

    If a writer interrupts the read, each half of the records is read in its own transaction.
    """
    ids = [known.message_id for known in records]
    try:
        dead_letters, bodies, revisions = read_with_retries(
            store, partial(_rows, ids=ids), tries=1 if len(records) > 1 else _MAX_TRIES
        )
    except StoreError as error:
        if len(records) == 1 or not _was_interrupted(error):
            raise
        half = len(records) // 2
        return [*read(store, records[:half]), *read(store, records[half:])]
    return [
        (
            known,
            {
                "dead_letter": dead_letters[known.message_id],
                "body": bodies.get(known.message_id),
                "revisions": revisions.get(known.message_id, []),
            },
        )
        for known in records
        if known.message_id in dead_letters
    ]


def read_with_retries(
    store: Store, query: Callable[[duckdb.DuckDBPyConnection], T], *, tries: int = _MAX_TRIES
) -> T:
    """Run a short query on the store, again if a writer interrupts it."""
    while True:
        tries -= 1
        try:
            with store.borrow(timeout=STORE_TIMEOUT) as connection:
                return query(connection)
        except StoreError as error:
            if not tries or not _was_interrupted(error):
                raise


def _was_interrupted(error: StoreError) -> bool:
    return isinstance(error.__cause__, duckdb.InterruptException)


def _rows(
    connection: duckdb.DuckDBPyConnection, ids: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, list[Revision]]]:
    dead_letters = fetch(connection, "dead_letters", LETTER_COLUMNS, ids)
    for message_id in claimed_by_wave(connection, list(dead_letters)):
        # It may be sent before the file is imported.
        dead_letters[message_id]["state"] = "replaying"
    bodies = fetch(connection, "dead_letter_bodies", BODY_COLUMNS, ids)
    return dead_letters, bodies, exported_revisions(connection, ids)


def _start(
    connection: duckdb.DuckDBPyConnection, condition: str, parameters: list[Any]
) -> tuple[int, float, pyarrow.Table]:
    """Return the number of matches, the time of their last change, and their ids if they fit into one window."""
    matched, latest = connection.execute(_START.format(where=condition), parameters).fetchall()[0]
    return matched, latest, _ids(connection, (condition, parameters) if matched <= WINDOW else ("false", []))


def _ids(connection: duckdb.DuckDBPyConnection, window: tuple[str, list[Any]]) -> pyarrow.Table:
    condition, parameters = window
    return connection.sql(_IDS.format(where=condition), params=parameters).to_arrow_table()


def _windows(
    store: Store, condition: str, parameters: list[Any], matched: int
) -> Iterator[tuple[str, list[Any]]]:
    """Yield conditions that divide the matches by acceptance time, in order, into parts of about one window.

    Matches with the same acceptance time that exceed a window are divided by the hash of their ids.
    """
    parts = matched // WINDOW + 1
    shares = [number / parts for number in range(1, parts)]
    query = (_BOUNDS.format(where=condition), [shares, *parameters])
    bounds = read_with_retries(store, lambda connection: connection.execute(*query).fetchall()[0][0])
    edges = sorted(Counter(bounds or ()).items())
    for (first, times), (last, _) in pairwise([(-math.inf, 1), *edges, (math.inf, 1)]):
        for part in range(times):
            tests = "accepted_at >= ? AND accepted_at < ? AND hash(message_id) % ? = ?"
            yield f"{condition} AND {tests}", [*parameters, first, last, times, part]
