"""Check the replication of topics: what acks=all guarantees there, and a notice when it is only one copy."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from producer_core._internal.join_names import join_names
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.config import ClientConfig
from producer_core.errors import BrokerError
from producer_core.events import Hook, Notice
from producer_core.kafka.cluster import Cluster, TopicView

logger = queued_logger(__name__)

Strength = Literal["one_copy", "one_copy_at_times", "stops_at_once", "unknown", "sound"]
"""`one_copy_at_times`: while the other replicas are behind. `stops_at_once`: a single failed broker stops writes.
`unknown`: several replicas, but min.insync.replicas is unknown."""

_RETRY_PAUSES_S = (2.0, 5.0, 15.0, 60.0)
"""Seconds until a topic that could not be described is checked again."""
_NAMED = 5
"""Topics that a notice about several names."""
_MAX_TOPICS = 100
"""Topics of one request. With a client and two requests for each topic, a topic takes ten times the CPU time."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What acks=all guarantees on a topic, as a sentence, and how to improve it."""

    strength: Strength
    text: str
    fix: str = ""

    @property
    def weak(self) -> bool:
        """Return whether an acknowledged message may be on one disk only."""
        return self.strength in ("one_copy", "one_copy_at_times")


def judge(topic: TopicView) -> Replication:
    """Return what acks=all guarantees on this topic, and how many brokers may fail."""
    replicas, min_isr = topic.replication_factor, topic.min_insync_replicas
    facts = f"{_count(topic.partitions, 'partition')}, {_count(replicas, 'replica')}"
    if replicas == 1:
        return Replication(
            "one_copy", f"{facts}: even with acks=all, an acknowledged message is on only one disk. A failed broker "
            "stops writes, and a lost disk loses acknowledged messages.", "Use three replicas and min.insync.replicas=2."
        )  # fmt: skip
    if min_isr is None:
        return Replication(
            "unknown", f"{facts}. The number of replicas needed for an acknowledgement cannot be read.",
            f"Grant DESCRIBE_CONFIGS on topic {topic.name}, or check that its min.insync.replicas is 2."
        )  # fmt: skip
    facts = f"{facts}, min.insync.replicas={min_isr}"
    if min_isr > replicas:
        return Replication(
            "stops_at_once", f"{facts}: the brokers reject every write with acks=all.", _advice(replicas, replicas - 1)
        )  # fmt: skip
    if min_isr == replicas:
        return Replication(
            "stops_at_once", f"{facts}: writes stop as soon as one broker fails.", _advice(replicas, replicas - 1)
        )  # fmt: skip
    if min_isr == 1:
        others = "other replica is" if replicas == 2 else "other replicas are"
        return Replication(
            "one_copy_at_times", f"{facts}: while the {others} behind, an acknowledged message is on only one "
            f"disk, even with acks=all. {_count(replicas - 1, 'broker')} may fail without stopping writes, but an "
            "acknowledged message may then be lost.", _advice(replicas, 2)
        )  # fmt: skip
    return Replication(
        "sound", f"{facts}: {_count(replicas - min_isr, 'broker')} may fail without stopping writes, and an "
        f"acknowledged message survives the loss of {_count(min_isr - 1, 'broker')}."
    )  # fmt: skip


def _advice(replicas: int, min_isr: int) -> str:
    """Return the advice for a topic with several replicas. With two, each value of min.insync.replicas has a weakness."""
    if replicas == 2:
        return "Use three replicas and min.insync.replicas=2."
    return f"Set min.insync.replicas={min_isr}."


class ReplicationWatch(Hook):
    """Check each topic once, when the client first uses it, and emit a notice if acks=all means one copy there.

    Topics that are checked together have one notice, which names the first few. Topics that are used later have another.

    It never delays a producer, and its errors do not affect delivery. A thread of its own queries the topics, many at
    once, and lives only while topics are pending. A topic that cannot be described is retried for a while, then skipped.
    `describe` returns a view or an error for each of the given topics.
    """

    def __init__(
        self,
        config: ClientConfig,
        emit: Callable[[Notice], None],
        *,
        describe: Callable[[Sequence[str]], Mapping[str, TopicView | BrokerError]] | None = None,
        pauses: tuple[float, ...] = _RETRY_PAUSES_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._enabled = str(config.settings["acks"]) in ("all", "-1")
        self._config = config
        self._emit = emit
        self._describe_topics = describe or self._describe
        self._pauses = pauses
        self._clock = clock
        self._wake = threading.Event()
        self._lock = threading.Lock()  # guards the fields below
        self._stopped = False
        self._known: set[str] = set()
        self._weak = 0  # topics in the notices until now; used by the thread only
        self._pending: dict[str, tuple[float, int]] = {}  # topic to its due time (monotonic) and attempts
        self._thread: threading.Thread | None = None

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        if new := statistics.get("topics", {}).keys() - self._known:
            self._check(new)

    def check(self, topic: str) -> None:
        """Check a topic soon, unless it has been checked. Any thread may call it; it returns at once."""
        self._check((topic,))

    def _check(self, topics: Iterable[str]) -> None:
        with self._lock:
            new = (
                []
                if self._stopped or not self._enabled
                else [one for one in topics if one not in self._known]
            )
            if not new:
                return
            self._known.update(new)
            self._pending.update(dict.fromkeys(new, (time.monotonic(), 0)))
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="replication-watch", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop checking. A query in progress is not waited for, and its result is not reported."""
        with self._lock:
            self._stopped = True
            self._wake.set()

    def _run(self) -> None:
        while (wait := self._next()) is not None:
            self._wake.wait(wait)
            self._wake.clear()
            weak: dict[str, tuple[TopicView, Replication]] = {}
            while (due := self._due()) and not self._stopped:
                weak |= self._check_all(due)
            if weak and not self._stopped:
                self._report(weak)

    def _next(self) -> float | None:
        """Return the seconds until a topic is due. If none is left, return None and end the thread."""
        with self._lock:
            if self._pending and not self._stopped:
                return max(0.0, min(due for due, _ in self._pending.values()) - time.monotonic())
            self._thread = None
            return None

    def _due(self) -> dict[str, int]:
        """Return topics that are due, at most as many as one request takes, with their attempts."""
        now = time.monotonic()
        with self._lock:
            due = ((topic, attempts) for topic, (at, attempts) in self._pending.items() if at <= now)
            return dict(itertools.islice(due, _MAX_TOPICS))

    def _check_all(self, due: Mapping[str, int]) -> dict[str, tuple[TopicView, Replication]]:
        """Return the weak ones of these topics, and schedule another attempt for those that cannot be described."""
        weak: dict[str, tuple[TopicView, Replication]] = {}
        try:
            views = self._describe_topics(list(due))
        except BrokerError as error:
            views = dict.fromkeys(due, error)
        for topic, attempts in due.items():
            view = views[topic]
            if isinstance(view, BrokerError):
                logger.debug(**with_fields("replication unknown", topic=topic, error=str(view)))
            elif (replication := judge(view)).weak:
                weak[topic] = view, replication
            with self._lock:
                del self._pending[topic]
                if isinstance(view, BrokerError) and attempts < len(self._pauses):
                    self._pending[topic] = (time.monotonic() + self._pauses[attempts], attempts + 1)
        return weak

    def _report(self, weak: Mapping[str, tuple[TopicView, Replication]]) -> None:
        """Emit a notice that acknowledged messages of these topics may be on one disk only."""
        self._weak += len(weak)
        text, details = _one(*next(iter(weak.values()))) if len(weak) == 1 else _several(weak, self._weak)
        self._emit(Notice("weak_replication", "warning", text, self._clock(), details))

    def _describe(self, topics: Sequence[str]) -> Mapping[str, TopicView | BrokerError]:
        return Cluster(self._config).topics(topics, timeout=10.0)


def _one(view: TopicView, replication: Replication) -> tuple[str, dict[str, Any]]:
    """Return the text and the details of a notice about one topic."""
    return f"Topic {view.name}: {replication.text}", {
        "topic": view.name,
        "strength": replication.strength,
        "replication_factor": view.replication_factor,
        "min_insync_replicas": view.min_insync_replicas,
        "advice": replication.fix,
    }


def _several(weak: Mapping[str, tuple[TopicView, Replication]], total: int) -> tuple[str, dict[str, Any]]:
    """Return the text and the details of a notice about several topics, of which there are `total` by now."""
    advices = {replication.fix for _, replication in weak.values()}
    text = (
        f"{len(weak):,} topics: even with acks=all, an acknowledged message may be on only one disk. A lost disk then loses "
        f"it. The topics are {join_names(sorted(weak), most=_NAMED)}."
    )
    if total > len(weak):
        text += f" {total:,} topics of this producer are affected by now."
    return text, {
        "topics": len(weak),
        "advice": advices.pop() if len(advices) == 1 else "Use three replicas and min.insync.replicas=2.",
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
