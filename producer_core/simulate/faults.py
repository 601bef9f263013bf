"""Schedule faults: which are active at a second of the cycle, and how they are applied."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from producer_core._internal.log_fields import with_fields
from producer_core.errors import ProducerError

logger = logging.getLogger(__name__)

_INTERVAL = 0.1


@dataclass(frozen=True)
class RejectFault:
    """A topic's messages are rejected with this code, or only a `share` of its requests."""

    topic: str
    code: str
    share: float = 1.0


@dataclass(frozen=True)
class SlowFault:
    """The delay of every response, in seconds."""

    seconds: float


@dataclass(frozen=True)
class OutageFault:
    """All brokers are down."""


Fault = RejectFault | SlowFault | OutageFault


@dataclass(frozen=True)
class Window:
    """A fault and the seconds of the cycle in which it is active; with `until` None it is always active."""

    fault: Fault
    since: float = 0.0
    until: float | None = None

    def covers(self, second: float) -> bool:
        return self.until is None or self.since <= second < self.until


@dataclass(frozen=True)
class FaultSchedule:
    """Windows that repeat every `cycle` seconds."""

    windows: tuple[Window, ...]
    cycle: float = 80.0

    def active(self, elapsed: float) -> frozenset[Fault]:
        """Return the faults that are active `elapsed` seconds after the start."""
        second = elapsed % self.cycle
        return frozenset(window.fault for window in self.windows if window.covers(second))

    def of(self, kind: type[Fault]) -> list[Window]:
        return [window for window in self.windows if isinstance(window.fault, kind)]


def shop_schedule(prefix: str = "") -> FaultSchedule:
    """Return the schedule of `make run`: one fault in each half minute, then a quiet phase.

    Seconds 8 to 20: payments are rejected. 26 to 32: some user events are throttled and retried. 36 to 44: every
    response is delayed by a quarter of a second. 50 to 55: no broker is up. 55 to 80: no fault. The audit log is always
    rejected.
    """
    return FaultSchedule(
        (
            Window(RejectFault(f"{prefix}audit-log", "INVALID_RECORD")),
            Window(RejectFault(f"{prefix}payments", "POLICY_VIOLATION"), 8, 20),
            Window(RejectFault(f"{prefix}user-events", "THROTTLING_QUOTA_EXCEEDED", share=0.1), 26, 32),
            Window(SlowFault(0.25), 36, 44),
            Window(OutageFault(), 50, 55),
        )
    )


class Executor(Protocol):
    """Applies faults, on the embedded broker or on the client side of a user's cluster."""

    def apply(self, faults: frozenset[Fault]) -> None:
        """Make exactly these faults active."""


class BrokerFaults(Protocol):
    """The methods of the embedded broker that inject faults."""

    def reject(self, topic: str, code: int | str = ...) -> None: ...
    def accept(self, topic: str) -> None: ...
    def fail_next(self, topic: str, code: int | str, times: int = ...) -> None: ...
    def set_latency(self, seconds: float) -> None: ...
    def down(self) -> None: ...
    def up(self) -> None: ...


class BrokerExecutor:
    """Applies faults to an embedded broker; used by one thread. A share of a topic is one request per interval."""

    def __init__(self, broker: BrokerFaults) -> None:
        self._broker = broker
        self._active: frozenset[Fault] = frozenset()

    def apply(self, faults: frozenset[Fault]) -> None:
        for fault in self._active - faults:
            self._end(fault)
        for fault in faults - self._active:
            self._begin(fault)
        for fault in faults:
            self._repeat(fault)
        self._active = faults

    def _begin(self, fault: Fault) -> None:
        match fault:
            case RejectFault(topic=topic, code=code, share=1.0):
                self._broker.reject(topic, code)
            case SlowFault(seconds=seconds):
                self._broker.set_latency(seconds)
            case OutageFault():
                self._broker.down()

    def _repeat(self, fault: Fault) -> None:
        """Reject one request per interval, for a partial rejection."""
        if isinstance(fault, RejectFault) and fault.share < 1.0:
            self._broker.fail_next(fault.topic, fault.code, 1)

    def _end(self, fault: Fault) -> None:
        match fault:
            case RejectFault(topic=topic):
                self._broker.accept(topic)
            case SlowFault():
                self._broker.set_latency(0.0)
            case OutageFault():
                self._broker.up()


class FaultRun:
    """Applies a schedule on a thread of its own until it is stopped; then it ends the last faults."""

    def __init__(
        self,
        schedule: FaultSchedule,
        executors: Sequence[Executor],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule = schedule
        self._executors = tuple(executors)
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-schedule", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop; end the faults that would keep messages from settling, and keep rejections."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        start = self._clock()
        active: frozenset[Fault] = frozenset()
        while not self._stopping.wait(_INTERVAL):
            active = self._schedule.active(self._clock() - start)
            self._apply(active)
        self._apply(frozenset(fault for fault in active if isinstance(fault, RejectFault)))

    def _apply(self, faults: frozenset[Fault]) -> None:
        for executor in self._executors:
            try:
                executor.apply(faults)
            except ProducerError as error:
                logger.warning(**with_fields("fault could not be applied", error=str(error)))
