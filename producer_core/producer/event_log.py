"""Log what happens to a producer: start and close, the connection, causes of dead letters, and its notices.

The lines go through the log queue, which has a thread of its own, so a handler that blocks delays no message.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from typing import Any

from producer_core._internal.log_fields import with_fields
from producer_core._internal.log_queue import QUEUE, Line, LogQueue
from producer_core._internal.masking import mask_or_hide
from producer_core.delivery.reports import CloseReport
from producer_core.events import DeadLetter, Hook, Notice

logger = logging.getLogger(__name__)

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}
"""The level of a notice, by its severity."""
_TEXTS = {
    "acknowledged_lost": "acknowledged records lost",
    "epoch_rose": "producer epoch bumped",
    "fatal_error": "kafka client replaced",
    "fenced": "producer fenced",
    "journal_available": "journal has room again",
    "journal_torn": "journal write interrupted",
    "shard_ended": "part of exactly-once delivery stopped",
    "topic_recreated": "topic deleted or recreated",
}
"""The text of a notice, by its kind. Without an entry it is the kind itself: `journal_full` is "journal full"."""
_LOGGED_ELSEWHERE = frozenset({"connection_refused", "dedup_degraded", "dedup_restored", "token_unavailable"})
"""Notices whose event has a line of its own already."""
_ENDS = {"journal_available": "journal_full"}
"""Notices that end the state of another one. Both are shown at the default level, and the latest one is never hidden."""
_REDUNDANT = frozenset({"case", "ends", "trigger"})
"""Details of a notice that its line leaves out: they repeat its kind, or serve the alerts only."""
_RESERVED = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "reason"})
_NO_BROKER = "No broker is connected: "
_NUMBERS = re.compile(r"\d+")
_NODE = re.compile(r"^(?:\w+://)?(?P<broker>[^/\s]+)/(?:bootstrap|-?\d+)(?=: )")
"""The name that librdkafka gives a broker: its address, and its id or `bootstrap`."""


class EventLog(Hook):
    """Queues log lines from hook calls. Producers of the same brokers share the limit of one line a minute per cause."""

    def __init__(
        self,
        brokers: str = "",
        *,
        log: logging.Logger = logger,
        queue: LogQueue = QUEUE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._log = log
        self._queue = queue
        self._clock = clock
        self._connected = False
        self._down_since: float | None = None  # no broker connected since
        self._failed: dict[str, float] = {}  # addresses that failed while another broker was connected
        self._failures: dict[str, set[Hashable]] = {}  # by address, the causes of its failures in this outage

    # the producer

    def started(self, **fields: Any) -> None:
        """Log the start with the producer's most important options."""
        self._put(logging.INFO, "producer started", {"brokers": self._brokers, **fields})

    def closed(self, report: CloseReport, **fields: Any) -> None:
        """Log the close with its report. A loss of dead letters is an error."""
        level = logging.ERROR if report.lost else logging.INFO
        self._put(level, "producer closed", {**asdict(report), **fields})

    # hook methods

    def connection_failed(self, reason: str) -> None:
        self._note_failure(broker := _address(reason))
        cause = "failed", self._brokers, broker, _without_numbers(_NODE.sub("", reason))
        self._failures.setdefault(broker, set()).add(cause)
        if self._warns() and not self._queue.repeats(cause):
            fields = {"broker": mask_or_hide(broker), "reason": mask_or_hide(reason)}
            self._put(logging.WARNING, "broker connection failed", fields, cause=cause)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        if self._failed:
            for broker in statistics.get("brokers", {}).values():
                if broker.get("state") == "UP":
                    self._restored(str(broker.get("nodename")))

    def notice(self, notice: Notice) -> None:
        if notice.kind == "connection_lost":
            self._connection_lost(notice)
        elif notice.kind == "connected":
            self._connection_restored()
        elif notice.kind not in _LOGGED_ELSEWHERE:
            self._log_notice(notice)

    def died(self, dead_letter: DeadLetter) -> None:
        cause = "dead letter", self._brokers, dead_letter.topic, dead_letter.fingerprint
        if self._warns() and not self._queue.repeats(cause):
            fields = {
                "topic": dead_letter.topic,
                "code": dead_letter.code,
                "error": mask_or_hide(dead_letter.error_text),
            }
            self._put(logging.WARNING, "dead letter", fields, cause=cause)

    # the connection

    def _note_failure(self, broker: str) -> None:
        if self._connected and broker:
            self._failed.setdefault(broker, self._clock())
        elif self._down_since is None:
            self._down_since = self._clock()

    def _connection_lost(self, notice: Notice) -> None:
        self._connected = False
        self._failed.clear()
        if self._down_since is None:
            self._down_since = self._clock()
        reason = mask_or_hide(notice.text.removeprefix(_NO_BROKER))
        self._put_state(logging.WARNING, "no broker is connected", {"reason": reason})

    def _connection_restored(self) -> None:
        self._connected = True
        self._queue.forget([cause for causes in self._failures.values() for cause in causes])
        self._failures.clear()
        since, self._down_since = self._down_since, None
        if since is None:
            return self._put(logging.INFO, "broker connected", {"brokers": self._brokers})
        return self._put_state(logging.WARNING, "broker connection restored", {"down_s": self._age(since)})

    def _restored(self, broker: str) -> None:
        """Log that a broker responds again whose connection failed while others were connected."""
        if (since := self._failed.pop(broker, None)) is not None:
            self._queue.forget(self._failures.pop(broker, ()))
            fields = {"broker": mask_or_hide(broker), "down_s": self._age(since)}
            self._put_state(logging.WARNING, "broker connection restored", fields, broker)

    def _age(self, since: float) -> float:
        return round(self._clock() - since, 1)

    # lines

    def _log_notice(self, notice: Notice) -> None:
        text = _TEXTS.get(notice.kind, notice.kind.replace("_", " "))
        reason = mask_or_hide(notice.text)
        fields = {"reason": reason, **_details(notice.details)}
        cause = notice.kind, self._brokers, fields.get("topic"), _without_numbers(reason)
        level = logging.WARNING if notice.kind in _ENDS else _LEVELS[notice.severity]
        state = _ENDS.get(notice.kind, notice.kind)
        group = (state, self._brokers) if state in _ENDS.values() else None
        self._put(level, text, fields, cause=cause, group=group)

    def _warns(self) -> bool:
        return self._log.isEnabledFor(logging.WARNING)

    def _put_state(self, level: int, text: str, fields: Mapping[str, Any], broker: str = "") -> None:
        group = "connection", self._brokers, broker
        self._put(level, text, fields, cause=(text, *group), group=group)

    def _put(
        self,
        level: int,
        text: str,
        fields: Mapping[str, Any],
        *,
        cause: Hashable = None,
        group: Hashable = None,
    ) -> None:
        if self._log.isEnabledFor(level):
            line = with_fields(text, **fields)
            self._queue.put(Line(self._log, level, line["msg"], line["extra"]), cause=cause, group=group)


def _address(reason: str) -> str:
    found = _NODE.match(reason)
    return found["broker"] if found else ""


def _without_numbers(text: str) -> str:
    return _NUMBERS.sub("#", text)


def _details(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a notice that fit into a line: numbers and texts, without those that repeat others."""
    hidden = {*_RESERVED, *_REDUNDANT, *(("subject",) if "topic" in details else ())}
    return {
        name: mask_or_hide(value) if isinstance(value, str) else value
        for name, value in details.items()
        if name not in hidden and isinstance(value, str | int | float)
    }
