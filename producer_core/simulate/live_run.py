"""Start and end the parts of `make run` in order."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from producer_core._internal.dashboard_entry import load_dashboard
from producer_core._internal.home_folder import expand_user
from producer_core.errors import MissingTool
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.dashboard_process import Command, DashboardProcess, ReservedPort
from producer_core.simulate.faults import FaultRun, shop_schedule
from producer_core.simulate.load import ShopLoad
from producer_core.simulate.own_store import own_store
from producer_core.simulate.target_cluster import TargetCluster, embedded_target, real_target, store_path
from producer_core.store import Store

_CLOSE_WITHIN = 4.0
_UP_WITHIN = 90.0
_RESTARTS = 3
_RESTART_WINDOW = 60.0

_SETTINGS = {
    "max_block_ms": 1000,  # a stream that waits longer would delay Ctrl-C
    "reconnect.backoff.max.ms": 1000,  # reconnect soon after the schedule's outage
}


class LiveRun:
    """Owns the processes and threads of a run; leaving the context ends all of them within ten seconds."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | None = None,
        store: Path | None = None,
        port: int = 8501,
        rate: float = 300.0,
        command: Callable[[Path], Command] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wanted_port = port
        self.prefix = ""
        self.store = expand_user(store or store_path(bootstrap_servers)).absolute()
        self.earlier_store: Path | None = None
        self._new_store = store is None and not bootstrap_servers
        self._bootstrap_servers = bootstrap_servers
        self._rate = rate
        self._command = (command or dashboard_command)(self.store)
        self._clock = clock
        self._parts = contextlib.ExitStack()
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)
        self._port: ReservedPort | None = None
        self._child: DashboardProcess | None = None

    def start(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start every part until `cancelled` returns True; raise ProducerError when one cannot start."""
        logging.getLogger("producer_core").addHandler(_errors_only())
        steps = (self.open_store, self._start_dashboard, self._start_load)
        for step in steps:
            if not cancelled():
                step()

    @property
    def port(self) -> int:
        return self._port.number if self._port else self.wanted_port

    @property
    def dashboard_runs(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    def wait_until_up(self, pause: Callable[[float], bool]) -> bool:
        """Wait until the dashboard responds; return False if it exited, took too long, or `pause` returned True."""
        deadline = self._clock() + _UP_WITHIN
        while self._child is not None and self.dashboard_runs and self._clock() < deadline:
            if self._child.answers():
                return True
            if pause(0.1):
                break
        return False

    def last_lines(self) -> list[str]:
        return self._child.last_lines() if self._child else []

    def restart_dashboard(self) -> bool:
        """Restart the dashboard on a free port; return False when it ended too often recently."""
        now = self._clock()
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < _RESTART_WINDOW:
            return False
        self._deaths.append(now)
        self._end_dashboard()
        self._start_child()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End in this order: dashboard signalled, load, faults, producer, broker, dashboard awaited."""
        if self._child is not None:
            self._child.terminate()
        self._parts.close()

    # parts

    def open_store(self) -> None:
        if self._new_store:
            self.earlier_store = self._parts.enter_context(own_store(self.store))
        Store.open(self.store)

    def _start_dashboard(self) -> None:
        self._start_child()
        self._parts.callback(self._end_dashboard)

    def _start_child(self) -> None:
        self._port = ReservedPort.first_free(self.wanted_port)
        self._child = DashboardProcess(self._command, self._port)

    def _end_dashboard(self) -> None:
        if self._child is not None:
            self._child.finish()
        if self._port is not None:
            self._port.release()

    def _start_load(self) -> None:
        target = self._target()
        self.prefix = target.prefix
        producer = ReliableKafkaProducer(
            target.bootstrap_servers,
            _SETTINGS,
            health_check_interval=5,  # alerts on the page keep up with its tiles
            store=self.store,
            cluster_id=target.cluster_id or None,
            transport=target.transport,
        )
        self._parts.callback(producer.close, _CLOSE_WITHIN)
        faults = FaultRun(shop_schedule(target.prefix), [target.faults])
        self._parts.callback(faults.stop)
        load = ShopLoad(producer, rate=self._rate, prefix=target.prefix)
        self._parts.callback(load.stop)
        load.start()
        faults.start()

    def _target(self) -> TargetCluster:
        if self._bootstrap_servers:
            return real_target(self._bootstrap_servers)
        return self._parts.enter_context(embedded_target())


def dashboard_command(store: Path) -> Command:
    """Return the dashboard's command; the dashboard is a higher layer, so it is looked up by name when needed."""
    if find_spec("streamlit") is None:
        raise MissingTool("The dashboard needs Streamlit.", fix="pip install 'producer-core[run]'")
    serve = load_dashboard("commands").command
    return lambda port: serve.command(store, port)


def _errors_only() -> logging.Handler:
    """Return a handler for errors only: the schedule's faults cause many expected warnings."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    return handler
