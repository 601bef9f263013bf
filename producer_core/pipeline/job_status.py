"""Record a job's progress in the store, where the Fleet page and other processes read it."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import orjson

from producer_core._internal.log_fields import with_fields
from producer_core._internal.periodic import run_periodically
from producer_core.errors import StoreError
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

Kind = Literal["telemetry", "integrity", "reprocess"]
_INTERVAL = 2.0


class JobStatus:
    """Collect what a running job reports, from any thread, without waiting: another thread writes it to the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _values and _heartbeats
        self.success, self.failed = True, False  # the outcome when no exception ends the job
        self._values: dict[str, Any] = dict.fromkeys(
            ("records_done", "records_total", "lag", "last_success_at", "message", "details")
        )
        self._heartbeats: list[tuple[str, dict[str, Any]]] = []

    def add_heartbeat(self, statement: str, **values: Any) -> None:
        """Add a statement of the store that runs with each heartbeat, with these values and `now`."""
        with self._lock:
            self._heartbeats.append((statement, values))

    def heartbeats(self) -> list[tuple[str, dict[str, Any]]]:
        with self._lock:
            return list(self._heartbeats)

    def records(self, *, done: int | None = None, total: int | None = None, lag: int | None = None) -> None:
        """Set the records done, the records in all, and the records pending; None keeps the value."""
        self._set(records_done=done, records_total=total, lag=lag)

    def fraction_done(self, done: float) -> None:
        """Set the fraction of `total` that is done, 0 to 1, as `progress.shown` reports it."""
        with self._lock:
            total = self._values["records_total"]
        if total:
            self._set(records_done=round(total * done))

    def message(self, text: str) -> None:
        """Set the latest message, one sentence."""
        self._set(message=text)

    def succeeded(self, at: float) -> None:
        """Set when a part of the job last succeeded: a micro-batch or a batch of slices. The job continues."""
        self._set(last_success_at=at)

    def unfinished(self, *, failed: bool) -> None:
        """Mark the job as ended before it was complete: without success, and as failed unless its end was
        requested."""
        self.success, self.failed = False, failed

    def details(self, more: Mapping[str, Any]) -> None:
        """Add details for the page; they must have a JSON form."""
        with self._lock:
            before = orjson.loads(self._values["details"] or "{}")
        self._set(details=orjson.dumps({**before, **more}, default=str).decode())

    def values(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._values)

    def _set(self, **values: Any) -> None:
        with self._lock:
            self._values.update({name: value for name, value in values.items() if value is not None})


@contextmanager
def track_job(
    store: Store | None,
    *,
    name: str,
    kind: Kind,
    clock: Callable[[], float] = time.time,
    every: float = _INTERVAL,
) -> Iterator[JobStatus]:
    """Keep a row of `pipeline_jobs` while the block runs: its start, a heartbeat every 2 seconds, and its end.

    A store that cannot be written is logged once, and neither it nor None fails the job. `name` names the job's
    subject: the next job of that name takes over the row and keeps the time of the last success.
    """
    status = JobStatus()
    if store is None:
        yield status
        return
    row = _Row(store, name, clock)
    row.write("begin_job", kind=kind, host=socket.gethostname())

    def heartbeat() -> None:
        row.write("tell_job", **status.values())
        for statement, values in status.heartbeats():
            row.run(statement, **values)

    state = "failed"
    try:
        with run_periodically(heartbeat, every, name="pipeline-job"):
            yield status
        state = "failed" if status.failed else "done"
    except BaseException as error:
        status.message(failure_text(error))
        raise
    finally:
        if state == "done" and status.success:
            status.succeeded(clock())
        row.write("end_job", state=state, **status.values())


def failure_text(error: BaseException) -> str:
    """Return why a job ended, in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    return str(explained(error) or error).strip().partition("\n")[0] or type(error).__name__


class _Row:
    """Write one job's row. Name, process and start time identify it, so a later job of the same name is not
    overwritten."""

    def __init__(self, store: Store, name: str, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._identity = {"name": name, "pid": os.getpid(), "started": clock()}
        self._failing = False

    def write(self, statement: str, **values: Any) -> None:
        self.run(statement, **self._identity, **values)

    def run(self, statement: str, **values: Any) -> None:
        try:
            self._store.execute(statement, now=self._clock(), **values)
            self._failing = False
        except StoreError as error:
            if not self._failing:
                logger.warning(
                    **with_fields("pipeline job not recorded", job=self._identity["name"], error=str(error))
                )
            self._failing = True
