"""Run replays inside the dashboard's server, if it is started with a file of client settings."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer_core._internal.argument_settings import without_arguments
from producer_core._internal.home_folder import expand_user
from producer_core._internal.log_fields import with_fields
from producer_core._internal.schema_settings import without_unused_registry
from producer_core._internal.settings_file import read_settings
from producer_core.config import client_config, pop_servers
from producer_core.dashboard.server.alert_worker import wait_for_store
from producer_core.errors import ConfigError, ProducerError
from producer_core.producer.environment_tracing import tracing_from_environment
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store

logger = logging.getLogger(__name__)

VARIABLE = "PRODUCER_CORE_CONFIG"
"""The environment variable with the path of the settings: Java properties or one JSON object, with bootstrap.servers."""
CLIENT_ID = "producer-core-dashboard"
"""The client id under which the store registers the worker. It sends only replays, so no alert reports its absence."""
_RETRY_EVERY = 10.0


@dataclass(frozen=True)
class WorkerSettings:
    """The content of the settings file."""

    file: Path
    servers: str
    settings: Mapping[str, Any]


def worker_settings() -> WorkerSettings | None:
    """Return the settings of the file in PRODUCER_CORE_CONFIG, or None if the variable is unset.

    Raises ConfigError where the file is missing or invalid.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    file = expand_user(named)
    try:
        given = without_unused_registry(without_arguments(read_settings(file)))
        servers = pop_servers(given)
        if not servers:
            raise ConfigError(f"{file} names no brokers.", fix="Add bootstrap.servers=HOST:PORT.")
        found = WorkerSettings(file, str(servers), {**given, "client.id": CLIENT_ID})
        client_config(found.servers, found.settings)
    except ProducerError as error:
        raise ConfigError(f"{VARIABLE}: {error}") from error
    return found


class ReplayWorker:
    """Run the planned replays of one store with a producer of its own. Safe from any thread.

    A process has one worker per store. The store may be created later: the worker waits for it.
    """

    def __init__(self, path: Path, settings: WorkerSettings) -> None:
        self.settings = settings
        self.problem = ""
        self._path = path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard-replays", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 15.0) -> None:
        """Stop sending, settle the records in flight, and release the replay."""
        self._stopping.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        store = wait_for_store(self._path, self._stopping)
        while store is not None and not self._stopping.is_set():
            try:
                self._run_producer(store)
            except ProducerError as error:
                self.problem = str(error)
                logger.warning(**with_fields("dashboard cannot run replays", error=self.problem))
                self._stopping.wait(_RETRY_EVERY)

    def _run_producer(self, store: Store) -> None:
        settings = dict(self.settings.settings)
        with ReliableKafkaProducer(
            self.settings.servers, settings, store=store, tracing=tracing_from_environment()
        ) as producer:
            self.problem = ""
            self._stopping.wait()
            producer.close(5.0)


_lock = threading.Lock()  # guards the next field
_workers: dict[Path, ReplayWorker] = {}


def start(path: Path) -> None:
    """Start the worker of a store if a settings file is configured and no worker is running for it yet."""
    with _lock:
        if path in _workers or (found := worker_settings()) is None:
            return
        _workers[path] = ReplayWorker(path, found)
        _workers[path].start()


def worker_of(path: Path) -> ReplayWorker | None:
    """Return this process's worker for the store, or None if it has none."""
    with _lock:
        return _workers.get(path)


def stop_all() -> None:
    """Stop every worker of this process."""
    with _lock:
        stopped = list(_workers.values())
        _workers.clear()
    for worker in stopped:
        worker.stop()
