"""The history: every merged row as Parquet, one file a kind and hour, in which no row is ever twice.

A micro-batch is first a draft, hidden; it counts once the store's transaction that merged it is committed, and then
waits with the others of its hour. A closed hour (or the end of a run) makes them one large file a kind, written
beside its place and renamed over it: whoever reads `<history>/<kind>/*.parquet` sees the old file or the new one.
Each file says in its metadata up to which micro-batch it holds, so a kill between any two steps adds nothing twice;
and the folder notes what it has of which query, so that only the store that merged it goes on with it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from producer_core.errors import ConfigError, PipelineError
from producer_core.pipeline.locked import Lock
from producer_core.pipeline.merging import merged_through
from producer_core.store.batch import KINDS, Kind

if TYPE_CHECKING:
    from producer_core.store import Store

_WAITING = "_waiting"
_NOTED = ".queries"
_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d{8})\.(draft|batches)")
_THROUGH = "producer_core_through"
_QUERY, _BATCH = b"producer_core_query", b"producer_core_batch"
_MEMORY = "512MB"


class Draft(NamedTuple):
    """A micro-batch on disk that is not known to be merged, and which of which query it is."""

    path: Path
    query_id: str
    batch_id: int


class History:
    """A folder of one store, written by one job at a time; `open` takes it and repairs what a kill left."""

    def __init__(self, folder: Path, *, reached: Callable[[str], None] = lambda point: None) -> None:
        self.folder = folder
        self._waiting = folder / _WAITING
        self._reached = reached
        self._lock: Lock | None = None
        self._last = ("", -1)
        self._seen: Callable[[Any], bool] = lambda batches: False

    def open(self, store: Store, seen: Callable[[Any], bool]) -> None:
        """Take the folder. `seen` says whether the store has merged every batch of an Arrow table: it decides what
        becomes of a draft whose stream failed or was killed."""
        self._seen = seen
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._waiting.mkdir(mode=0o700, exist_ok=True)
            self._lock = Lock.take(self.folder / ".lock", f"the history {self.folder}")
            goes_with(self.folder, store.path, store)
            self.settle()
        except OSError as error:
            raise PipelineError(
                f"The history {self.folder} cannot be written: {error.strerror}.",
                fix="Check its disk and its owner.",
            ) from error

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def draft(self, fresh: Any, now: float, query_id: str, batch_id: int) -> Draft:
        """Write what is about to be merged where nobody looks yet."""
        from pyarrow import parquet

        hour = _hour(now)
        self._last = (hour, self._last[1] + 1 if self._last[0] == hour else self._next(hour))
        target = self._waiting / f"{hour}-{self._last[1]:08d}.draft"
        target.touch(mode=0o600)
        of = {_QUERY: query_id.encode(), _BATCH: str(batch_id).encode()}
        parquet.write_table(fresh.replace_schema_metadata(of), target, compression="zstd")
        _sync(target)
        return Draft(target, query_id, batch_id)

    def settle(self) -> None:
        """Before a stream begins: each draft of an earlier one was merged, or not, or not even written whole."""
        for file in self._files("draft"):
            self._settle(file)

    def keep(self, draft: Draft) -> None:
        """It is merged: from now on it belongs to the history."""
        self._note(draft.query_id, draft.batch_id)
        draft.path.rename(draft.path.with_suffix(".batches"))

    def drop(self, draft: Draft) -> None:
        """It is not merged, and never was."""
        draft.path.unlink(missing_ok=True)

    def publish(self, *, before: float | None = None) -> int:
        """Make files of what waits: of hours closed at `before`, or of all; the number of micro-batches published."""
        limit = _hour(before) if before is not None else None
        hours: dict[str, list[Path]] = {}
        for file in self._files("batches"):
            if limit is None or _parts(file)[0] < limit:
                hours.setdefault(_parts(file)[0], []).append(file)
        for hour, files in hours.items():
            self._publish_hour(hour, files)
        return sum(map(len, hours.values()))

    def _publish_hour(self, hour: str, waiting: Sequence[Path]) -> None:
        through = max(_parts(file)[1] for file in waiting)
        with _instance() as connection:
            for name, kind in KINDS.items():
                target = self.folder / name / f"{hour}.parquet"
                before = _through(connection, target)
                new = [file for file in waiting if _parts(file)[1] > before]
                if new:
                    self._write(connection, target, name, kind, new, through)
        for file in waiting:
            file.unlink()
        self._reached("published")

    def _write(
        self,
        connection: duckdb.DuckDBPyConnection,
        target: Path,
        name: str,
        kind: Kind,
        new: Sequence[Path],
        through: int,
    ) -> None:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        draft = target.with_suffix(".draft")
        old = [str(target)] if target.exists() else []
        earlier = "SELECT * FROM read_parquet($old) UNION ALL BY NAME " if old else ""
        row = ", ".join(f"added.{column}" for column in kind.columns)
        connection.execute(
            f"COPY ({earlier} SELECT batch_producer, batch_sequence, {row} FROM (SELECT producer_id AS batch_producer, "
            f"sequence AS batch_sequence, unnest({name}) AS added FROM read_parquet($new))) "
            f"TO {_text(draft)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{_THROUGH}: '{through}'}})",
            {"new": [str(file) for file in new], **({"old": old} if old else {})},
        )
        draft.chmod(0o600)
        _sync(draft)
        self._reached("drafted a file")
        draft.rename(target)
        self._reached("renamed a file")

    def _settle(self, file: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        try:
            batches = parquet.read_table(file)
        except (pyarrow.ArrowInvalid, OSError):
            file.unlink()
            return
        of = batches.schema.metadata
        draft = Draft(file, of[_QUERY].decode(), int(of[_BATCH]))
        if self._seen(batches):
            self.keep(draft)
        else:
            self.drop(draft)

    def _next(self, hour: str) -> int:
        """One more than any micro-batch of this hour had, published ones too."""
        waiting = [_parts(file)[1] for file in self._files() if _parts(file)[0] == hour]
        if waiting:
            return max(waiting) + 1
        with _instance() as connection:
            return 1 + max(_through(connection, self.folder / name / f"{hour}.parquet") for name in KINDS)

    def _files(self, suffix: str = "") -> list[Path]:
        return sorted(
            file
            for file in self._waiting.iterdir()
            if (found := _NAME.fullmatch(file.name)) and (not suffix or found[3] == suffix)
        )

    def _note(self, query_id: str, batch_id: int) -> None:
        noted = _noted(self.folder)
        if noted.get(query_id, -1) < batch_id:
            draft = self.folder / f"{_NOTED}.draft"
            draft.write_text(json.dumps({**noted, query_id: batch_id}))
            draft.replace(self.folder / _NOTED)


def goes_with(folder: Path, place: Path, store: Store | None) -> None:
    """ConfigError where a history has rows that the store (None: there is none) has not merged: it would bring them in
    a second time."""
    noted = _noted(folder)
    known = {query: merged_through(store, query) if store else -1 for query in noted}
    has_rows = any(any((folder / name).glob("*.parquet")) for name in KINDS)
    if (has_rows and not noted) or any(known[query] < last for query, last in noted.items()):
        raise ConfigError(
            f"The history {folder} has rows that the store {place} never merged: it goes with another store, or with a "
            "later copy of this one.",
            fix="Name another folder with --history, or the store that goes with it.",
        )


def _noted(folder: Path) -> dict[str, int]:
    """The last micro-batch of each query that the history has."""
    file = folder / _NOTED
    try:
        return dict(json.loads(file.read_text())) if file.exists() else {}
    except ValueError as error:
        raise PipelineError(f"{file} is damaged.", fix="Name another folder with --history.") from error


def _instance() -> Any:
    """A DuckDB of our own, bounded, so that an hour's file never takes the stream's memory."""
    return duckdb.connect(config={"memory_limit": _MEMORY, "threads": 1})


def _through(connection: duckdb.DuckDBPyConnection, file: Path) -> int:
    """The last micro-batch of a published file; -1 where there is none."""
    if not file.exists():
        return -1
    found = connection.execute(
        f"SELECT decode(value) FROM parquet_kv_metadata({_text(file)}) WHERE decode(key) = ?", [_THROUGH]
    ).fetchone()
    return int(found[0]) if found else -1


def _parts(file: Path) -> tuple[str, int]:
    found = _NAME.fullmatch(file.name)
    assert found is not None
    return found[1], int(found[2])


def _hour(moment: float) -> str:
    """The hour of arrival, in UTC; no `=` in a name, readers would take it for a column."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H")


def _text(path: Path) -> str:
    """As a literal of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def _sync(file: Path) -> None:
    """On the disk, with its name, before anything relies on it."""
    for place in (file, file.parent):
        handle = os.open(place, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems refuse it for folders
                os.fsync(handle)
        finally:
            os.close(handle)
