"""A job's line in the store, so that the Fleet page and others see what runs, how far it is, and when it last worked."""

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

from producer_core._internal.periodic import run_periodically
from producer_core.errors import StoreError
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

Kind = Literal["telemetry", "integrity", "reprocess"]
_EVERY = 2.0


class JobStatus:
    """What a running job says of itself, from any thread; it costs nothing, for another thread writes it down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _said and _beats
        self.success, self.failed = True, False  # how it ends, where no error ends it
        self._said: dict[str, Any] = dict.fromkeys(
            ("records_done", "records_total", "lag", "last_success_at", "message", "details")
        )
        self._beats: list[tuple[str, dict[str, Any]]] = []

    def beats(self, statement: str, **values: Any) -> None:
        """A statement of the store that is run beside each sign of life, with these values and `now`."""
        with self._lock:
            self._beats.append((statement, values))

    def beaten(self) -> list[tuple[str, dict[str, Any]]]:
        with self._lock:
            return list(self._beats)

    def records(self, *, done: int | None = None, total: int | None = None, lag: int | None = None) -> None:
        """How many records are done, how many there are in all, and how many wait; None leaves what was said."""
        self._say(records_done=done, records_total=total, lag=lag)

    def share(self, done: float) -> None:
        """How much of `total` is done, 0 to 1, as `progress.shown` tells it."""
        with self._lock:
            total = self._said["records_total"]
        if total:
            self._say(records_done=round(total * done))

    def message(self, text: str) -> None:
        """The last thing worth saying, in a sentence."""
        self._say(message=text)

    def succeeded(self, at: float) -> None:
        """Something came to a good end, though the job goes on: a micro-batch, a wave."""
        self._say(last_success_at=at)

    def unfinished(self, *, failed: bool) -> None:
        """It ends without what it was for: no success, and failed unless somebody wanted it to end."""
        self.success, self.failed = False, failed

    def details(self, more: Mapping[str, Any]) -> None:
        """What the page may show in small print; it must have a JSON form."""
        with self._lock:
            before = orjson.loads(self._said["details"] or "{}")
        self._say(details=orjson.dumps({**before, **more}, default=str).decode())

    def said(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._said)

    def _say(self, **values: Any) -> None:
        with self._lock:
            self._said.update({name: value for name, value in values.items() if value is not None})


@contextmanager
def noted(
    store: Store | None,
    *,
    name: str,
    kind: Kind,
    clock: Callable[[], float] = time.time,
    every: float = _EVERY,
) -> Iterator[JobStatus]:
    """A row of `pipeline_jobs` while the block runs: begun, seen every 2 seconds, and how it ended.

    A store that cannot be had (or None) is logged when it begins and never fails the job. `name` says what the job
    is about: the next one of that name takes the row over, and keeps when it last succeeded.
    """
    told = JobStatus()
    if store is None:
        yield told
        return
    row = _Row(store, name, told, clock)
    row.write("begin_job", kind=kind, host=socket.gethostname())

    def beat() -> None:
        row.write("tell_job", **told.said())
        for statement, values in told.beaten():
            row.run(statement, **values)

    state = "failed"
    try:
        with run_periodically(beat, every, name="pipeline-job"):
            yield told
        state = "failed" if told.failed else "done"
    except BaseException as error:
        told.message(ending(error))
        raise
    finally:
        if state == "done" and told.success:
            told.succeeded(clock())
        row.write("end_job", state=state, **told.said())


def ending(error: BaseException) -> str:
    """What ended a job, in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "It was interrupted."
    return str(explained(error) or error).strip().partition("\n")[0] or type(error).__name__


class _Row:
    """One job's row, known by who began it and when: a later job of that name is not overwritten."""

    def __init__(self, store: Store, name: str, told: JobStatus, clock: Callable[[], float]) -> None:
        self._store, self._told, self._clock = store, told, clock
        self._mine = {"name": name, "pid": os.getpid(), "started": clock()}
        self._failing = False

    def write(self, statement: str, **values: Any) -> None:
        self.run(statement, **self._mine, **values)

    def run(self, statement: str, **values: Any) -> None:
        try:
            self._store.execute(statement, now=self._clock(), **values)
            self._failing = False
        except StoreError as error:
            if not self._failing:
                logger.warning("job not written down", extra={"job": self._mine["name"], "error": str(error)})
            self._failing = True
