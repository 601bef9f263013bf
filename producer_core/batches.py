"""A gathering: messages sent together whose ends are counted together."""

from __future__ import annotations

import logging
import threading
from typing import Any

from producer_core.errors import NotAccepted
from producer_core.masking import mask_told
from producer_core.reports import DeliveryReport

logger = logging.getLogger(__name__)


class Gathering:
    """Counts how each message of a batch ended; `result` waits for the last one."""

    def __init__(self) -> None:
        self._ended = threading.Condition()  # guards the counts below
        self._sent = self._failed = self._duplicate = 0
        self._ids: list[str] = []
        self._total = 0

    def accepted(self, message_id: str | None) -> None:
        self._total += 1
        if message_id is not None:
            self._ids.append(message_id)
            return
        with self._ended:
            self._duplicate += 1

    def refused(self, error: NotAccepted) -> None:
        logger.warning("message of a batch not accepted", extra={"error": mask_told(str(error))})
        self._total += 1
        with self._ended:
            self._failed += 1

    def settled(self, report: DeliveryReport) -> None:
        """A delivery report, on the poll thread."""
        with self._ended:
            self._duplicate += report.duplicate
            self._failed += report.error is not None
            self._sent += report.error is None and not report.duplicate
            self._ended.notify()

    def result(self) -> dict[str, Any]:
        with self._ended:
            self._ended.wait_for(lambda: self._sent + self._failed + self._duplicate >= self._total)
            return {
                "total": self._total,
                "sent": self._sent,
                "failed": self._failed,
                "duplicate": self._duplicate,
                "message_ids": self._ids,
            }
