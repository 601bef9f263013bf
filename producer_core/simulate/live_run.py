"""The parts of `make run`, started and ended in order."""

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
from producer_core.errors import MissingTool
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.dashboard_process import Command, DashboardProcess, ReservedPort
from producer_core.simulate.faults import FaultRun, shop_schedule
from producer_core.simulate.load import ShopLoad
from producer_core.simulate.own_store import own_store
from producer_core.simulate.target_cluster import TargetCluster, embedded_place, real_place, store_path
from producer_core.store import Store

_CLOSE_WITHIN = 4.0
_UP_WITHIN = 90.0
_RESTARTS = 3
_RESTART_WINDOW = 60.0

_SETTINGS = {
    "max_block_ms": 1000,  # a stream that waits longer would keep Ctrl-C waiting
    "reconnect.backoff.max.ms": 1000,  # back soon after the schedule's outage
}


class LiveRun:
    """Owns the processes and threads; leaving it ends them all within ten seconds."""

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
        self.store = (store or store_path(bootstrap_servers)).expanduser().absolute()
        self.earlier_store: Path | None = None
        self._begins_anew = store is None and not bootstrap_servers
        self._bootstrap_servers = bootstrap_servers
        self._rate = rate
        self._command = (command or dashboard_command)(self.store)
        self._clock = clock
        self._parts = contextlib.ExitStack()
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)
        self._port: ReservedPort | None = None
        self._child: DashboardProcess | None = None

    def start(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start every part, as long as nobody cancels. ProducerError where one cannot be."""
        logging.getLogger("producer_core").addHandler(_errors_only())
        steps = (self.open_store, self._start_dashboard, self._start_load)
        for step in steps:
            if not cancelled():
                step()

    @property
    def port(self) -> int:
        return self._port.number if self._port else self.wanted_port

    @property
    def dashboard_lives(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    def wait_until_up(self, pause: Callable[[float], bool]) -> bool:
        """Until the dashboard answers; False when it ended, took too long, or `pause` said to stop."""
        deadline = self._clock() + _UP_WITHIN
        while self._child is not None and self.dashboard_lives and self._clock() < deadline:
            if self._child.answers():
                return True
            if pause(0.1):
                break
        return False

    def last_lines(self) -> list[str]:
        return self._child.last_lines() if self._child else []

    def restart_dashboard(self) -> bool:
        """Start it again on a free port; False when it died too often lately."""
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
        """Ends in this order: dashboard asked to, load, faults, producer, broker, dashboard waited for."""
        if self._child is not None:
            self._child.terminate()
        self._parts.close()

    # parts

    def open_store(self) -> None:
        if self._begins_anew:
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
        place = self._place()
        self.prefix = place.prefix
        producer = ReliableKafkaProducer(
            place.bootstrap_servers,
            _SETTINGS,
            health_check_interval=5,  # an alert on the page keeps up with its tiles
            store=self.store,
            cluster_id=place.cluster_id,
            transport=place.transport,
        )
        self._parts.callback(producer.close, _CLOSE_WITHIN)
        faults = FaultRun(shop_schedule(place.prefix), [place.faults])
        self._parts.callback(faults.stop)
        load = ShopLoad(producer, rate=self._rate, prefix=place.prefix)
        self._parts.callback(load.stop)
        load.start()
        faults.start()

    def _place(self) -> TargetCluster:
        if self._bootstrap_servers:
            return real_place(self._bootstrap_servers)
        return self._parts.enter_context(embedded_place())


def dashboard_command(store: Path) -> Command:
    """How the dashboard is started; it is a layer above, so it is found by name when it is needed."""
    if find_spec("streamlit") is None:
        raise MissingTool("The dashboard needs Streamlit.", fix="pip install 'producer-core[run]'")
    serve = load_dashboard("commands").command
    return lambda port: serve.command(store, port)


def _errors_only() -> logging.Handler:
    """The faults of the schedule are no news; what goes wrong beyond them is."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    return handler
