"""The dashboard's watch over a store, whether or not a page is open: its alerts are judged and told, and replays that
were cancelled under a runner that died are ended."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from pathlib import Path

from producer_core._internal.read_activity import mark_background_thread
from producer_core.alerts import AlertWatcher
from producer_core.errors import ProducerError
from producer_core.replay.operation import end_abandoned
from producer_core.store import Store

logger = logging.getLogger(__name__)

_LOOK_EVERY = 2.0
_SWEEP_EVERY = 5.0


class AlertWorker:
    """One for a store in a process. The store need not be there yet; then it begins when it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts-of-the-dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 1.5) -> None:
        """End, and give the leases back, so that another process goes on at once."""
        self._stopping.set()
        self._thread.join(timeout + 0.5)

    def _run(self) -> None:
        mark_background_thread()
        store = store_at(self._path, self._stopping)
        if store is None:
            return
        watcher = AlertWatcher(store)
        watcher.start()
        while not self._stopping.wait(_SWEEP_EVERY):
            with contextlib.suppress(ProducerError):  # it is away for a moment; pages say so
                end_abandoned(store, time.time())
        watcher.stop(1.0)


def store_at(path: Path, stopping: threading.Event) -> Store | None:
    """The store as soon as it can be had; None where the end comes first."""
    said = ""
    while not stopping.is_set():
        try:
            return Store.open(path, create=False)
        except ProducerError as error:
            if path.exists() and str(error) != said:
                said = str(error)
                logger.warning("the dashboard's server waits for the store", extra={"error": said})
        stopping.wait(_LOOK_EVERY)
    return None


_lock = threading.Lock()  # guards the next field
_watches: dict[Path, AlertWorker] = {}


def watch(path: Path) -> None:
    """Watch a store from now on; asked again it changes nothing."""
    with _lock:
        if path in _watches:
            return
        _watches[path] = AlertWorker(path)
        _watches[path].start()


def watched(path: Path) -> bool:
    with _lock:
        return path in _watches


def stop() -> None:
    """End every watch of this process."""
    with _lock:
        ending = list(_watches.values())
        _watches.clear()
    for one in ending:
        one.stop()
