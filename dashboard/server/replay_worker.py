"""The dashboard's own hands: started with a file of client settings, its server carries out planned replays itself."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer_core._internal.settings_file import read_settings
from producer_core.config import client_config
from producer_core.dashboard.server.alert_worker import store_at
from producer_core.errors import ConfigError, ProducerError
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store

logger = logging.getLogger(__name__)

VARIABLE = "PRODUCER_CORE_CONFIG"
"""Names a file of client settings: Java properties, or one JSON object. It must have bootstrap.servers."""
CLIENT_ID = "producer-core-dashboard"
"""Under which it stands in the store; it sends nothing but replays, so it is no producer that anybody waits for."""
_AGAIN = 10.0


@dataclass(frozen=True)
class WorkerSettings:
    """What the file says."""

    file: Path
    servers: str
    settings: Mapping[str, Any]


def worker_settings() -> WorkerSettings | None:
    """The settings of the file that the environment names, None where it names none; ConfigError for a wrong one."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    file = Path(named).expanduser()
    try:
        chosen = read_settings(file)
        servers = chosen.pop("bootstrap.servers", None) or chosen.pop("bootstrap_servers", None)
        if not servers:
            raise ConfigError(f"{file} names no brokers.", fix="Add bootstrap.servers=HOST:PORT.")
        found = WorkerSettings(file, str(servers), {**chosen, "client.id": CLIENT_ID})
        client_config(found.servers, found.settings)
    except ProducerError as error:
        raise ConfigError(f"{VARIABLE}: {error}") from error
    return found


class ReplayWorker:
    """One for a store in a process. Safe from any thread; the store need not be there yet."""

    def __init__(self, path: Path, with_these: WorkerSettings) -> None:
        self.given = with_these
        self.problem = ""
        self._path = path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replays-of-the-dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 15.0) -> None:
        """Send nothing more, settle what is on its way, and give the replay back."""
        self._stopping.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        store = store_at(self._path, self._stopping)
        while store is not None and not self._stopping.is_set():
            try:
                self._carry(store)
            except ProducerError as error:
                self.problem = str(error)
                logger.warning("the dashboard cannot carry out replays", extra={"error": self.problem})
                self._stopping.wait(_AGAIN)

    def _carry(self, store: Store) -> None:
        with ReliableKafkaProducer(self.given.servers, dict(self.given.settings), store=store) as producer:
            self.problem = ""
            self._stopping.wait()
            producer.close(5.0)


_lock = threading.Lock()  # guards the next field
_hands: dict[Path, ReplayWorker] = {}


def carry(path: Path) -> None:
    """Carry out the replays of a store from now on, where a file of settings is given; asked again it changes nothing."""
    with _lock:
        if path in _hands or (found := worker_settings()) is None:
            return
        _hands[path] = ReplayWorker(path, found)
        _hands[path].start()


def carries(path: Path) -> ReplayWorker | None:
    """Whoever carries out the replays of this store here."""
    with _lock:
        return _hands.get(path)


def stop() -> None:
    """End all of it in this process."""
    with _lock:
        ending = list(_hands.values())
        _hands.clear()
    for one in ending:
        one.stop()
