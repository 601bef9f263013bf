"""Keep a producer's dead letters in memory or in a store, behind one interface."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from producer_core._internal.actor import current_actor
from producer_core._internal.home_folder import expand_user
from producer_core.alerts.health import HealthMonitor
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.reports import ReplayResult
from producer_core.delivery.retry import RetryManager
from producer_core.dlq import DeadLetterQueue, Spill, message_of
from producer_core.dlq.approvals.gate import TOGETHER, check_without_store
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
    """The view of a producer that a backend records."""

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
    """Keeps the dead letters of a producer."""

    @property
    def hook(self) -> Hook: ...
    @property
    def queue(self) -> Any:
        """The public `DeadLetterQueue` interface, as `producer.dlq` offers it."""

    @property
    def store(self) -> Store | None: ...
    def start(self, producer: ProducerView, *, run_replays: bool) -> None: ...
    def stop_replays(self, timeout: float) -> None: ...
    def stop(self, timeout: float) -> None:
        """Return once all dead letters are on disk, if a disk accepts them. Other data gets at most `timeout` seconds."""

    def flush_soon(self) -> None:
        """Request an early write of the current statistics to the store."""

    def full(self) -> bool:
        """Whether no room is left for another dead letter."""

    def lost(self) -> int:
        """Return the number of dead letters that no place has after the producer stopped."""

    def lost_with_disk(self) -> int:
        """Return the number of those that a disk had accepted before. A journal does not have them either."""

    def size(self) -> int:
        """Return the number of pending dead letters."""

    def state(self, message_id: str) -> str | None:
        """Return the state of a message that became a dead letter; None for any other."""

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
    """Keeps dead letters in a bounded queue. Overflow goes to a spill file in the state directory."""

    store = None

    def __init__(self, limit: int) -> None:
        self._spill = Spill(spill_path(default_path()))
        self.queue = DeadLetterQueue(limit, max_bytes=DeadLetterLimits().bytes, overflow=self._overflow)
        self.hook = self
        self._replays: deque[tuple[float, int]] = deque()  # the monotonic time of each, and its records

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

    def lost_with_disk(self) -> int:
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
        """Send the dead letters in order; each leaves the queue when its own delivery report acknowledges it.

        This replay does not probe topics, so dead letters that may have been persisted need `inconclusive="send"`.
        """
        if to_cluster is not None:
            check_target(to_cluster, sender.cluster_id)
        dead_letters = [
            dead_letter
            for dead_letter in self.queue.dead_letters(topic)
            if dead_letter.replayable and (inconclusive == "send" or dead_letter.verdict in SAFE_VERDICTS)
        ][:limit]
        earlier = self._replayed_lately()
        check_without_store(len(dead_letters), who=current_actor(), origin="python", earlier=earlier)
        self._replays.append((time.monotonic(), len(dead_letters)))
        reported = threading.Semaphore(0)
        outcomes: list[ReplayResult] = []

        def settled(outcome: ReplayResult) -> None:
            outcomes.append(outcome)
            if outcome.dead_letter is None:
                self.queue.remove([outcome.message_id])
            else:
                self.queue.add(outcome.dead_letter)
            reported.release()

        deadline = time.monotonic() + timeout
        sent = 0
        for dead_letter in dead_letters:
            try:
                sender.resend(dead_letter, settled)
            except NotAccepted:  # the queue is full, or a circuit is open: the rest stays
                break
            sent += 1
        for _ in range(sent):
            if not reported.acquire(timeout=max(0.0, deadline - time.monotonic())):
                break
        return sum(outcome.outcome == "acknowledged" for outcome in outcomes)

    def _replayed_lately(self) -> int:
        """Return the number of records of the replays that count together with the next one under an approval policy."""
        while self._replays and self._replays[0][0] < time.monotonic() - TOGETHER:
            self._replays.popleft()
        return sum(records for _, records in self._replays)


def check_target(to_cluster: str, own: str) -> None:
    """Raise OtherCluster unless the producer writes to that cluster."""
    if not own:
        raise OtherCluster(
            f"The producer does not know yet whether it writes to the cluster {to_cluster}.",
            fix="Nothing was sent. Try again once the brokers are reachable.",
        )
    if to_cluster != own:
        raise OtherCluster(
            f"The producer writes to the cluster {own}, not to {to_cluster or 'one with no id'}.",
            fix=f"Nothing was sent. To send the dead letters here, pass to_cluster={own!r}.",
        )


def spill_path(store: Path) -> Path:
    """Return the file for dead letters beside an unavailable store. The store's next recorder imports it."""
    found = file_path(store)
    return found.with_name(found.name + ".spill")


def file_path(store: Path) -> Path:
    """Return the absolute path of the store's file, which symbolic links and a later `chdir` do not change."""
    return expand_user(store).resolve()
