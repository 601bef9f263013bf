"""The keeping: where a producer's dead letters stay, in memory or in a store, behind one interface."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from producer_core.alerts.health import HealthMonitor
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.reports import ReplayResult
from producer_core.delivery.retry import RetryManager
from producer_core.dlq import DeadLetterQueue, Spill, message_of
from producer_core.dlq.limits import DeadLetterLimits
from producer_core.errors import NotAccepted, OtherCluster
from producer_core.events import SAFE_VERDICTS, DeadLetter, Hook
from producer_core.messages import Message
from producer_core.store.paths import default_path

if TYPE_CHECKING:
    from producer_core.alerts import ReportedAlerts
    from producer_core.delivery.dead_letter import ReplayRecord
    from producer_core.replay import Inconclusive, ReplayProducer
    from producer_core.store import Store


class ProducerView(Protocol):
    """The parts of a producer that a backend records."""

    deduplicator: MessageDeduplicator | None

    @property
    def started_at(self) -> float: ...
    @property
    def health_monitor(self) -> HealthMonitor: ...
    @property
    def alerts(self) -> ReportedAlerts: ...
    @property
    def retry_manager(self) -> RetryManager: ...
    @property
    def identity(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def connection(self) -> ConnectionState: ...
    @property
    def pending_count(self) -> int: ...
    def pending_by_topic(self) -> Counter[str]: ...
    def resend(
        self, dead_letter: DeadLetter | ReplayRecord, settled: Callable[[ReplayResult], None]
    ) -> None: ...


class DeadLetterBackend(Protocol):
    """What the producer needs of the place that keeps what it cannot deliver."""

    @property
    def hook(self) -> Hook: ...
    @property
    def queue(self) -> Any:
        """The contract's DeadLetterQueue face, as `producer.dlq`."""

    @property
    def store(self) -> Store | None: ...
    def start(self, producer: ProducerView, *, run_replays: bool) -> None: ...
    def stop_replays(self, timeout: float) -> None: ...
    def stop(self, timeout: float) -> None:
        """What died is on a disk when this returns, if one takes it; for anything else it waits this long at most."""

    def flush_soon(self) -> None:
        """Let the store know how things stand now."""

    def full(self) -> bool:
        """No place is left for another dead letter."""

    def lost(self) -> int:
        """Dead letters that could be kept nowhere when the producer stopped."""

    def size(self) -> int:
        """Dead letters that wait for somebody."""

    def state(self, message_id: str) -> str | None:
        """The state of a message that died once; None for any other."""

    def messages(self, topic: str | None) -> list[Message]: ...
    def clear(self, topic: str | None) -> int: ...
    def replay(
        self,
        sender: ReplayProducer,
        topic: str,
        limit: int | None,
        timeout: float,
        inconclusive: Inconclusive,
        to_cluster: str | None = None,
    ) -> int: ...


class MemoryBackend(Hook):
    """Dead letters in a bounded queue, whose overflow goes to a file in the state folder."""

    store = None

    def __init__(self, limit: int) -> None:
        self._spill = Spill(spill_path(default_path()))
        self.queue = DeadLetterQueue(limit, max_bytes=DeadLetterLimits().bytes, overflow=self._overflow)
        self.hook = self

    def died(self, dead_letter: DeadLetter) -> None:
        self.queue.add(dead_letter)

    def _overflow(self, dead_letters: Sequence[DeadLetter]) -> None:
        self._spill.append(dead_letters)

    def start(self, producer: ProducerView, *, run_replays: bool) -> None:
        pass

    def stop_replays(self, timeout: float) -> None:
        pass

    def stop(self, timeout: float) -> None:
        pass

    def flush_soon(self) -> None:
        pass

    def full(self) -> bool:
        return self.queue.full

    def lost(self) -> int:
        return 0

    def size(self) -> int:
        return len(self.queue)

    def state(self, message_id: str) -> str | None:
        return None if self.queue.get(message_id) is None else "dead"

    def messages(self, topic: str | None) -> list[Message]:
        return [message_of(dead_letter) for dead_letter in self.queue.dead_letters(topic)]

    def clear(self, topic: str | None) -> int:
        topics = list(self.queue.topic_stats) if topic is None else [topic]
        return sum(self.queue.clear_topic(name) for name in topics)

    def replay(
        self,
        sender: ReplayProducer,
        topic: str,
        limit: int | None,
        timeout: float,
        inconclusive: Inconclusive,
        to_cluster: str | None = None,
    ) -> int:
        """One after the other; a dead letter leaves the queue when its own report says acknowledged.

        No topic is looked at here, so dead letters that may be on theirs go only with `inconclusive="send"`.
        """
        if to_cluster is not None:
            check_target(to_cluster, sender.cluster_id)
        dead_letters = [
            dead_letter
            for dead_letter in self.queue.dead_letters(topic)
            if dead_letter.replayable and (inconclusive == "send" or dead_letter.verdict in SAFE_VERDICTS)
        ][:limit]
        ended = threading.Semaphore(0)
        outcomes: list[ReplayResult] = []

        def settled(outcome: ReplayResult) -> None:
            outcomes.append(outcome)
            if outcome.dead_letter is None:
                self.queue.remove([outcome.message_id])
            else:
                self.queue.add(outcome.dead_letter)
            ended.release()

        deadline = time.monotonic() + timeout
        for dead_letter in dead_letters:
            try:
                sender.resend(dead_letter, settled)
            except NotAccepted:
                break
        for _ in dead_letters:
            if not ended.acquire(timeout=max(0.0, deadline - time.monotonic())):
                break
        return sum(outcome.outcome == "acknowledged" for outcome in outcomes)


def check_target(to_cluster: str, own: str) -> None:
    """OtherCluster unless the producer writes to that cluster."""
    if not own:
        raise OtherCluster(
            f"The producer does not know yet whether it writes to the cluster {to_cluster}.",
            fix="Nothing was sent. Try again once the brokers can be reached.",
        )
    if to_cluster != own:
        raise OtherCluster(
            f"The producer writes to the cluster {own}, not to {to_cluster or 'one without a name'}.",
            fix=f"Nothing was sent. To send the dead letters here, give to_cluster={own!r}.",
        )


def spill_path(store: Path) -> Path:
    """Where dead letters wait beside a store that cannot be had; its next recorder takes them in."""
    return store.with_name(store.name + ".spill")
