"""Dispatch events to the hooks, and the outcome of a message to its callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.user_callbacks import is_containable
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.reports import DeliveryReport, as_message, delivery_report
from producer_core.errors import DeliveryFailed
from producer_core.events import Acknowledged, AttemptFailed, DeadLetter, Hook, Notice, Remark
from producer_core.kafka.classify import Failure
from producer_core.messages import MessageStatus, id_text

logger = queued_logger(__name__)

_StatisticsListener = Callable[[Mapping[str, Any]], None]
_Call = tuple[Any, ...]
"""The topic of a message, its callback, and the callback's arguments."""


class HookDispatcher:
    """Calls every hook. An exception in a hook is logged; the other hooks are still called, and the thread continues."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._acknowledged = _overridden(hooks, "acknowledged")
        self._attempt_failed = _overridden(hooks, "attempt_failed")
        self._died = _overridden(hooks, "died")
        self._duplicate = _overridden(hooks, "duplicate")
        self._counted = _overridden(hooks, "counted")
        self._client_statistics: Sequence[_StatisticsListener] = _overridden(hooks, "client_statistics")
        self._connection_failed = _overridden(hooks, "connection_failed")
        self._notice = _overridden(hooks, "notice")
        self._local = threading.local()
        self._deferred: list[_Call] | None = None  # while closing

    def add_statistics_listener(self, listener: _StatisticsListener) -> None:
        """Call this function too with librdkafka's statistics."""
        # A new list, because the poll thread may be iterating over the old one.
        self._client_statistics = [*self._client_statistics, listener]

    @property
    def calling(self) -> bool:
        """Whether this thread is inside a user's delivery callback."""
        return getattr(self._local, "calling", False)

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        _call_each(self._acknowledged, batch)

    def attempt_failed(self, delivery: Delivery, failure: Failure, retry_in: float | None) -> None:
        """Report the latest attempt of a message; `retry_in` is seconds until the next one, None if there is none."""
        attempt, verdict = delivery.attempts[-1]
        event = AttemptFailed(
            id_text(delivery.id), delivery.topic, failure.code, failure.kind, attempt.text, len(delivery.attempts),
            retry_in, verdict == "possibly_persisted", attempt.failed_at,
        )  # fmt: skip
        if delivery.span is not None:
            delivery.span.attempt_failed(event)
        _call_each(self._attempt_failed, event)

    def dead_letter(self, dead_letter: DeadLetter) -> None:
        _call_each(self._died, dead_letter)

    def duplicate(self, topic: str) -> None:
        _call_each(self._duplicate, topic)

    def counted(self, topic: str, what: Remark) -> None:
        _call_each(self._counted, topic, what)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        _call_each(self._client_statistics, statistics)

    def connection_failed(self, reason: str) -> None:
        _call_each(self._connection_failed, reason)

    def notice(self, notice: Notice) -> None:
        _call_each(self._notice, notice)

    def call_back(self, delivery: Delivery, message: Any, dead_letter: DeadLetter | None) -> None:
        """Call the callbacks of a settled message. Called once for each message."""
        callbacks = delivery.callbacks
        if callbacks is None:
            return
        if callbacks.span is not None:
            callbacks.span.settled(message, dead_letter)
        if callbacks.on_unsent is not None and (dead_letter is not None or message is None):
            callbacks.on_unsent(delivery.seq, dead_letter)
        if callbacks.on_settled is not None:
            callbacks.on_settled("failed" if dead_letter else "duplicate" if message is None else "sent")
        if not callbacks.need_report:
            return
        report = delivery_report(delivery, message, dead_letter)
        if callbacks.on_delivery is not None:
            self._call(delivery.topic, callbacks.on_delivery, report)
        if callbacks.callback is not None:
            settled = as_message(delivery, _status(report), report.error)
            error = None if dead_letter is None else _delivery_failed(dead_letter)
            self._call(delivery.topic, callbacks.callback, error is None, settled, error or report)

    @contextmanager
    def callbacks_last(self) -> Iterator[None]:
        """Call the callbacks of the messages that the block settles at its end, in order.

        A callback that blocks then delays no other message of the same reports.
        """
        held: list[_Call] = []
        self._local.held = held
        try:
            yield
        finally:
            self._local.held = None
            for call in held:
                self._call(*call)

    def defer_callbacks(self) -> None:
        """Keep the callbacks of the messages that are settled from now on for `call_deferred`. Used by close()."""
        self._deferred = []

    def call_deferred(self, timeout: float) -> None:
        """Call the deferred callbacks on another thread, and wait for `timeout` seconds: a callback may never return."""
        deferred = self._deferred
        if not deferred:
            return
        thread = threading.Thread(
            target=self._call_all, args=(deferred,), name="producer-core-callbacks", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter is exiting and starts no threads
            self._call_all(deferred)
            return
        thread.join(timeout)
        if thread.is_alive():
            left = with_fields("close() does not wait for delivery callbacks", not_returned=len(deferred))
            logger.warning(**left)

    def _call_all(self, calls: list[_Call]) -> None:
        while calls:
            self._call_now(*calls[0])
            del calls[0]

    def _call(self, topic: str, callback: Callable[..., None], *arguments: Any) -> None:
        held: list[_Call] | None = getattr(self._local, "held", None)
        if held is not None:
            held.append((topic, callback, *arguments))
        elif self._deferred is not None:
            self._deferred.append((topic, callback, *arguments))
        else:
            self._call_now(topic, callback, *arguments)

    def _call_now(self, topic: str, callback: Callable[..., None], *arguments: Any) -> None:
        self._local.calling = True
        try:
            callback(*arguments)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception(**with_fields("delivery callback failed", topic=topic))
        finally:
            self._local.calling = False


def _overridden(hooks: Sequence[Hook], name: str) -> list[Callable[..., None]]:
    """Return the hooks' methods of this name, without those that do nothing."""
    methods = [getattr(hook, name) for hook in hooks]
    return [method for method in methods if getattr(method, "__func__", None) is not getattr(Hook, name)]


def _call_each(listeners: Sequence[Callable[..., None]], *event: Any) -> None:
    for listener in listeners:
        try:
            listener(*event)
        except BaseException as error:
            if not is_containable(error):
                raise
            hook = type(getattr(listener, "__self__", listener)).__name__
            logger.exception(**with_fields("hook failed", hook=hook, event=getattr(listener, "__name__", "")))


def _delivery_failed(dead_letter: DeadLetter) -> DeliveryFailed:
    return DeliveryFailed(dead_letter.error_text, code=dead_letter.code, verdict=dead_letter.verdict)


def _status(report: DeliveryReport) -> MessageStatus:
    if report.duplicate:
        return MessageStatus.DUPLICATE
    return MessageStatus.SENT if report.verdict is None else MessageStatus.DLQ
