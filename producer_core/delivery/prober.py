"""Probe topics for messages whose outcome is ambiguous: the client gave them up and the broker may have them."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.late_requests import FailedAttempt, LateRequests
from producer_core.events import Acknowledged
from producer_core.kafka.classify import Failure
from producer_core.kafka.compaction import NONE_NEWER, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import Number
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text
from producer_core.metrics.ack_batch import Acknowledgements

logger = logging.getLogger(__name__)

OnAmbiguous = Literal["retry", "dead_letter"]
"""What follows when a probe does not find the message: `retry` sends it again, which may write it twice; `dead_letter`
keeps every message that is not proved absent for an operator."""

QUIET_PERIOD_S = 40.0
"""Seconds within which a late request of a failed attempt usually arrives: the request time-out (30 s) or a paused
broker's session (9 s), and a margin. It proves nothing: see `late_requests.py`."""

_GATHER = 0.02
"""Seconds for which requests are collected: one probe answers for all messages that failed together."""
_TOGETHER = 1_000
_PATIENCE = 10.0
"""Seconds that one probe may take; without a broker it is inconclusive."""


class Probe(Protocol):
    """`Transport.find_records`."""

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
    """`Transport.newer_records`."""

    def __call__(
        self, topic: str, missing: Sequence[MissingRecord], *, number: Number, timeout: float
    ) -> NewerRecords: ...


class AckCheckpoints:
    """The highest acknowledged offset of each partition, recorded once a second.

    A message accepted after a checkpoint is above the checkpoint's offsets, because those were appended before. The
    highest offset of now is no lower bound: it may be a later message's. Checkpoints are ordered by the producer's
    sequence, not by a clock.
    """

    def __init__(self, next_sequence: Callable[[], int], *, every: float = 1.0, most: int = 600) -> None:
        self.late = LateRequests(next_sequence)
        self._next_sequence = next_sequence
        self._every = every
        self._due = 0.0
        self._offsets: dict[tuple[str, int], int] = {}
        self._checkpoints: deque[tuple[int, dict[tuple[str, int], int]]] = deque(maxlen=most)

    def note(self, batch: Sequence[Acknowledged]) -> None:
        """Record a batch of acknowledgements. Called on the poll thread."""
        told = Acknowledgements.of(batch)
        self.late.note(told)
        for _, last in told.runs():  # offsets rise within a run
            offset = told.offsets[last]
            if offset is not None and offset >= 0:
                self._offsets[told.topics[last], told.partitions[last]] = offset
        if (now := time.monotonic()) >= self._due:
            self._due = now + self._every
            self._checkpoints.append((self._next_sequence(), dict(self._offsets)))

    def floors(self, topic: str, sequence: int) -> dict[int, int]:
        """Return the lower bounds, by partition, for the offsets of messages from this sequence on."""
        for first, offsets in reversed(list(self._checkpoints)):
            if first <= sequence:
                return {number: offset for (name, number), offset in offsets.items() if name == topic}
        return {}


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A message with an ambiguous outcome since `since` (monotonic). It may be sent again after `retry_in` seconds, or not.

    `attempt` is where its only ambiguous attempt was sent; None when nothing can prove that it does not arrive.
    `recovered`: it is a message of an earlier process.
    """

    delivery: Delivery
    failure: Failure
    retry_in: float | None
    since: float
    attempt: FailedAttempt | None = None
    recovered: bool = False


class OutcomeProber:
    """Owns one thread, started with the first request, which calls `answered(request, result, newer, absent)`.

    `newer` lists the messages whose key has a newer record. `absent`: the message was not found and no late request of it
    can be appended. `number` returns the sequence of one of our ids.
    """

    def __init__(
        self,
        find_records: Probe,
        search_newer: SearchNewer,
        answered: Callable[[ProbeRequest, ProbeResult, NewerRecords, bool], None],
        *,
        checkpoints: AckCheckpoints,
        number: Number,
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

    def ask(self, request: ProbeRequest, *, after: float = _GATHER) -> bool:
        """Probe for the message in `after` seconds; return False when the prober has stopped."""
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
        """Stop probing; requests without an answer are dropped."""
        with self._changed:
            self._stopping = True
            self._requests.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while together := self._next():
            # Before the probe: a record appended after it must not count as absent.
            impossible = [self._checkpoints.late.impossible(request.attempt) for request in together]
            deliveries = [request.delivery for request in together]
            answers = self._answers(deliveries)
            newer = self._newer([one for one in deliveries if _is_missing(one, answers)])
            for request, proved in zip(together, impossible, strict=True):
                result = answers.get(id_text(request.delivery.id)) or _NOT_ASKED
                absent = proved and _was_read(request.attempt, result)
                try:
                    self._answered(request, result, newer, absent)
                except Exception:
                    topic = request.delivery.topic
                    logger.exception("ambiguous message not settled", extra={"topic": topic})

    def _answers(self, deliveries: Sequence[Delivery]) -> Mapping[str, ProbeResult]:
        topic, first = deliveries[0].topic, min(delivery.seq for delivery in deliveries)
        try:
            return self._find_records(
                topic,
                [id_text(delivery.id) for delivery in deliveries],
                since_ms=min(map(_oldest_timestamp, deliveries)),
                floors=self._checkpoints.floors(topic, first),
                timeout=_PATIENCE,
            )
        except Exception:  # a probe never costs a message: without an answer its outcome stays ambiguous
            logger.exception("probe failed", extra={"topic": topic})
            return {}

    def _newer(self, deliveries: Sequence[Delivery]) -> NewerRecords:
        """Search newer records of these messages' keys; a message without a key is never compacted away."""
        missing = [
            MissingRecord(id_text(one.id), one.key, _oldest_timestamp(one) / 1000, _asked_for(one))
            for one in deliveries
            if one.key is not None
        ]
        if not missing:
            return NONE_NEWER
        topic = deliveries[0].topic
        try:
            return self._search_newer(topic, missing, number=self._number, timeout=_PATIENCE)
        except Exception:  # as with a probe: it never costs a message
            logger.exception("search for newer records failed", extra={"topic": topic})
            return NewerRecords(unknown=frozenset(one.message_id for one in missing))

    def _next(self) -> list[ProbeRequest]:
        """Return all due requests for one topic; empty when stopped."""
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
        taken = sorted(due, key=lambda entry: entry[:2])[:_TOGETHER]
        gone = {entry[1] for entry in taken}
        self._requests = [entry for entry in self._requests if entry[1] not in gone]
        heapq.heapify(self._requests)
        return [entry[2] for entry in taken]


def _is_missing(delivery: Delivery, answers: Mapping[str, ProbeResult]) -> bool:
    result = answers.get(id_text(delivery.id))
    return (result is None or result.outcome != "found") and delivery.on_replayed is None


_NOT_ASKED = ProbeResult("inconclusive", None, None, 0, "The topic could not be read.")


def _oldest_timestamp(delivery: Delivery) -> int:
    """Return the earliest timestamp (ms) that the record can have on the topic, for either timestamp type."""
    accepted, asked = int(delivery.accepted_at * 1000), delivery.placement.timestamp_ms
    return min(accepted, asked) if asked else accepted


def _asked_for(delivery: Delivery) -> int | None:
    return None if delivery.partition < 0 or delivery.placement.computed else delivery.partition


def _was_read(attempt: FailedAttempt | None, result: ProbeResult) -> bool:
    """Return whether the attempt's whole partition was read without finding the message."""
    return attempt is not None and result.outcome == "not_found" and attempt.partition not in result.unread


class FoundReport:
    """Take the place of the delivery report of a message that a probe found on its topic."""

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
) -> Literal["landed", "resend", "wait", "give_up"]:
    """Return what follows a probe. `absent`: proved; `waited`: the quiet period has passed."""
    if result.outcome == "found":
        return "landed"
    if on_ambiguous == "retry" or absent:
        return "resend"
    return "give_up" if waited else "wait"
