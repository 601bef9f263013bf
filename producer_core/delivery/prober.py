"""Probe topics for messages with an ambiguous outcome: the client gave them up, and the broker may have them."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.late_requests import FailedAttempt, LateRequests
from producer_core.events import Acknowledged
from producer_core.kafka.classify import Failure
from producer_core.kafka.compaction import NONE_NEWER, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import SequenceLookup
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text
from producer_core.metrics.ack_batch import Acknowledgements

logger = queued_logger(__name__)

OnAmbiguous = Literal["retry", "dead_letter"]
"""The step after a probe that does not find the message: `retry` sends the message again, which may write it twice;
`dead_letter` leaves every message that is not proved absent to an operator."""

QUIET_PERIOD_S = 40.0
"""Seconds within which a late request of a failed attempt usually arrives: the request time-out (30 s) or the session
time-out of a paused broker (9 s), and a margin. The period proves nothing: see `late_requests.py`."""

_COLLECT_S = 0.02
"""Seconds for which requests are collected, so that one probe serves all messages that failed together."""
_MAX_MESSAGES = 1_000
"""Messages of one probe."""
_TIMEOUT = 10.0
"""Seconds that one probe may take; without a broker it is inconclusive."""


class Probe(Protocol):
    """The signature of `Transport.find_records`."""

    def __call__(
        self,
        topic: str,
        message_ids: Sequence[str],
        *,
        since_ms: int | None,
        floors: Mapping[int, int],
        timeout: float,
    ) -> Mapping[str, ProbeResult]: ...


class SearchNewer(Protocol):
    """The signature of `Transport.newer_records`."""

    def __call__(
        self, topic: str, missing: Sequence[MissingRecord], *, number: SequenceLookup, timeout: float
    ) -> NewerRecords: ...


class AckCheckpoints:
    """Records the highest acknowledged offset of each partition, once a second.

    A message that is accepted after a checkpoint has a higher offset than the checkpoint, whose records were appended
    before. The current highest offset is no lower bound, because it may belong to a later message. Checkpoints are ordered
    by the producer's sequence, not by a clock.
    """

    def __init__(self, next_sequence: Callable[[], int], *, every: float = 1.0, most: int = 600) -> None:
        self.late = LateRequests(next_sequence)
        self._next_sequence = next_sequence
        self._interval = every
        self._due = 0.0
        self._offsets: dict[tuple[str, int], int] = {}
        self._checkpoints: deque[tuple[int, dict[tuple[str, int], int]]] = deque(maxlen=most)

    def note(self, batch: Sequence[Acknowledged]) -> None:
        """Record a batch of acknowledgements. Called on the poll thread."""
        columns = Acknowledgements.of(batch)
        self.late.note(columns)
        for _, last in columns.runs():  # offsets rise within a run
            offset = columns.offsets[last]
            if offset is not None and offset >= 0:
                self._offsets[columns.topics[last], columns.partitions[last]] = offset
        if (now := time.monotonic()) >= self._due:
            self._due = now + self._interval
            self._checkpoints.append((self._next_sequence(), dict(self._offsets)))

    def floors(self, topic: str, sequence: int) -> dict[int, int]:
        """Return lower bounds, by partition, for the offsets of messages from this sequence on."""
        for first, offsets in reversed(list(self._checkpoints)):
            if first <= sequence:
                return {partition: offset for (name, partition), offset in offsets.items() if name == topic}
        return {}


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A message with an ambiguous outcome since `since` (monotonic time).

    The message may be sent again after `retry_in` seconds; None allows no retry. `attempt` tells where its only ambiguous
    attempt was sent; None means that nothing can prove the attempt absent. `recovered` marks a message of an earlier
    process.
    """

    delivery: Delivery
    failure: Failure
    retry_in: float | None
    since: float
    attempt: FailedAttempt | None = None
    recovered: bool = False


class OutcomeProber:
    """Probes on a thread that starts with the first request, and calls `answered(request, result, newer, absent)` there.

    `newer` lists the messages whose key has a newer record. `absent` is true when the message was not found and no late
    request of the message can be appended. `number` returns the sequence of an id of this producer.
    """

    def __init__(
        self,
        find_records: Probe,
        search_newer: SearchNewer,
        answered: Callable[[ProbeRequest, ProbeResult, NewerRecords, bool], None],
        *,
        checkpoints: AckCheckpoints,
        number: SequenceLookup,
    ) -> None:
        self._find_records = find_records
        self._search_newer = search_newer
        self._number = number
        self._answered = answered
        self._checkpoints = checkpoints
        self._changed = threading.Condition()  # guards the fields below
        self._requests: list[tuple[float, int, ProbeRequest]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def request(self, request: ProbeRequest, *, after: float = _COLLECT_S) -> bool:
        """Probe for a message in `after` seconds; return False when the prober has stopped."""
        with self._changed:
            if self._stopping:
                return False
            heapq.heappush(self._requests, (time.monotonic() + after, next(self._order), request))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="producer-core-prober", daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def stop(self, timeout: float) -> None:
        """Stop probing; requests without a result are dropped."""
        with self._changed:
            self._stopping = True
            self._requests.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while requests := self._next_requests():
            # Checked before the probe, because a record that is appended after the probe must not count as absent.
            impossible = [self._checkpoints.late.impossible(request.attempt) for request in requests]
            deliveries = [request.delivery for request in requests]
            results = self._probe(deliveries)
            newer = self._search([one for one in deliveries if _is_missing(one, results)])
            for request, proved in zip(requests, impossible, strict=True):
                result = results.get(id_text(request.delivery.id)) or _NOT_READ
                absent = proved and _was_read(request.attempt, result)
                try:
                    self._answered(request, result, newer, absent)
                except Exception:
                    topic = request.delivery.topic
                    logger.exception(**with_fields("ambiguous message not settled", topic=topic))

    def _probe(self, deliveries: Sequence[Delivery]) -> Mapping[str, ProbeResult]:
        topic, first = deliveries[0].topic, min(delivery.seq for delivery in deliveries)
        try:
            return self._find_records(
                topic,
                [id_text(delivery.id) for delivery in deliveries],
                since_ms=min(map(_oldest_timestamp, deliveries)),
                floors=self._checkpoints.floors(topic, first),
                timeout=_TIMEOUT,
            )
        except Exception:  # an error in a probe must not lose a message: its outcome stays ambiguous
            logger.exception(**with_fields("probe failed", topic=topic))
            return {}

    def _search(self, deliveries: Sequence[Delivery]) -> NewerRecords:
        """Search for newer records of these messages' keys. A message without a key is never compacted away."""
        missing = [
            MissingRecord(id_text(one.id), one.key, _oldest_timestamp(one) / 1000, _chosen_partition(one))
            for one in deliveries
            if one.key is not None
        ]
        if not missing:
            return NONE_NEWER
        topic = deliveries[0].topic
        try:
            return self._search_newer(topic, missing, number=self._number, timeout=_TIMEOUT)
        except Exception:  # as with a probe, an error must not lose a message
            logger.exception(**with_fields("search for newer records failed", topic=topic))
            return NewerRecords(unknown=frozenset(one.message_id for one in missing))

    def _next_requests(self) -> list[ProbeRequest]:
        """Wait for due requests and return those for one topic; an empty list when the prober is stopped."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                if not self._requests:
                    self._changed.wait()
                elif (left := self._requests[0][0] - now) > 0:
                    self._changed.wait(left)
                else:
                    return self._take(now)
        return []

    def _take(self, now: float) -> list[ProbeRequest]:
        topic = self._requests[0][2].delivery.topic
        due = [entry for entry in self._requests if entry[0] <= now and entry[2].delivery.topic == topic]
        taken = sorted(due, key=lambda entry: entry[:2])[:_MAX_MESSAGES]
        numbers = {entry[1] for entry in taken}
        self._requests = [entry for entry in self._requests if entry[1] not in numbers]
        heapq.heapify(self._requests)
        return [entry[2] for entry in taken]


def _is_missing(delivery: Delivery, results: Mapping[str, ProbeResult]) -> bool:
    result = results.get(id_text(delivery.id))
    return (result is None or result.outcome != "found") and delivery.on_replayed is None


_NOT_READ = ProbeResult("inconclusive", None, None, 0, "The topic could not be read.")


def _oldest_timestamp(delivery: Delivery) -> int:
    """Return the earliest timestamp (ms) that the record can have on the topic, with either message.timestamp.type."""
    accepted, given = int(delivery.accepted_at * 1000), delivery.placement.timestamp_ms
    return min(accepted, given) if given else accepted


def _chosen_partition(delivery: Delivery) -> int | None:
    """Return the partition that the caller chose, if any."""
    return None if delivery.partition < 0 or delivery.placement.computed else delivery.partition


def _was_read(attempt: FailedAttempt | None, result: ProbeResult) -> bool:
    """Return whether the attempt's whole partition was read without finding the message."""
    return attempt is not None and result.outcome == "not_found" and attempt.partition not in result.unread


class FoundReport:
    """Takes the place of the delivery report of a message that a probe found on its topic."""

    __slots__ = ("_result",)

    def __init__(self, result: ProbeResult) -> None:
        self._result = result

    def partition(self) -> int | None:
        return self._result.partition

    def offset(self) -> int | None:
        return self._result.offset

    def latency(self) -> Any:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, -1)


def resolve(
    result: ProbeResult, on_ambiguous: OnAmbiguous, *, absent: bool, waited: bool
) -> Literal["acknowledge", "resend", "wait", "give_up"]:
    """Return the step after a probe. `absent` is proved absence; `waited` means that the quiet period has passed."""
    if result.outcome == "found":
        return "acknowledge"
    if on_ambiguous == "retry" or absent:
        return "resend"
    return "give_up" if waited else "wait"
