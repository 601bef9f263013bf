"""Log what happens to a producer: start and close, the connection, causes of dead letters, and its notices.

The lines go through the log queue, which has a thread of its own, so a handler that blocks delays no message.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from producer_core._internal.join_names import join_names
from producer_core._internal.log_fields import with_fields
from producer_core._internal.log_queue import QUEUE, REPEAT_AFTER_S, Line, LogQueue
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
_OF_TOPICS = {"order_break": "order breaks on more topics"}
"""Notices about a topic that many topics can have at once, with the text for those without a line of their own."""
_NAMED = 5
"""Topics that have a line of their own, and topics that the line about more topics names."""
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
        self._topics: defaultdict[Hashable, _Topics] = defaultdict(_Topics)  # by kind of event

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
        elif notice.kind in _OF_TOPICS:
            self._log_notice_of_topics(notice)
        elif notice.kind not in _LOGGED_ELSEWHERE:
            self._log_notice(notice)

    def died(self, dead_letter: DeadLetter) -> None:
        if not self._warns():
            return
        topics = self._topics["dead letter", dead_letter.code]
        place = topics.add(dead_letter.topic, self._clock())
        own = dead_letter.topic, dead_letter.fingerprint
        cause = "dead letter", self._brokers, *(own if place == "own line" else (dead_letter.code,))
        if place != "new" and self._queue.repeats(cause):
            return
        fields = {"code": dead_letter.code, "error": mask_or_hide(dead_letter.error_text)}
        if place == "own line":
            self._put(logging.WARNING, "dead letter", {"topic": dead_letter.topic, **fields}, cause=cause)
        else:
            text = "dead letters on more topics"
            self._put(logging.WARNING, text, {**fields, **topics.more}, cause=cause)

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

    def _log_notice_of_topics(self, notice: Notice) -> None:
        topic, topics = str(notice.details["subject"]), self._topics[notice.kind]
        level, cause = _LEVELS[notice.severity], (notice.kind, self._brokers)
        if topics.add(topic, self._clock()) == "own line":
            fields = {"reason": mask_or_hide(notice.text), "topic": topic}
            self._put(level, notice.kind.replace("_", " "), fields, cause=(*cause, topic))
        else:
            self._put(level, _OF_TOPICS[notice.kind], topics.more, cause=cause)

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


class _Topics:
    """The topics with events of one kind, until a minute passes without one. The first few have lines of their own."""

    def __init__(self) -> None:
        self._named: set[str] = set()
        self._others: dict[str, None] = {}
        self._latest = -math.inf

    def add(self, topic: str, now: float) -> Literal["own line", "new", "known"]:
        """Return whether a topic has a line of its own, or else whether it is new among the others."""
        if now - self._latest >= REPEAT_AFTER_S:
            self._named, self._others = set(), {}
        self._latest = now
        if topic in self._named or len(self._named) < _NAMED:
            self._named.add(topic)
            return "own line"
        if topic in self._others:
            return "known"
        self._others[topic] = None
        return "new"

    @property
    def more(self) -> dict[str, Any]:
        """The fields of the line about the topics without a line of their own."""
        return {"topics": len(self._others), "names": join_names(self._others, most=_NAMED)}


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
