"""Look up values by name on threads of their own. All callers of a name share one lookup, and its failure."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from producer_core.errors import NotAccepted, ProducerClosed, SchemaUnavailable
from producer_core.kafka.schemas.rejections import SEND_AGAIN, registry_failure

T = TypeVar("T")

REMEMBERED = 5.0
"""Seconds in which a failed lookup is not repeated."""
_MAX_THREADS = 16
"""Lookups that run at the same time; further ones wait for one of them, within their own time."""


@dataclass(slots=True)
class _Lookup(Generic[T]):
    """One lookup. `outcome` has the value, or the error that its callers raise."""

    name: str
    expires_at: float
    outcome: Future[T | NotAccepted] = field(default_factory=Future)

    def left(self) -> float:
        return max(0.0, self.expires_at - time.monotonic())


class SharedLookups(Generic[T]):
    """The values that `load` returns by name. Any thread may use it, and an event loop.

    A found value stays in `found`. A lookup is one call of `load` on a daemon thread; its callers wait for it until `wait`
    seconds after its start. Later the thread goes on, and while it does, calls raise at once. A failure is raised again in
    the next seconds instead of a new lookup.
    """

    def __init__(self, load: Callable[[str], T], *, wait: float) -> None:
        self._load, self._wait = load, wait
        self.found: dict[str, T] = {}
        self._lock = threading.RLock()  # guards the fields below; a signal handler may send too
        self._running: dict[str, _Lookup[T]] = {}
        self._queue: deque[_Lookup[T]] = deque()
        self._threads = 0
        self._failures: dict[str, tuple[float, NotAccepted]] = {}
        self._closed = False

    def get(self, name: str) -> T:
        """Return the value of a name, found or looked up. Raise SchemaUnavailable."""
        lookup = self.start(name)
        try:
            return self._value(lookup.outcome.result(lookup.left()))
        except TimeoutError:
            raise self._expired() from None

    async def wait_for(self, name: str) -> None:
        """Wait until the name is found, without a thread of the event loop. Raise SchemaUnavailable."""
        lookup = self.start(name)
        try:
            self._value(await asyncio.wait_for(asyncio.wrap_future(lookup.outcome), lookup.left()))
        except TimeoutError:
            raise self._expired() from None

    def refresh(self, name: str) -> None:
        """Start another lookup of a name that is found. Nothing waits for it."""
        with suppress(NotAccepted):  # closed, or no thread can be started
            self.start(name, again=True)

    def start(self, name: str, *, again: bool = False) -> _Lookup[T]:
        """Start the lookup of a name, unless it runs. `again` also looks up a name that is found or has just failed.

        Raise the error of a lookup that failed in the last seconds.
        """
        with self._lock:
            if self._closed:
                raise ProducerClosed
            found = None if again else self.found.get(name)
            if found is None and (running := self._running.get(name)) is not None:
                return running
            lookup: _Lookup[T] = _Lookup(name, time.monotonic() + self._wait)
            lookup.outcome.set_running_or_notify_cancel()  # a caller that is cancelled does not end it for the others
            if found is not None:
                lookup.outcome.set_result(found)
                return lookup
            until, failure = self._failures.get(name, (0.0, None))
            if not again and failure is not None and time.monotonic() < until:
                raise _again(failure)
            self._start_thread()
            self._running[name] = lookup
            self._queue.append(lookup)
            return lookup

    def close(self) -> None:
        """Raise ProducerClosed in all callers. A thread that still waits for its response ends with it."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            for lookup in self._running.values():
                lookup.outcome.set_result(ProducerClosed())
            self._running.clear()

    # called with the lock

    def _start_thread(self) -> None:
        if self._threads >= _MAX_THREADS:
            return
        try:
            threading.Thread(target=self._work, name="schema-registry", daemon=True).start()
        except RuntimeError as error:
            raise SchemaUnavailable(f"The schema registry cannot be asked: {error}.") from error
        self._threads += 1

    # on the threads of the lookups

    def _work(self) -> None:
        while (lookup := self._next()) is not None:
            outcome = self._outcome(lookup)
            with self._lock:
                if self._running.get(lookup.name) is not lookup:  # closed
                    continue
                del self._running[lookup.name]
                if isinstance(outcome, NotAccepted):
                    self._failures[lookup.name] = (time.monotonic() + REMEMBERED, outcome)
                else:
                    self.found[lookup.name] = outcome
                    self._failures.pop(lookup.name, None)
                lookup.outcome.set_result(outcome)

    def _next(self) -> _Lookup[T] | None:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._threads -= 1
            return None

    def _outcome(self, lookup: _Lookup[T]) -> T | NotAccepted:
        if not lookup.left():  # it waited for a thread all the time
            return self._expired()
        try:
            return self._load(lookup.name)
        except Exception as error:  # noqa: BLE001  raised in the callers
            failure = registry_failure(error)
            return failure if isinstance(failure, NotAccepted) else SchemaUnavailable(str(failure))

    def _expired(self) -> SchemaUnavailable:
        return SchemaUnavailable(
            f"The schema registry did not respond within {self._wait:g} s.", fix=SEND_AGAIN
        )

    @staticmethod
    def _value(outcome: T | NotAccepted) -> T:
        if isinstance(outcome, NotAccepted):
            raise _again(outcome)
        return outcome


def _again(error: NotAccepted) -> NotAccepted:
    """Return an error of its own for each caller: a raise changes the traceback of an exception that threads share."""
    copy = type(error)(error.what, fix=error.fix)
    copy.__cause__ = error.__cause__
    return copy
