"""Close a producer when an error occurs after which it cannot deliver without an operator."""

from __future__ import annotations

import threading
from typing import Literal

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.events import AttemptFailed, Hook, Notice
from producer_core.producer.shutdown import Shutdown

logger = queued_logger(__name__)

OnSevereErrors = Literal["continue", "stop"]

_KINDS = frozenset({"acknowledged_lost", "fenced", "read_back_refused", "shard_ended"})
_CODES = frozenset(
    {"CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "_UNSUPPORTED_FEATURE"}
)
_LOGIN_CODES = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
"""Severe in a notice only. A message also fails with them when a token ends, and is then retried."""
_TIMEOUT_S = 30.0


class SevereErrorStop(Hook):
    """Closes the producer once, on a thread of its own, so that the thread that reports the error can go on."""

    def __init__(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._once = threading.Lock()

    def notice(self, notice: Notice) -> None:
        if notice.kind in _KINDS or notice.details.get("code") in _CODES | _LOGIN_CODES:
            self._stop(notice.text)

    def attempt_failed(self, event: AttemptFailed) -> None:
        if event.code in _CODES:
            self._stop(f"{event.code}: {event.text}")

    def _stop(self, reason: str) -> None:
        if self._shutdown.begun or not self._once.acquire(blocking=False):
            return
        self._shutdown.reason = f"The producer closed itself after a severe error: {reason}"
        logger.error(**with_fields("producer stops after a severe error", reason=mask_or_hide(reason)))
        try:
            threading.Thread(target=self._shutdown.close, args=(_TIMEOUT_S,), name="closing").start()
        except RuntimeError:  # the interpreter is exiting, which closes the producer
            return
