"""The audience: the hooks that hear what happens, and the owner of a message who hears how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from producer_core._internal.user_callbacks import is_containable
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.reports import DeliveryReport, as_message, delivery_report
from producer_core.errors import DeliveryFailed
from producer_core.events import AttemptFailed, DeadLetter, Hook
from producer_core.kafka.classify import Failure
from producer_core.messages import MessageStatus, id_text

logger = logging.getLogger(__name__)


class HookDispatcher:
    """Tells everybody; what a listener raises is logged, and neither the others nor our thread suffer."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._local = threading.local()

    @property
    def calling(self) -> bool:
        """Whether this thread is inside somebody's delivery callback."""
        return getattr(self._local, "calling", False)

    def tell(self, what: str, *about: Any) -> None:
        """Call the method `what` of every hook."""
        for hook in self._hooks:
            try:
                getattr(hook, what)(*about)
            except BaseException as error:
                if not is_containable(error):
                    raise
                logger.exception("hook failed", extra={"hook": type(hook).__name__, "event": what})

    def attempt_failed(self, delivery: Delivery, failure: Failure, retry_in: float | None) -> None:
        attempt, verdict = delivery.attempts[-1]
        event = AttemptFailed(
            id_text(delivery.id), delivery.topic, failure.code, failure.kind, attempt.text, len(delivery.attempts),
            retry_in, verdict == "possibly_persisted", attempt.failed_at,
        )  # fmt: skip
        self.tell("attempt_failed", event)

    def call_back(self, delivery: Delivery, message: Any, letter: DeadLetter | None) -> None:
        """Tell the owner, once, how the message ended."""
        owner = delivery.owner
        if owner is None:
            return
        if owner.unsent is not None and (letter is not None or message is None):
            owner.unsent(delivery.seq, letter)
        if owner.ended is not None:
            owner.ended("failed" if letter else "duplicate" if message is None else "sent")
        if not owner.listens:
            return
        report = delivery_report(delivery, message, letter)
        if owner.on_delivery is not None:
            self._call(delivery.topic, owner.on_delivery, report)
        if owner.callback is not None:
            told = as_message(delivery, _status(report), report.error)
            error = (
                None
                if letter is None
                else DeliveryFailed(letter.error_text, code=letter.code, verdict=letter.verdict)
            )
            self._call(delivery.topic, owner.callback, error is None, told, error or report)

    def _call(self, topic: str, callback: Callable[..., None], *about: Any) -> None:
        self._local.calling = True
        try:
            callback(*about)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception("delivery callback failed", extra={"topic": topic})
        finally:
            self._local.calling = False


def _status(report: DeliveryReport) -> MessageStatus:
    if report.duplicate:
        return MessageStatus.DUPLICATE
    return MessageStatus.SENT if report.verdict is None else MessageStatus.DLQ
