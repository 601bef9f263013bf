"""Health checks of a producer: samples are compared with thresholds, changes raise alerts."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from producer_core._internal import forks
from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread
from producer_core._internal.user_callbacks import is_containable
from producer_core.errors import ForkedProducer

logger = queued_logger(__name__)

_LIMIT_AGE_S = 10
"""Seconds for which the memory limit is not read again."""

AlertCallback = Callable[[dict[str, Any]], None]

DEFAULT_THRESHOLDS: Mapping[str, float] = {
    "error_rate_threshold": 0.05,
    "latency_threshold_ms": 1000,
    "dlq_size_threshold": 100,
    "memory_usage_threshold": 0.8,
}

_SUMMARISED = 10
"""The number of samples in a summary."""

_CURRENT_S = 1.0
"""The age up to which a sample describes the present. A summary of older ones begins with a check."""


class _Check(NamedTuple):
    type: str
    sample_key: str
    threshold_key: str
    severity: str


_CHECKS = (
    _Check("high_error_rate", "error_rate", "error_rate_threshold", "high"),
    _Check("high_dlq_size", "dlq_size", "dlq_size_threshold", "medium"),
    _Check("high_latency", "avg_latency_ms", "latency_threshold_ms", "medium"),
    _Check("high_memory_usage", "memory_usage", "memory_usage_threshold", "high"),
)


_NO_BROKER = "No broker is connected"


def evaluate(
    sample: Mapping[str, Any], thresholds: Mapping[str, float], *, before: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the alerts of one sample, in a fixed order. A missing or None key or threshold skips its check.

    A connection counts as lost after two samples without one, because a single sample may fall into a reconnect.
    """
    alerts = [
        {"type": check.type, "value": value, "threshold": limit, "severity": check.severity}
        for check in _CHECKS
        if (value := sample.get(check.sample_key)) is not None
        and (limit := thresholds.get(check.threshold_key)) is not None
        and value > limit
    ]
    if (
        before is not None
        and not sample.get("producer_connected", True)
        and not before.get("producer_connected", True)
    ):
        alerts.append({"type": "connection_lost", "value": 0, "threshold": 1, "severity": "high"})
    return alerts


def summarise(history: Sequence[Mapping[str, Any]], thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Return status, metrics and issues over the last ten samples. There must be at least one.

    A sample counts by its number of messages, so that idle checks do not dilute a rate. A missing or None threshold is
    never exceeded.
    """
    recent = list(history)[-_SUMMARISED:]
    error_rate = _weighted_mean(recent, "error_rate", ("acknowledged_messages", "dead_messages"))
    latency = _weighted_mean(recent, "avg_latency_ms", ("acknowledged_messages",))
    dlq_size = max((sample.get("dlq_size") or 0 for sample in recent), default=0)
    memory = recent[-1].get("memory_usage") or 0.0

    def above(value: float, threshold: str) -> bool:
        limit = thresholds.get(threshold)
        return limit is not None and value > limit

    failures, degradations = [], []
    if above(error_rate, "error_rate_threshold"):
        failures.append(f"High error rate: {error_rate:.2%}")
    if above(latency, "latency_threshold_ms"):
        degradations.append(f"High latency: {latency:.0f}ms")
    if above(dlq_size, "dlq_size_threshold"):
        degradations.append(f"High DLQ size: {dlq_size}")
    if above(memory, "memory_usage_threshold"):
        degradations.append(f"High memory usage: {memory:.0%}")
    if len(recent) > 1 and not any(sample.get("producer_connected", True) for sample in recent[-2:]):
        failures.append(_NO_BROKER)
    return {
        "status": "unhealthy" if failures else "degraded" if degradations else "healthy",
        "metrics": {"avg_error_rate": error_rate, "avg_latency_ms": latency, "max_dlq_size": dlq_size},
        "issues": failures + degradations,
    }


def _weighted_mean(samples: Sequence[Mapping[str, Any]], key: str, counts: Sequence[str]) -> float:
    """Return the mean of `key`, weighted by the sum of `counts`. A sample without these counts has the weight 1."""
    pairs = [
        (float(sample[key]), sum(sample.get(count, 0) for count in counts) if counts[0] in sample else 1)
        for sample in samples
        if sample.get(key) is not None
    ]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else 0.0


class HealthMonitor:
    """Takes a sample per interval on a background thread, and calls callbacks when an alert begins or ends."""

    def __init__(self, check_interval_seconds: float = 30) -> None:
        self.check_interval = check_interval_seconds
        self.health_history: deque[dict[str, Any]] = deque(maxlen=100)
        self.alert_callbacks: list[AlertCallback] = []
        self.resolved_callbacks: list[AlertCallback] = []
        self.thresholds: dict[str, float] = dict(DEFAULT_THRESHOLDS)
        self._fork_mark: forks.ForkMark | None = None  # of the process that started the checks
        self._take_sample: Callable[[], dict[str, Any]] | None = None
        self._unreachable: Callable[[], str | None] = lambda: None
        self._open_circuits: Callable[[], Sequence[str]] | None = None
        self._checking = threading.Lock()  # serializes the checks, so that each change is reported once
        self._firing: dict[str, dict[str, Any]] = {}  # each check replaces the whole dict
        self._checked_at = float("-inf")  # of the last sample taken, on the monotonic clock
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self,
        producer_health_callback: Callable[[], dict[str, Any]],
        *,
        unreachable: Callable[[], str | None] = lambda: None,
        open_circuits: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """Start the checks, the first one at once. `unreachable` returns why no broker is connected, or None.

        `open_circuits` returns a text for each circuit that is not closed.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        self._stopping.clear()
        self._fork_mark = forks.mark()
        self._take_sample, self._unreachable = producer_health_callback, unreachable
        self._open_circuits = open_circuits
        self._thread = threading.Thread(target=self._run, name="producer-core-health", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the checks at once. Wait at most `timeout` seconds for a running check."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def add_alert_callback(self, callback: AlertCallback) -> None:
        """Call `callback` once when an alert begins, with `type`, `value`, `threshold` and `severity`.

        The alert of a lost connection also has a `reason`. `default_alert_handler` also logs the end of an alert.
        """
        self.alert_callbacks.append(callback)
        if callback is default_alert_handler:
            self.resolved_callbacks.append(_default_resolved_handler)

    def add_resolved_callback(self, callback: AlertCallback) -> None:
        """Call `callback` once when an alert ends, with the last state of the alert."""
        self.resolved_callbacks.append(callback)

    def check_soon(self) -> None:
        """Make the background thread check at once."""
        self._wake.set()

    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts of the last check."""
        return list(self._firing.values())

    def check(self, sample: dict[str, Any]) -> None:
        """Evaluate one sample, and call the callbacks of alerts that begin or end."""
        before = self.health_history[-1] if self.health_history else None
        if (reason := self._unreachable()) is not None:
            # the connection is known to be lost, so one sample suffices
            before = {"producer_connected": False}
        self.health_history.append(sample)
        previous = self._firing
        self._firing = {item["type"]: item for item in evaluate(sample, self.thresholds, before=before)}
        if reason is not None and "connection_lost" in self._firing:
            self._firing["connection_lost"]["reason"] = reason
        for name, item in self._firing.items():
            if name not in previous:
                _call(self.alert_callbacks, item)
        for name, item in previous.items():
            if name not in self._firing:
                _call(self.resolved_callbacks, item)

    def get_health_summary(self) -> dict[str, Any]:
        """Return `status` (healthy, degraded, unhealthy, unknown) with its issues, over the last ten checks.

        The last of them is made in this call, unless one is less than a second old. Before the monitor is started, the
        status is unknown, with only a `message`. In a forked child the status is unhealthy, because the producer belongs
        to the parent, and no check is made.
        """
        if (
            self._fork_mark is not None and not self._fork_mark[0]
        ):  # before the lock, which the parent may hold
            return self._summary_in_child()
        if time.monotonic() - self._checked_at > _CURRENT_S:
            self._check_now()
        history = list(self.health_history)
        if not history:
            return {"status": "unknown", "message": "No health data available"}
        summary = summarise(history, self.thresholds)
        if (reason := self._unreachable()) is not None:
            others = [issue for issue in summary["issues"] if issue != _NO_BROKER]
            summary |= {"status": "unhealthy", "issues": [f"{_NO_BROKER}: {reason}", *others]}
        if self._open_circuits is not None and (circuits := self._open_circuits()):
            summary |= {"status": "unhealthy", "issues": [*summary["issues"], *circuits]}
        return self._public(summary, len(history))

    def _summary_in_child(self) -> dict[str, Any]:
        found = summarise([{}], self.thresholds)
        return self._public(found | {"status": "unhealthy", "issues": [str(ForkedProducer())]}, 0)

    def _public(self, summary: Mapping[str, Any], checks: int) -> dict[str, Any]:
        return {
            "status": summary["status"],
            "timestamp": datetime.now().isoformat(),
            "metrics": summary["metrics"],
            "issues": summary["issues"],
            "thresholds": dict(self.thresholds),
            "checks_performed": checks,
        }

    def _run(self) -> None:
        mark_background_thread()
        while True:
            self._check_now()
            self._wake.wait(self.check_interval)
            self._wake.clear()
            if self._stopping.is_set():
                return

    def _check_now(self) -> None:
        with self._checking:
            if self._take_sample is None:
                return
            try:
                self.check(self._take_sample())
                self._checked_at = time.monotonic()
            except Exception:
                logger.exception("health check failed")


def _call(callbacks: Sequence[AlertCallback], alert: dict[str, Any]) -> None:
    for callback in list(callbacks):
        try:
            callback(dict(alert))
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception(**with_fields("alert callback failed", alert=alert["type"]))


def default_alert_handler(alert: Mapping[str, Any]) -> None:
    """Log the alert as one warning."""
    severity = str(alert.get("severity", "unknown")).upper()
    if reason := alert.get("reason"):
        logger.warning(f"ALERT [{severity}] {_NO_BROKER}: {mask_or_hide(reason)}", group=_state(alert))
        return
    logger.warning(
        f"ALERT [{severity}] {alert.get('type', 'unknown')}: {alert.get('value', 'unknown')} "
        f"exceeds threshold {alert.get('threshold', 'unknown')}",
        group=_state(alert),
    )


def _default_resolved_handler(alert: Mapping[str, Any]) -> None:
    ended = "A broker is connected again" if "reason" in alert else alert.get("type", "unknown")
    logger.warning(f"RESOLVED: {ended}", group=_state(alert))


def _state(alert: Mapping[str, Any]) -> tuple[str, str]:
    return "alert", str(alert.get("type"))


def memory_usage(root: Path = Path("/")) -> tuple[int, int | None]:
    """Return the resident bytes of this process, and its limit: that of its control group, or the machine's memory.

    Both versions of control groups are read below `root`. The lowest limit from the process's group upwards counts. A
    changed limit is noticed within ten seconds.
    """
    below = str(root).rstrip("/")
    return _resident(below), _limit(below, int(time.monotonic() / _LIMIT_AGE_S))


@lru_cache(maxsize=1)
def _limit(root: str, period: int) -> int | None:
    """Return the memory limit. `period` changes when it must be read again, because that takes ten system calls."""
    paths = [(f"{root}/proc/meminfo", 1024), *((path, 1) for path in _limit_files(root))]
    limits = (_first_number(path, scale) for path, scale in paths)
    return min((limit for limit in limits if limit is not None), default=None)


def _resident(root: str) -> int:
    try:
        pages = int(_read(f"{root}/proc/self/statm").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit_files(root: str) -> Iterator[str]:
    """Return the limit files of the groups in /proc/self/cgroup, whose lines are `hierarchy:controllers:path`."""
    try:
        lines = os.fsdecode(_read(f"{root}/proc/self/cgroup")).splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mount, name = f"{root}/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = f"{root}/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part]
        # In a container, the path may be that of the host; then only the mount point itself exists.
        for length in range(len(parts), -1, -1):
            yield "/".join((mount, *parts[:length], name))


def _first_number(path: str, scale: int = 1) -> int | None:
    try:
        words = _read(path).split()
    except OSError:
        return None
    return next((int(word) * scale for word in words if word.isdigit()), None)


def _read(path: str) -> bytes:
    """Return the content of a small file of the kernel. Paths are texts, because this runs every second."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)
