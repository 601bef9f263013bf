"""Evaluate the alerts of a store and close abandoned replays, for as long as the dashboard's server runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from pathlib import Path

from producer_core._internal.log_fields import with_fields
from producer_core._internal.read_activity import mark_background_thread
from producer_core.alerts import AlertWatcher
from producer_core.errors import ProducerError
from producer_core.replay.operation import end_abandoned
from producer_core.store import Store

logger = logging.getLogger(__name__)

_RETRY_EVERY = 2.0
_SWEEP_EVERY = 5.0


class AlertWorker:
    """Evaluate and send the alerts of one store, and end cancelled replays whose runner died.

    A process has one worker per store. The store may be created later: the worker waits for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard-alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 1.5) -> None:
        """Stop the worker and release its leases, so that another process can take over at once."""
        self._stopping.set()
        self._thread.join(timeout + 0.5)

    def _run(self) -> None:
        mark_background_thread()
        store = wait_for_store(self._path, self._stopping)
        if store is None:
            return
        watcher = AlertWatcher(store)
        watcher.start()
        while not self._stopping.wait(_SWEEP_EVERY):
            with contextlib.suppress(ProducerError):  # the store is unavailable; the pages report that
                end_abandoned(store, time.time())
        watcher.stop(1.0)


def wait_for_store(path: Path, stopping: threading.Event) -> Store | None:
    """Return the store once it can be opened; None if `stopping` is set first."""
    logged = ""
    while not stopping.is_set():
        try:
            return Store.open(path, create=False)
        except ProducerError as error:
            if path.exists() and str(error) != logged:
                logged = str(error)
                logger.warning(**with_fields("dashboard server cannot open the store", error=logged))
        stopping.wait(_RETRY_EVERY)
    return None


_lock = threading.Lock()  # guards the next field
_workers: dict[Path, AlertWorker] = {}


def start(path: Path) -> None:
    """Start the worker of a store, unless it is already running."""
    with _lock:
        if path in _workers:
            return
        _workers[path] = AlertWorker(path)
        _workers[path].start()


def stop_all() -> None:
    """Stop every worker of this process."""
    with _lock:
        stopped = list(_workers.values())
        _workers.clear()
    for worker in stopped:
        worker.stop()
