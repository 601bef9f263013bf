"""Keep every merged row as Parquet: one file per kind and hour, with no row twice.

A micro-batch is first a hidden draft. It counts once the store's transaction that merged it is committed, and then
stays with the others of its hour. A closed hour (or the end of a run) turns them into one large file per kind, which
is written beside its place and renamed over the old one: a reader of `<history>/<kind>/*.parquet` sees the old file
or the new one. The metadata of each file records the last micro-batch in it, so a kill between any two steps adds
nothing twice. Only the store that has merged the newest rows of a history may continue it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from producer_core._internal import private_files
from producer_core._internal.file_lock import FileLock
from producer_core.errors import ConfigError, PipelineError
from producer_core.metrics.batch import KINDS, RowKind
from producer_core.pipeline.folder_lock import lock_folder
from producer_core.pipeline.merge_batch import unseen

if TYPE_CHECKING:
    from producer_core.store import Store

_PENDING = "_waiting"
_STORE = "store"
_HOUR = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]"
_NAME = re.compile(rf"({_HOUR})-(\d{{8}})\.(draft|batches)")
_THROUGH = "producer_core_through"
_MEMORY = "512MB"


class ParquetHistory:
    """Manage a folder that belongs to one store and is written by one job at a time; `open` locks it and recovers it."""

    def __init__(self, folder: Path, *, reached: Callable[[str], None] = lambda point: None) -> None:
        self.folder = folder
        self._pending = folder / _PENDING
        self._reached = reached
        self._lock: FileLock | None = None
        self._store: Store | None = None
        self._last = ("", -1)

    def check(self, store: Store | None, place: Path) -> None:
        """Raise ConfigError when the rows belong to a different store from the one at `place` (None: it does not exist
        yet)."""
        if self._pending.exists():
            with self._locked():
                self._same_store(store, place)
            self.close()

    def open(self, store: Store) -> None:
        """Lock the folder for this store, and settle the drafts of a killed job."""
        with self._locked():
            self._same_store(store, store.path)
            self._save_store(store)
            self._store = store
            self.settle()

    def check_store(self) -> None:
        """Raise ConfigError when the open history's store was replaced by one that has not merged the newest rows."""
        assert self._store is not None, "open it first"
        self._same_store(self._store, self._store.path)

    def settle(self) -> None:
        """Keep or drop the drafts whose merge did not finish: they count when the store has merged their batches.

        Call it before the next draft is written.
        """
        assert self._store is not None, "open it first"
        for draft in self._files("draft"):
            self._settle(draft, self._store)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder for this job; release it when the block fails."""
        try:
            private_files.make_folder(self.folder)
            self._pending.mkdir(mode=0o700, exist_ok=True)
            self._lock = lock_folder(self.folder / ".lock", f"the history {self.folder}")
            yield
        except OSError as error:
            self.close()
            raise PipelineError(
                f"The history {self.folder} cannot be written: {error.strerror}.",
                fix="Check its disk and its owner.",
            ) from error
        except BaseException:
            self.close()
            raise

    def draft(self, fresh: Any, now: float) -> Path:
        """Write batches that are about to be merged as a hidden draft."""
        from pyarrow import parquet

        hour = _hour(now)
        self._last = (hour, self._last[1] + 1 if self._last[0] == hour else self._next(hour))
        target = self._pending / f"{hour}-{self._last[1]:08d}.draft"
        target.touch(mode=0o600)
        parquet.write_table(fresh, target, compression="zstd")
        _sync(target)
        return target

    def keep(self, draft: Path) -> None:
        """Make a draft a part of the history, after its merge."""
        draft.rename(draft.with_suffix(".batches"))

    def drop(self, draft: Path) -> None:
        """Delete a draft that was not merged."""
        draft.unlink(missing_ok=True)

    def publish(self, *, before: float | None = None) -> int:
        """Write the files of hours closed at `before`, or of all hours; return the number of micro-batches published."""
        limit = _hour(before) if before is not None else None
        hours: dict[str, list[Path]] = {}
        for file in self._files("batches"):
            if limit is None or _parts(file)[0] < limit:
                hours.setdefault(_parts(file)[0], []).append(file)
        for hour, files in hours.items():
            self._publish_hour(hour, files)
        return sum(map(len, hours.values()))

    def _publish_hour(self, hour: str, drafts: Sequence[Path]) -> None:
        through = max(_parts(file)[1] for file in drafts)
        with _instance() as connection:
            for name, kind in KINDS.items():
                target = self.folder / name / f"{hour}.parquet"
                before = _through(connection, target)
                added = [file for file in drafts if _parts(file)[1] > before]
                if added:
                    self._write(connection, target, name, kind, added, through)
        for file in drafts:
            file.unlink()
        self._reached("published")

    def _write(
        self,
        connection: duckdb.DuckDBPyConnection,
        target: Path,
        name: str,
        kind: RowKind,
        added: Sequence[Path],
        through: int,
    ) -> None:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        draft = target.with_suffix(".draft")
        old = [str(target)] if target.exists() else []
        earlier = "SELECT * FROM read_parquet($old) UNION ALL BY NAME " if old else ""
        row = ", ".join(f"added.{column}" for column in kind.columns)
        connection.execute(
            f"COPY ({earlier} SELECT batch_producer, batch_sequence, {row} FROM (SELECT producer_id AS batch_producer, "
            f"sequence AS batch_sequence, unnest({name}) AS added FROM read_parquet($added))) "
            f"TO {_text(draft)} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{_THROUGH}: '{through}'}})",
            {"added": [str(file) for file in added], **({"old": old} if old else {})},
        )
        draft.chmod(0o600)
        _sync(draft)
        self._reached("drafted a file")
        draft.rename(target)
        self._reached("renamed a file")

    def _settle(self, draft: Path, store: Store) -> None:
        """Keep a merged draft; drop one that was not merged or is incomplete."""
        import pyarrow
        from pyarrow import parquet

        try:
            batches = parquet.read_table(draft)
        except (pyarrow.ArrowInvalid, OSError):
            self.drop(draft)
            return
        if unseen(store, batches).num_rows:
            self.drop(draft)
        else:
            self.keep(draft)

    def _next(self, hour: str) -> int:
        """Return one more than the number of any micro-batch of this hour, including published ones."""
        numbers = [_parts(file)[1] for file in self._files() if _parts(file)[0] == hour]
        if numbers:
            return max(numbers) + 1
        with _instance() as connection:
            return 1 + max(_through(connection, self.folder / name / f"{hour}.parquet") for name in KINDS)

    def _files(self, suffix: str = "") -> list[Path]:
        return sorted(
            file
            for file in self._pending.iterdir()
            if (found := _NAME.fullmatch(file.name)) and (not suffix or found[3] == suffix)
        )

    def _same_store(self, store: Store | None, place: Path) -> None:
        """Raise ConfigError for another store or an older copy: it would add rows a second time that it has not
        merged."""
        newest = self._newest()
        if newest is None:
            return
        saved = self.folder / _STORE
        if store is None or (saved.exists() and saved.read_text() != _identity(store)):
            raise ConfigError(
                f"The history {self.folder} belongs to a store other than {place}.",
                fix="Specify a new folder with --history, or the store that this history belongs to.",
            )
        if unseen(store, newest).num_rows:
            raise ConfigError(
                f"The history {self.folder} has rows that the store {place} never merged: the store was restored from an "
                "older copy, or is a different one.",
                fix="Specify a new folder with --history; rows would be added to this one a second time.",
            )

    def _save_store(self, store: Store) -> None:
        """Record which store the rows belong to."""
        draft = self.folder / f"{_STORE}.draft"
        private_files.write(draft, _identity(store))
        _sync(draft)
        draft.replace(self.folder / _STORE)

    def _newest(self) -> Any:
        """Return the last batches in the history, by producer and sequence; None when it has no rows."""
        from pyarrow import parquet

        if pending := self._files("batches"):
            return parquet.read_table(pending[-1], columns=["producer_id", "sequence"])
        published = [file for name in KINDS for file in (self.folder / name).glob(f"{_HOUR}.parquet")]
        if not published:
            return None
        latest = max(file.name for file in published)
        with _instance() as connection:
            return connection.sql(
                "SELECT batch_producer AS producer_id, max(batch_sequence) AS sequence "
                "FROM read_parquet($files, union_by_name = true) GROUP BY ALL",
                params={"files": [str(file) for file in published if file.name == latest]},
            ).to_arrow_table()


def _identity(store: Store) -> str:
    """Return when the store was created, to the microsecond; a copy has the same value, because it has the same rows."""
    with store.borrow(timeout=60) as connection:
        found = connection.execute("SELECT min(applied_at) FROM schema_migrations").fetchone()
    return repr(found[0] if found else None)


def _instance() -> Any:
    """Open a separate, bounded DuckDB instance, so that an hour's file never takes the stream's memory."""
    return duckdb.connect(config={"memory_limit": _MEMORY, "threads": 1})


def _through(connection: duckdb.DuckDBPyConnection, file: Path) -> int:
    """Return the last micro-batch of a published file; -1 when the file does not exist."""
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
    """Return the hour of arrival in UTC. File names must not contain `=`, which readers take for a partition column."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H")


def _text(path: Path) -> str:
    """Quote a path as an SQL literal."""
    return "'" + str(path).replace("'", "''") + "'"


def _sync(file: Path) -> None:
    """Sync a file and its name to the disk before anything relies on it."""
    for place in (file, file.parent):
        handle = os.open(place, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems refuse it for folders
                os.fsync(handle)
        finally:
            os.close(handle)
