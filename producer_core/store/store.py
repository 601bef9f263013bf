"""Open, query and maintain the store, the one DuckDB file that producers write and other processes read."""

from __future__ import annotations

import contextlib
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import duckdb
import orjson

from producer_core._internal import time_budget, work_folder
from producer_core._internal.actor import current_actor
from producer_core._internal.log_fields import with_fields
from producer_core._internal.plural import plural
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import unattended
from producer_core.errors import StoreError, StoreUnavailable
from producer_core.metrics import statistics_log
from producer_core.metrics.batch import Batch
from producer_core.store import compact as store_compact
from producer_core.store import (
    dead_letter_counts,
    file_errors,
    generation,
    inspect,
    merge,
    paths,
    required_features,
    retention,
    setting_values,
)
from producer_core.store.connection_pool import ConnectionPool
from producer_core.store.inspect import StoreInfo
from producer_core.store.migrate import check, migrate, newest
from producer_core.store.queries import query, run
from producer_core.store.replacement import CommittedBatches

if TYPE_CHECKING:
    import pyarrow

logger = queued_logger(__name__)

T = TypeVar("T")


class RenewableLease(Protocol):
    """A lease that another thread's transaction can renew; see `lease.py:Lease`."""

    def renew_within(
        self, connection: duckdb.DuckDBPyConnection, now: float
    ) -> Callable[[], None] | None: ...


class Store:
    """Statistics, dead letters, replays and alerts in one file, shared by processes without a server.

    Safe in threads and after a fork. Every method borrows the file briefly; every failure is a StoreError with its fix.
    """

    def __init__(self, path: Path, *, create: bool, clock: Callable[[], float]) -> None:
        self.path = path
        self._create = create
        self._clock = clock
        self._pool = ConnectionPool(path)
        self._committed = CommittedBatches()
        self._leases: weakref.WeakSet[RenewableLease] = weakref.WeakSet()
        self._is_incident = False

    @classmethod
    def open(
        cls, path: Path | str | None = None, *, create: bool = True, clock: Callable[[], float] = time.time
    ) -> Store:
        """Open the store at `path` (default: `default_path()`); create it or migrate it to the newest schema if needed.

        With `create=False` a missing file raises StoreUnavailable.
        """
        store = cls(paths.resolve(path), create=create, clock=clock)
        store._prepare()
        work_folder.remove_leftovers(store.path.parent)  # copies of the store, which a killed export left
        if network := paths.network_file_system(store.path):
            logger.warning(
                **with_fields("store on a network file system", path=str(store.path), type=network)
            )
        return store

    def borrow(
        self, *, write: bool = False, timeout: float = 10.0, limit: float | None = None, routine: bool = False
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Lend a connection for a block, in which the tables have their plain names.

        With `write=True` the block is one transaction: committed at its end, rolled back by an exception; do not begin or
        commit inside. Without it, a query is cancelled after `limit` seconds (default 2). Fetch results inside the block,
        and never wait for anything else there, because other users of the store wait for its end. Within its own block a
        thread may call the store's other methods; they use the same connection. With `routine`, this object's `changes`
        does not count the write: no reader in this process needs it within 15 seconds.
        """
        if not paths.has_content(self.path):  # DuckDB would turn an empty file into a database without tables
            self._prepare()
        if write and self._is_incident:
            raise file_errors.incident(self.path)
        return self._pool.borrow(write=write, timeout=timeout, limit=limit, routine=routine)

    def rows(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """Return the rows of a named query of `sql/`. Parameters left out are NULL."""
        with self.borrow() as connection:
            found = run(connection, name, **params)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def table(self, name: str, /, **params: Any) -> pyarrow.Table:
        """Return the rows of a named query as an Arrow table."""
        named = query(name)
        with self.borrow() as connection:
            return connection.sql(named.text(params), params=named.bind(params)).to_arrow_table()

    def execute(self, name: str, /, **params: Any) -> int:
        """Run a named statement of `sql/` in its own transaction; return the number of changed rows."""
        with self.borrow(write=True) as connection:
            changed = run(connection, name, **params).fetchone()
            return int(changed[0]) if changed else 0

    def append(self, *batches: Batch) -> int:
        """Merge recorder batches in one transaction; return how many were new. Do not call it inside a write block."""
        return self.with_current_schema(lambda: self._append(batches))

    def with_current_schema(self, work: Callable[[], T]) -> T:
        """Return the result of the work. If it fails because a copy with an earlier schema was put back while this process
        runs, migrate the file and do the work again."""
        try:
            return work()
        except StoreError as error:
            if type(error) is not StoreError or not self._is_older():
                raise
        self._prepare()
        return work()

    def _is_older(self) -> bool:
        """Whether the file lacks a migration of this version."""
        with unattended(), self._pool.borrow() as connection:
            return check(connection, self.path) < newest()

    def _append(self, batches: Sequence[Batch]) -> int:
        with self.borrow(write=True, routine=self._are_heartbeats(batches)) as connection:
            replaced = self._committed.find_replaced(connection, batches)
            new = merge.merge(connection, *batches, now=self._clock())
            for text in dict.fromkeys(replaced.values()):
                self._report_replaced(text)
            renewed = [lease.renew_within(connection, self._clock()) for lease in list(self._leases)]
        self._committed.add(batches, replaced)
        for after_commit in filter(None, renewed):
            after_commit()
        return new

    def recover_statistics(self) -> int:
        """Merge the batches that ended processes left beside the file; return how many were new. Fast if there are none.

        A process leaves its last second of statistics there if it is killed, or if it cannot write to the store in time.
        """
        return statistics_log.recover(self.path, self.append)

    def try_recover_statistics(self, within: float = 1.0) -> None:
        """Do the same before a read, unless the store is in use for longer than `within` seconds or cannot be written."""
        with contextlib.suppress(StoreError), unattended(), time_budget.at_most(within):
            self.recover_statistics()

    def _are_heartbeats(self, batches: Sequence[Batch]) -> bool:
        """Whether the batches only show that producers which appended before are alive."""
        return all(batch.is_heartbeat and self._committed.has(batch.producer_id) for batch in batches)

    def renew_with_appends(self, lease: RenewableLease) -> None:
        """Renew the lease in the transaction of each `append`, so that the renewal needs no borrow of its own."""
        self._leases.add(lease)

    def take_replaced(self, producer: str) -> str | None:
        """Return once that the file was replaced and lacks batches of this producer, which this object had appended."""
        return self._committed.take_replaced(producer)

    def changes(self) -> int:
        """Return a number that increases after any write of any process, except the routine writes of this object:
        heartbeats without news, and renewals of leases. Costs two `stat` calls. A write within the same tick of the
        kernel's clock as an earlier one may be missed."""
        return self._pool.changes()

    def recently_read(self) -> bool:
        """Whether a person, or a program on their behalf, has read this store within the last few seconds, in any process."""
        return self._pool.recently_read()

    def take_lease(self, name: str, owner: str, seconds: float, now: float) -> bool:
        """Take or renew a lease; return False while another owner holds it."""
        return self.execute("take_lease", name=name, owner=owner, until=now + seconds, now=now) > 0

    def drop_lease(self, name: str, owner: str) -> bool:
        """Release a lease; return False if it no longer belonged to the owner."""
        return self.execute("drop_lease", name=name, owner=owner) > 0

    def audit(
        self, *, who: str, origin: str, action: str, selection: Mapping[str, Any], count: int, outcome: str
    ) -> None:
        """Record an operator's action and host in the audit log. Inside a write block it is part of that transaction.

        The table is append-only, and retention never deletes from it.
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
        """Return a setting of this store, or the default if it was never set."""
        return self.settings().get(name, default)

    def set_setting(self, name: str, value: Any) -> None:
        """Set a value for all users of this store. The value must have a JSON form."""
        self.execute("set_setting", name=name, value=orjson.dumps(value).decode(), now=self._clock())

    def change_settings(self, changes: Mapping[str, Any], *, who: str, origin: str) -> None:
        """Change settings in one transaction with one audit entry. None restores the default."""
        setting_values.check(changes)
        with self.borrow(write=True):
            for name, value in changes.items():
                if value is None:
                    self.execute("forget_setting", name=name)
                else:
                    self.set_setting(name, value)
            outcome = ", ".join(
                f"{name} {'reset to the default' if value is None else f'set to {value}'}"
                for name, value in changes.items()
            )
            self.audit(
                who=who, origin=origin, action="set", selection=changes, count=len(changes), outcome=outcome
            )

    def settings(self) -> dict[str, Any]:
        """Return all settings of this store."""
        return {row["name"]: orjson.loads(row["value"]) for row in self.rows("settings")}

    def retention(self) -> retention.Retention:
        """Return the retention times, from the settings `keep_seconds`, `keep_minutes`, …"""
        return retention.Retention.from_settings(self.settings())

    def rollup(self, now: float) -> int:
        """Roll up old seconds to minutes and old minutes to hours; return the number of replaced rows. Fast if none is due.

        A version that lacks a required feature rolls up nothing.
        """
        return self.with_current_schema(lambda: self._rollup(now))

    def _rollup(self, now: float) -> int:
        with self.borrow() as connection:
            if required_features.refusal(connection):
                return 0
            keep = self.retention()
            if not retention.rollup_due(connection, keep, now):
                return 0
        with self.borrow(write=True) as connection:
            return retention.rollup(connection, keep, now)

    def prune(self, now: float) -> int:
        """Delete rows past their retention time; return their number. Pending dead letters are kept.

        A version that lacks a required feature deletes nothing.
        """
        return self.with_current_schema(lambda: self._prune(now))

    def _prune(self, now: float) -> int:
        with self.borrow() as connection:
            if required_features.refusal(connection):
                return 0
            keep = self.retention()
            if not retention.prune_due(connection, keep, now):
                return 0
        with self.borrow(write=True) as connection:
            return retention.prune(connection, keep, now)

    def maintain(self, now: float) -> None:
        """Roll up, prune and sum up counts. The recorder calls this every minute."""
        self.rollup(now)
        self.prune(now)
        self.add_up()

    def add_up(self) -> None:
        """Sum up the counts of dead letters. Fast if few differences have accumulated."""
        with self.borrow() as connection:
            if not dead_letter_counts.add_up_due(connection):
                return
        with self.borrow(write=True) as connection:
            dead_letter_counts.add_up(connection)

    def info(self) -> StoreInfo:
        """Describe the content of the store."""
        with self.borrow() as connection:
            keep = self.retention()
            return inspect.describe(connection, self.path, keep)

    def snapshot(self, target: Path | str) -> Path:
        """Write a consistent copy to `target`, which must not exist, while other processes keep using the store."""
        with contextlib.suppress(StoreUnavailable), self.borrow(write=True):
            pass  # an exclusive borrow leaves no write-ahead log behind
        target = paths.resolve(target)
        with self.borrow(limit=600):
            draft = paths.copy_draft(self.path, target)
        return paths.publish_copy(draft, target)

    def compact(self) -> int:
        """Rewrite the file without the space that deleted rows occupied; return the number of bytes saved.

        Afterwards the file contains no byte of purged content. Other users of the store wait during this, producers buffer
        or spill their writes, and the disk needs room for a second file. A store with a later schema raises StoreTooNew.
        """
        if self._is_incident:
            raise file_errors.incident(self.path)
        work_folder.remove_leftovers(self.path.parent)
        return store_compact.compact(self._pool, self.path, now=self._clock())

    @property
    def is_incident(self) -> bool:
        """Whether the store belongs to an incident bundle. Such a store is read-only."""
        return self._is_incident

    def close(self) -> None:
        """Free this object's memory. The object can be used again."""
        self._pool.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _prepare(self) -> None:
        try:
            self._create_or_migrate()
        except OSError as error:
            raise file_errors.from_system(error, self.path) from error

    def _create_or_migrate(self) -> None:
        paths.check_file(self.path)
        if not paths.has_content(self.path):
            emptied = paths.was_emptied(self.path)
            if not self._create:
                raise file_errors.without_content(self.path, was_store=emptied)
            created = self._create_file()
            if emptied:
                self._report_emptied()
            if created:
                with self._pool.borrow(write=True) as connection:
                    generation.begin(connection, self.path)
                return
        with unattended(), self._pool.borrow() as connection:
            version = check(connection, self.path)
            restored = version >= newest() and self._is_restored(connection)
        if version < newest():
            with self._pool.borrow(write=True) as connection:
                check(connection, self.path)
                migrate(connection, now=self._clock())
                restored = self._is_restored(connection)
        if restored:
            self._revoke_safe_verdicts()

    def _is_restored(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Note whether the store belongs to an incident bundle; if not, return whether it was restored from a copy."""
        self._is_incident = required_features.is_incident(connection)
        return not self._is_incident and generation.is_restored(connection, self.path)

    def begin_replay(self) -> None:
        """Begin a new generation when a replay starts to send, so that an older copy is recognized when restored."""
        with self.borrow(write=True) as connection:
            self._report_restored(generation.begin_replay(connection, self.path))

    def _revoke_safe_verdicts(self) -> None:
        with contextlib.suppress(StoreUnavailable), self._pool.borrow(write=True) as connection:
            if required_features.refusal(connection):
                return  # a version that has the features does it when it opens the store
            if generation.is_restored(connection, self.path):
                self._report_restored(generation.revoke_safe_verdicts(connection, self.path))

    def _report_restored(self, revoked: int) -> None:
        if not revoked:
            return
        logger.error(
            **with_fields("the store was restored from a copy", path=str(self.path), dead_letters=revoked)
        )
        text = f"{generation.RESTORED} The topics are probed for {plural(revoked, 'dead letter')} before a resend."
        self.audit(
            who=current_actor(), origin="store", action="doubt", selection={}, count=revoked, outcome=text
        )

    def _report_replaced(self, text: str) -> None:
        logger.error(**with_fields("the store was replaced", path=str(self.path), reason=text))
        self.audit(who=current_actor(), origin="store", action="doubt", selection={}, count=0, outcome=text)

    def _report_emptied(self) -> None:
        self._committed.forget()
        logger.error(**with_fields("the store was empty; a new one was created", path=str(self.path)))
        text = "The file was empty (0 bytes) although it had been a store. A new store was created; all content is lost."
        self.audit(who=current_actor(), origin="store", action="create", selection={}, count=0, outcome=text)

    def _create_file(self) -> bool:
        """Create a complete file beside the path, then move it there; return False if another process was faster."""
        paths.make_folder(self.path.parent)
        with self._pool.alone():
            if paths.has_content(self.path):
                return False
            draft = paths.clean_draft(self.path)
            self._fill(draft)
            paths.publish(draft, self.path)
        return True

    def _fill(self, draft: Path) -> None:
        """Write an empty store with the newest schema to `draft`."""
        try:
            with self._pool.attached(draft, write=True) as connection:
                connection.begin()
                migrate(connection, now=self._clock())
                connection.commit()
        except duckdb.Error as error:
            raise file_errors.from_duckdb(error, self.path) from error
