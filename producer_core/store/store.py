"""The store: one DuckDB file that producers write and everyone else reads, each borrowing it for a moment."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import orjson

from producer_core._internal.actor import current_actor
from producer_core._internal.read_activity import unattended
from producer_core.errors import StoreUnavailable
from producer_core.metrics.batch import Batch
from producer_core.store import compact as store_compact
from producer_core.store import (
    dead_letter_counts,
    file_errors,
    generation,
    inspect,
    merge,
    paths,
    retention,
    setting_values,
)
from producer_core.store.connection_pool import ConnectionPool
from producer_core.store.inspect import StoreInfo
from producer_core.store.migrate import check, migrate, newest
from producer_core.store.queries import query, run

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)


class Store:
    """Statistics, dead letters, replays and alerts in one file, shared by processes without a server.

    Safe in threads and after a fork. Every method borrows the file for a moment and lets go; whatever
    goes wrong is a StoreError that says what to do.
    """

    def __init__(self, path: Path, *, create: bool, clock: Callable[[], float]) -> None:
        self.path = path
        self._create = create
        self._clock = clock
        self._lender = ConnectionPool(path)

    @classmethod
    def open(
        cls, path: Path | str | None = None, *, create: bool = True, clock: Callable[[], float] = time.time
    ) -> Store:
        """The store at `path` (default: `default_path()`), made and brought up to date where necessary.

        With `create=False` a missing file is StoreUnavailable.
        """
        store = cls(paths.resolve(path), create=create, clock=clock)
        store._prepare()
        if network := paths.network_file_system(store.path):
            logger.warning("store on a network file system", extra={"path": str(store.path), "type": network})
        return store

    def borrow(
        self, *, write: bool = False, timeout: float = 10.0, limit: float | None = None
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A connection for a block, in which the tables have their plain names.

        With `write=True` the block is one transaction: committed at its end, rolled back by an exception;
        do not begin or commit inside. Without, a query is cancelled after `limit` seconds (default 2).
        Fetch results inside the block, and never wait for anything else there: others are waiting.
        Within its own block a thread may call the store's other methods; they use the same connection.
        """
        if not paths.has_content(self.path):  # DuckDB would make an empty file a database without tables
            self._prepare()
        return self._lender.borrow(write=write, timeout=timeout, limit=limit)

    def rows(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """The rows of a named query (`sql/queries.sql`); parameters left out are NULL."""
        with self.borrow() as connection:
            found = run(connection, name, **params)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def table(self, name: str, /, **params: Any) -> pyarrow.Table:
        """The rows of a named query as an Arrow table."""
        asked = query(name)
        with self.borrow() as connection:
            return connection.sql(asked.sql, params=asked.bind(params)).to_arrow_table()

    def execute(self, name: str, /, **params: Any) -> int:
        """Run a named statement (`sql/statements.sql`) in a transaction of its own; the rows it changed."""
        with self.borrow(write=True) as connection:
            changed = run(connection, name, **params).fetchone()
            return int(changed[0]) if changed else 0

    def append(self, *batches: Batch) -> int:
        """Merge recorders' batches in one transaction; how many of them the store did not have yet."""
        with self.borrow(write=True) as connection:
            return merge.merge(connection, *batches, now=self._clock())

    def stamp(self) -> object:
        """What is another after whatever was written, in whatever process: two that are equal mean that nothing was, unless
        within one tick of the kernel's clock."""
        return self._lender.stamp()

    def recently_read(self) -> bool:
        """Whether a person, or a program for one, has read this store within the last seconds, in whatever process."""
        return self._lender.recently_read()

    def take_lease(self, name: str, owner: str, seconds: float, now: float) -> bool:
        """Take or renew a lease; False while somebody else holds it."""
        return self.execute("take_lease", name=name, owner=owner, until=now + seconds, now=now) > 0

    def drop_lease(self, name: str, owner: str) -> bool:
        """Give a lease back; False when it was not the owner's any more."""
        return self.execute("drop_lease", name=name, owner=owner) > 0

    def audit(
        self, *, who: str, origin: str, action: str, selection: Mapping[str, Any], count: int, outcome: str
    ) -> None:
        """Write down what an operator did, and on which host. Inside a write block it is part of that transaction.

        The table is appended to only; retention keeps it.
        """
        self.execute(
            "add_audit",
            acted_at=self._clock(),
            who=who,
            origin=origin,
            host=socket.gethostname(),
            action=action,
            selection=orjson.dumps(selection, default=str).decode(),
            count=count,
            outcome=outcome,
        )

    def get_setting(self, name: str, default: Any = None) -> Any:
        """A setting of this store, or the default where it was never set."""
        return self.settings().get(name, default)

    def set_setting(self, name: str, value: Any) -> None:
        """Set it for everyone who uses this store. The value must have a JSON form."""
        self.execute("set_setting", name=name, value=orjson.dumps(value).decode(), now=self._clock())

    def change_settings(self, changes: Mapping[str, Any], *, who: str, origin: str) -> None:
        """What an operator sets, in one transaction and with one entry in the audit; None: the default again."""
        setting_values.check(changes)
        with self.borrow(write=True):
            for name, value in changes.items():
                if value is None:
                    self.execute("forget_setting", name=name)
                else:
                    self.set_setting(name, value)
            said = ", ".join(
                f"{name} is {'the default' if value is None else value}" for name, value in changes.items()
            )
            self.audit(
                who=who, origin=origin, action="set", selection=changes, count=len(changes), outcome=said
            )

    def settings(self) -> dict[str, Any]:
        """Everything that was set for this store."""
        return {row["name"]: orjson.loads(row["value"]) for row in self.rows("settings")}

    def retention(self) -> retention.Retention:
        """How long this store keeps what; its settings `keep_seconds`, `keep_minutes`, … say so."""
        return retention.Retention.from_settings(self.settings())

    def rollup(self, now: float) -> int:
        """Make old seconds minutes and old minutes hours; the fine rows replaced. Quick when none is due."""
        keep = self.retention()
        with self.borrow() as connection:
            if not retention.rollup_due(connection, keep, now):
                return 0
        with self.borrow(write=True) as connection:
            return retention.rollup(connection, keep, now)

    def prune(self, now: float) -> int:
        """Delete what is older than the store keeps it; the rows deleted. Dead letters that wait are kept."""
        keep = self.retention()
        with self.borrow() as connection:
            if not retention.prune_due(connection, keep, now):
                return 0
        with self.borrow(write=True) as connection:
            return retention.prune(connection, keep, now)

    def maintain(self, now: float) -> None:
        """Roll up, prune and add up: what the recorder calls every minute."""
        self.rollup(now)
        self.prune(now)
        self.add_up()

    def add_up(self) -> None:
        """Make one row of equal counts of dead letters. Quick when few wait."""
        with self.borrow() as connection:
            if not dead_letter_counts.add_up_due(connection):
                return
        with self.borrow(write=True) as connection:
            dead_letter_counts.add_up(connection)

    def info(self) -> StoreInfo:
        """What the store holds, for people."""
        keep = self.retention()
        with self.borrow() as connection:
            return inspect.describe(connection, self.path, keep)

    def snapshot(self, target: Path | str) -> Path:
        """A consistent copy at `target`, which must not exist, while everyone else goes on."""
        with contextlib.suppress(StoreUnavailable), self.borrow(write=True):
            pass  # an exclusive visit leaves no write-ahead log behind
        with self.borrow(limit=600):
            return paths.copy(self.path, paths.resolve(target))

    def compact(self) -> int:
        """Write the file anew, without the room that deleted rows have left in it; the bytes it became smaller.

        What was purged is then in no byte of the file. Everyone else waits meanwhile, and what a producer has to write
        down is buffered or spilled; the disk needs room for a second file.
        """
        return store_compact.compact(self._lender, self.path, now=self._clock())

    def close(self) -> None:
        """Free the memory this object holds. It can be used again."""
        self._lender.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _prepare(self) -> None:
        try:
            self._make_ready()
        except OSError as error:
            raise file_errors.from_system(error, self.path) from error

    def _make_ready(self) -> None:
        paths.check_file(self.path)
        if not paths.has_content(self.path):
            emptied = paths.was_emptied(self.path)
            if not self._create:
                raise file_errors.emptied(self.path) if emptied else file_errors.missing(self.path)
            made = self._make()
            if emptied:
                self._tell_emptied()
            if made:
                with self._lender.borrow(write=True) as connection:
                    generation.take_over(connection, self.path)
                return
        with unattended(), self._lender.borrow() as connection:
            version = check(connection, self.path)
            put_back = version == newest() and generation.is_put_back(connection, self.path)
        if version < newest():
            with self._lender.borrow(write=True) as connection:
                check(connection, self.path)
                migrate(connection, now=self._clock())
                put_back = generation.is_put_back(connection, self.path)
        if put_back:
            self._doubt_verdicts()

    def begin_replay(self) -> None:
        """A replay begins to send: a copy of the store that was made before is recognised when it is put back."""
        with self.borrow(write=True) as connection:
            self._tell_put_back(generation.begin_replay(connection, self.path))

    def _doubt_verdicts(self) -> None:
        with contextlib.suppress(StoreUnavailable), self._lender.borrow(write=True) as connection:
            if generation.is_put_back(connection, self.path):
                self._tell_put_back(generation.doubt(connection, self.path))

    def _tell_put_back(self, doubted: int) -> None:
        if not doubted:
            return
        logger.error(
            "the store was put back from a copy", extra={"path": str(self.path), "dead_letters": doubted}
        )
        text = f"{generation.PUT_BACK} {doubted:,} dead letters are looked for on their topics before they are sent again."
        self.audit(
            who=current_actor(), origin="store", action="doubt", selection={}, count=doubted, outcome=text
        )

    def _tell_emptied(self) -> None:
        logger.error("the store was empty, a new one was made", extra={"path": str(self.path)})
        text = "The file was empty (0 bytes) although it had been a store: a new one was made, and all content is lost."
        self.audit(who=current_actor(), origin="store", action="create", selection={}, count=0, outcome=text)

    def _make(self) -> bool:
        """Make the file complete beside its place, then move it there; False where another process was quicker."""
        paths.make_folder(self.path.parent)
        with self._lender.alone():
            if paths.has_content(self.path):
                return False
            draft = paths.clean_draft(self.path)
            self._fill(draft)
            paths.publish(draft, self.path)
        return True

    def _fill(self, draft: Path) -> None:
        """Write an empty store with the newest schema to `draft`."""
        try:
            with self._lender.attached(draft, write=True) as connection:
                connection.begin()
                migrate(connection, now=self._clock())
                connection.commit()
        except duckdb.Error as error:
            raise file_errors.from_duckdb(error, self.path) from error
