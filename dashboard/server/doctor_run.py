"""Run the doctor for the settings page: one run per store at a time, on its own thread, visible to every browser."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from producer_core.dashboard.queries.settings import ClusterConnection
from producer_core.diagnostics.doctor import check_java, check_store, examine
from producer_core.diagnostics.doctor.finding import DoctorFinding, Level
from producer_core.diagnostics.doctor.machine_checks import java_version, versions

logger = logging.getLogger(__name__)

_WORST_FIRST: tuple[Level, ...] = ("problem", "warning", "ok")
_TIMEOUT = 10.0

_latest: dict[Path, DoctorRun] = {}
_lock = threading.Lock()


class DoctorRun:
    """Collect the findings of one run; `finished` says that no more will follow."""

    def __init__(
        self, findings: Iterable[DoctorFinding], *, servers: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.servers = servers
        self.started_at = clock()
        self.ended_at: float | None = None
        self._clock = clock
        self._source = findings
        self._findings: list[DoctorFinding] = []
        self._thread = threading.Thread(target=self._run, name="producer-core-doctor", daemon=True)

    def start(self) -> DoctorRun:
        self._thread.start()
        return self

    def join(self, timeout: float) -> bool:
        """Wait until the run has finished; return False if the timeout expires first."""
        self._thread.join(timeout)
        return self.finished

    @property
    def finished(self) -> bool:
        return self.ended_at is not None

    @property
    def findings(self) -> tuple[DoctorFinding, ...]:
        """Return the findings in the order of the checks; once the run has finished, the worst first."""
        found = tuple(self._findings)
        return tuple(sorted(found, key=lambda one: _WORST_FIRST.index(one.level))) if self.finished else found

    def _run(self) -> None:
        try:
            for finding in self._source:
                self._findings.append(finding)
        except Exception as error:  # without it the page would wait forever for a run that failed
            logger.exception("the doctor failed")
            text = f"The doctor failed: {type(error).__name__}."
            self._findings.append(
                DoctorFinding("doctor", "problem", text, "Run producer-core doctor in a shell.")
            )
        finally:
            self.ended_at = self._clock()


def latest(path: Path) -> DoctorRun | None:
    """Return the last run for a store in this server; None if there was none."""
    return _latest.get(path)


def begin(path: Path, reach: ClusterConnection | None, topics: Sequence[str] = ()) -> DoctorRun:
    """Start a run for a store and its cluster, or return the run that is in progress."""
    with _lock:
        running = _latest.get(path)
        if running is not None and not running.finished:
            return running
        servers = reach.servers if reach is not None and reach.servers else ""
        _latest[path] = DoctorRun(run_checks(path, reach, topics), servers=servers).start()
        return _latest[path]


def run_checks(path: Path, reach: ClusterConnection | None, topics: Sequence[str]) -> Iterator[DoctorFinding]:
    """Yield the findings. A cluster that requires credentials is not checked, and one finding says so."""
    if reach is not None and reach.servers and not reach.secret:
        settings = dict(reach.settings)
        yield from examine(reach.servers, settings, topics=topics, store=path, timeout=_TIMEOUT)
        return
    yield from versions()
    yield _cluster_not_checked(reach)
    yield from check_store(path, time.time())
    yield check_java(java_version())


def _cluster_not_checked(reach: ClusterConnection | None) -> DoctorFinding:
    if reach is None or not reach.servers:
        text = "No producer has recorded its connection settings, so no broker was checked."
        return DoctorFinding("cluster", "ok", text)
    text = f"The cluster at {reach.servers} requires credentials that the dashboard does not have, so it was not checked."
    fix = "Run this command where the credentials are available: producer-core doctor --config-file FILE"
    return DoctorFinding("cluster", "warning", text, fix)
