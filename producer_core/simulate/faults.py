"""A schedule of faults: which are active at a second of the cycle, and who brings them about."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from producer_core.errors import ProducerError

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.1


@dataclass(frozen=True)
class RejectFault:
    """A topic's messages are refused with this code; `share` of its requests where it is not all of them."""

    topic: str
    code: str
    share: float = 1.0


@dataclass(frozen=True)
class SlowFault:
    """Every answer takes so many seconds longer."""

    seconds: float


@dataclass(frozen=True)
class OutageFault:
    """No broker is there."""


Fault = RejectFault | SlowFault | OutageFault


@dataclass(frozen=True)
class Window:
    """A fault and the seconds of the cycle in which it is active; until None it is always there."""

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
        """The faults that are active so many seconds after the start."""
        second = elapsed % self.cycle
        return frozenset(window.fault for window in self.windows if window.covers(second))

    def of(self, kind: type[Fault]) -> list[Window]:
        return [window for window in self.windows if isinstance(window.fault, kind)]


def shop_schedule(prefix: str = "") -> FaultSchedule:
    """What `make run` shows: something happens within each half minute, and a stretch of quiet follows.

    Seconds 8 to 20 payments are refused, 26 to 32 some user events must be sent twice, 36 to 44 every
    answer takes a quarter of a second, 50 to 55 no broker is there, 55 to 80 are quiet. The audit log is
    always refused.
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
    """Brings faults about: on a broker of ours, or on our side of somebody else's."""

    def apply(self, faults: frozenset[Fault]) -> None:
        """Make exactly these faults active."""


class BrokerFaults(Protocol):
    """What the embedded broker offers."""

    def reject(self, topic: str, code: int | str = ...) -> None: ...
    def accept(self, topic: str) -> None: ...
    def fail_next(self, topic: str, code: int | str, times: int = ...) -> None: ...
    def set_latency(self, seconds: float) -> None: ...
    def down(self) -> None: ...
    def up(self) -> None: ...


class OnBroker:
    """Faults of an embedded broker; called by one thread. A share of a topic is every so many requests."""

    def __init__(self, broker: BrokerFaults) -> None:
        self._broker = broker
        self._active: frozenset[Fault] = frozenset()

    def apply(self, faults: frozenset[Fault]) -> None:
        for fault in self._active - faults:
            self._end(fault)
        for fault in faults - self._active:
            self._begin(fault)
        for fault in faults:
            self._go_on(fault)
        self._active = faults

    def _begin(self, fault: Fault) -> None:
        match fault:
            case RejectFault(topic=topic, code=code, share=1.0):
                self._broker.reject(topic, code)
            case SlowFault(seconds=seconds):
                self._broker.set_latency(seconds)
            case OutageFault():
                self._broker.down()

    def _go_on(self, fault: Fault) -> None:
        """A partial rejection: one request at each look, which is a part of them."""
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
    """Walks along a schedule on a thread of its own until it is stopped; the last faults then end."""

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
        """End the walk; of the faults only those that would keep messages from settling are taken back."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        start = self._clock()
        active: frozenset[Fault] = frozenset()
        while not self._stopping.wait(_LOOK_EVERY):
            active = self._schedule.active(self._clock() - start)
            self._apply(active)
        self._apply(frozenset(fault for fault in active if isinstance(fault, RejectFault)))

    def _apply(self, faults: frozenset[Fault]) -> None:
        for executor in self._executors:
            try:
                executor.apply(faults)
            except ProducerError as error:
                logger.warning("fault could not be brought about", extra={"error": str(error)})
