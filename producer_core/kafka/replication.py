"""The replication of a topic: how many copies «acknowledged» means there, and who is told when it means one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from producer_core.config import ClientConfig
from producer_core.errors import BrokerError
from producer_core.events import Hook, Notice
from producer_core.kafka.cluster import Cluster, TopicView

logger = logging.getLogger(__name__)

Strength = Literal["one_copy", "one_copy_at_times", "stops_at_once", "not_told", "sound"]
"""`one_copy_at_times`: while the other replicas are behind. `stops_at_once`: no broker may fail, or writing
stops. `not_told`: several replicas, but min.insync.replicas may not be read."""

_PAUSES = (2.0, 5.0, 15.0, 60.0)
"""Seconds until a topic that could not be described is looked at again."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What acks=all means on a topic, in a sentence, and what would make it mean more."""

    strength: Strength
    text: str
    fix: str = ""

    @property
    def weak(self) -> bool:
        """An acknowledged message may be on one disk only."""
        return self.strength in ("one_copy", "one_copy_at_times")


def judge(topic: TopicView) -> Replication:
    """What acks=all means on this topic, and how many brokers may fail."""
    copies, least = topic.replication_factor, topic.min_insync_replicas
    start = f"{_count(topic.partitions, 'partition')}, {_count(copies, 'replica')}"
    if copies == 1:
        return Replication(
            "one_copy", f"{start}: acks=all means one disk. No broker may fail: writing stops, and a lost disk "
            "loses acknowledged messages.", "Give it three replicas and min.insync.replicas=2."
        )  # fmt: skip
    if least is None:
        return Replication(
            "not_told", f"{start}; how many must have a message before it is acknowledged we may not see.",
            f"Grant DESCRIBE_CONFIGS on topic {topic.name}, or see that its min.insync.replicas is 2."
        )  # fmt: skip
    start = f"{start}, min.insync.replicas={least}"
    if least >= copies:
        return Replication(
            "stops_at_once", f"{start}: no broker may fail, or writing stops.",
            f"Set min.insync.replicas={copies - 1}."
        )  # fmt: skip
    if least == 1:
        return Replication(
            "one_copy_at_times", f"{start}: while the others are behind, acks=all means one disk. "
            f"{_count(copies - 1, 'broker')} may fail with writing going on, but an acknowledged message may then be "
            "lost.", "Set min.insync.replicas=2."
        )  # fmt: skip
    return Replication(
        "sound", f"{start}: {_count(copies - least, 'broker')} may fail with writing going on, and an acknowledged "
        f"message survives the loss of {_count(least - 1, 'broker')}."
    )  # fmt: skip


class ReplicationWatch(Hook):
    """Looks at each topic once, when the client first names it, and tells where acks=all means one copy.

    It never keeps a producer waiting, and nothing fails with it: the asking is done on a thread of its own,
    which lives only while there is something to look at. What cannot be described is tried again for a
    while, then left.
    """

    def __init__(
        self,
        config: ClientConfig,
        tell: Callable[[Notice], None],
        *,
        ask: Callable[[str], TopicView] | None = None,
        pauses: tuple[float, ...] = _PAUSES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._on = str(config.settings["acks"]) in ("all", "-1")
        self._config = config
        self._tell = tell
        self._ask = ask or self._describe
        self._pauses = pauses
        self._clock = clock
        self._wake = threading.Event()
        self._lock = threading.Lock()  # guards what follows
        self._stopped = False
        self._seen: set[str] = set()
        self._waiting: dict[str, tuple[float, int]] = {}  # topic to when it is due (monotonic), tries
        self._thread: threading.Thread | None = None

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        topics: Mapping[str, Any] = statistics.get("topics", {})
        for topic in topics:
            if topic not in self._seen:
                self.look(topic)

    def look(self, topic: str) -> None:
        """Looks at a topic soon, unless it has been looked at; from any thread, returns at once."""
        with self._lock:
            if not self._on or self._stopped or topic in self._seen:
                return
            self._seen.add(topic)
            self._waiting[topic] = (time.monotonic(), 0)
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="replication-watch", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Nothing is looked at after this; a question that is out is not waited for, and told to nobody."""
        with self._lock:
            self._stopped = True
            self._wake.set()

    def _run(self) -> None:
        while (left := self._next()) is not None:
            self._wake.wait(left)
            self._wake.clear()
            for topic, tries in self._due():
                told = self._told(topic)
                with self._lock:
                    del self._waiting[topic]
                    if not told and tries < len(self._pauses):
                        self._waiting[topic] = (time.monotonic() + self._pauses[tries], tries + 1)

    def _next(self) -> float | None:
        """Seconds until a topic is due; None, and no thread any more, when none is left."""
        with self._lock:
            if self._waiting and not self._stopped:
                return max(0.0, min(due for due, _ in self._waiting.values()) - time.monotonic())
            self._thread = None
            return None

    def _due(self) -> list[tuple[str, int]]:
        now = time.monotonic()
        with self._lock:
            return [(topic, tries) for topic, (due, tries) in self._waiting.items() if due <= now]

    def _told(self, topic: str) -> bool:
        try:
            view = self._ask(topic)
        except BrokerError as error:
            logger.debug("replication not known", extra={"topic": topic, "error": str(error)})
            return False
        found = judge(view)
        if found.weak and not self._stopped:
            details = {
                "topic": topic,
                "strength": found.strength,
                "replication_factor": view.replication_factor,
                "min_insync_replicas": view.min_insync_replicas,
                "advice": found.fix,
            }
            text = f"Topic {topic}: {found.text}"
            self._tell(Notice("weak_replication", "warning", text, self._clock(), details))
        return True

    def _describe(self, topic: str) -> TopicView:
        return Cluster(self._config).topic(topic, timeout=10.0)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
