"""The doctor beside the page: one examination of a store at a time, on a thread of its own, followed by every browser."""

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

_latest: dict[Path, Examination] = {}
_lock = threading.Lock()


class Examination:
    """What was found so far; `over` when there is no more to come."""

    def __init__(
        self, findings: Iterable[DoctorFinding], *, about: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.about = about
        self.began = clock()
        self.ended: float | None = None
        self._clock = clock
        self._findings = findings
        self._found: list[DoctorFinding] = []
        self._thread = threading.Thread(target=self._run, name="producer-core-doctor", daemon=True)

    def start(self) -> Examination:
        self._thread.start()
        return self

    def join(self, timeout: float) -> bool:
        """Wait for the end; False when the timeout ran out."""
        self._thread.join(timeout)
        return self.over

    @property
    def over(self) -> bool:
        return self.ended is not None

    @property
    def found(self) -> tuple[DoctorFinding, ...]:
        """In the order in which they were made; when all are there the worst first."""
        found = tuple(self._found)
        return tuple(sorted(found, key=lambda one: _WORST_FIRST.index(one.level))) if self.over else found

    def _run(self) -> None:
        try:
            for finding in self._findings:
                self._found.append(finding)
        except Exception as error:  # a page that waits for ever would be worse than any mistake of ours
            logger.exception("the doctor failed")
            text = f"The examination broke off: {type(error).__name__}."
            self._found.append(
                DoctorFinding("doctor", "problem", text, "Run producer-core doctor in a shell.")
            )
        finally:
            self.ended = self._clock()


def latest(path: Path) -> Examination | None:
    """The last examination of a store, in this server; None before the first."""
    return _latest.get(path)


def begin(path: Path, reach: ClusterConnection | None, topics: Sequence[str] = ()) -> Examination:
    """Examine a store and its cluster; while one goes on, that one."""
    with _lock:
        going_on = _latest.get(path)
        if going_on is not None and not going_on.over:
            return going_on
        about = reach.servers if reach is not None and reach.servers else ""
        _latest[path] = Examination(look(path, reach, topics), about=about).start()
        return _latest[path]


def look(path: Path, reach: ClusterConnection | None, topics: Sequence[str]) -> Iterator[DoctorFinding]:
    """What the doctor says; of a cluster that asks for credentials only that it was not asked."""
    if reach is not None and reach.servers and not reach.secret:
        settings = dict(reach.settings)
        yield from examine(reach.servers, settings, topics=topics, store=path, timeout=_TIMEOUT)
        return
    yield from versions()
    yield _not_asked(reach)
    yield from check_store(path, time.time())
    yield check_java(java_version())


def _not_asked(reach: ClusterConnection | None) -> DoctorFinding:
    if reach is None or not reach.servers:
        text = "No producer has said yet how it reaches its brokers, so none was asked."
        return DoctorFinding("cluster", "ok", text)
    text = (
        f"The producers sign in to {reach.servers}, and this page holds no credentials, so it was not asked."
    )
    fix = "Where the credentials are: producer-core doctor --config-file FILE"
    return DoctorFinding("cluster", "warning", text, fix)
