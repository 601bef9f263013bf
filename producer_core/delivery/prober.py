"""The messages in doubt: their client gave them up and the broker may have them, so their topics are looked at first."""

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
"""What follows when a look did not find the message: send it again, which may write it twice, or keep whatever is
not proved absent for a person."""

QUIET_PERIOD_S = 40.0
"""Seconds after a failed attempt in which a late request of it usually arrives, if it does: the request time-out (30 s)
or a paused broker's session (9 s) and a margin (kafka-notes 6.1). It proves nothing: see `late_requests.py`."""

_GATHER = 0.02
"""Seconds a question waits for company: one look answers for all that failed together."""
_TOGETHER = 1_000
_PATIENCE = 10.0
"""Seconds that one look may take; a broker that is down makes it inconclusive."""


class Probe(Protocol):
    """`Transport.look`."""

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
    """What had been acknowledged when: offsets by partition, noted once a second.

    A message created after a mark lies above the mark's offsets, because each of them had been appended before
    it was acknowledged. The highest offset of *now* would not do: it may be a later message's. Time is told by
    the producer's own sequence, so a clock that jumps changes nothing.
    """

    def __init__(self, next_sequence: Callable[[], int], *, every: float = 1.0, most: int = 600) -> None:
        self.late = LateRequests(next_sequence)
        self._next_sequence = next_sequence
        self._every = every
        self._due = 0.0
        self._offsets: dict[tuple[str, int], int] = {}
        self._marks: deque[tuple[int, dict[tuple[str, int], int]]] = deque(maxlen=most)

    def note(self, batch: Sequence[Acknowledged]) -> None:
        """On the poll thread, for each batch of acknowledgements."""
        told = Acknowledgements.of(batch)
        self.late.note(told)
        for _, last in told.runs():  # offsets rise within a run
            offset = told.offsets[last]
            if offset is not None and offset >= 0:
                self._offsets[told.topics[last], told.partitions[last]] = offset
        if (now := time.monotonic()) >= self._due:
            self._due = now + self._every
            self._marks.append((self._next_sequence(), dict(self._offsets)))

    def floors(self, topic: str, sequence: int) -> dict[int, int]:
        """Offsets by partition below which no message from this sequence on can be; empty when nothing is known."""
        for first, offsets in reversed(list(self._marks)):
            if first <= sequence:
                return {number: offset for (name, number), offset in offsets.items() if name == topic}
        return {}


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A message in doubt since (monotonic) `since`; `retry_in` seconds until it may be sent again, None for never.

    `attempt` is where its only attempt in doubt was sent, None where nothing can prove that it does not arrive.
    `recovered`: an earlier process sent it, if at all.
    """

    delivery: Delivery
    failure: Failure
    retry_in: float | None
    since: float
    attempt: FailedAttempt | None = None
    recovered: bool = False


class OutcomeProber:
    """Owns one thread, started with the first question. `answered(doubt, landing, newer, absent)` is called on it;
    `newer` says what is known of newer records of its key, `absent`: it was not found, and no late request can be
    appended. `number` knows the sequences of our ids."""

    def __init__(
        self,
        look: Probe,
        search_newer: SearchNewer,
        answered: Callable[[ProbeRequest, ProbeResult, NewerRecords, bool], None],
        *,
        marks: AckCheckpoints,
        number: Number,
    ) -> None:
        self._look = look
        self._search_newer = search_newer
        self._number = number
        self._answered = answered
        self._marks = marks
        self._changed = threading.Condition()  # guards the fields below
        self._questions: list[tuple[float, int, ProbeRequest]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def ask(self, doubt: ProbeRequest, *, after: float = _GATHER) -> bool:
        """Look for its message in `after` seconds; False when looking has ended."""
        with self._changed:
            if self._stopping:
                return False
            heapq.heappush(self._questions, (time.monotonic() + after, next(self._order), doubt))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="producer-core-look", daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def stop(self, timeout: float) -> None:
        """Ask nothing more; what has no answer stays in doubt."""
        with self._changed:
            self._stopping = True
            self._questions.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while together := self._next():
            # Before the look: what lands after it must not be taken for absent.
            impossible = [self._marks.late.impossible(doubt.attempt) for doubt in together]
            deliveries = [doubt.delivery for doubt in together]
            answers = self._answers(deliveries)
            newer = self._newer([one for one in deliveries if _is_missing(one, answers)])
            for doubt, proved in zip(together, impossible, strict=True):
                landing = answers.get(id_text(doubt.delivery.id)) or _NOT_ASKED
                absent = proved and _read_where(doubt.attempt, landing)
                try:
                    self._answered(doubt, landing, newer, absent)
                except Exception:
                    topic = doubt.delivery.topic
                    logger.exception("a message in doubt was not settled", extra={"topic": topic})

    def _answers(self, deliveries: Sequence[Delivery]) -> Mapping[str, ProbeResult]:
        topic, first = deliveries[0].topic, min(delivery.seq for delivery in deliveries)
        try:
            return self._look(
                topic,
                [id_text(delivery.id) for delivery in deliveries],
                since_ms=min(map(_oldest_timestamp, deliveries)),
                floors=self._marks.floors(topic, first),
                timeout=_PATIENCE,
            )
        except Exception:  # a look must never cost a message: without an answer it stays in doubt
            logger.exception("look failed", extra={"topic": topic})
            return {}

    def _newer(self, deliveries: Sequence[Delivery]) -> NewerRecords:
        """What is known of newer records of these keys; a message without a key is never compacted away."""
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
        except Exception:  # as with a look: it must never cost a message
            logger.exception("search for newer records failed", extra={"topic": topic})
            return NewerRecords(unknown=frozenset(one.message_id for one in missing))

    def _next(self) -> list[ProbeRequest]:
        """All questions about one topic that are due; empty when stopped."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                if not self._questions:
                    self._changed.wait()
                elif (left := self._questions[0][0] - now) > 0:
                    self._changed.wait(left)
                else:
                    return self._take(now)
        return []

    def _take(self, now: float) -> list[ProbeRequest]:
        topic = self._questions[0][2].delivery.topic
        due = [entry for entry in self._questions if entry[0] <= now and entry[2].delivery.topic == topic]
        taken = sorted(due, key=lambda entry: entry[:2])[:_TOGETHER]
        gone = {entry[1] for entry in taken}
        self._questions = [entry for entry in self._questions if entry[1] not in gone]
        heapq.heapify(self._questions)
        return [entry[2] for entry in taken]


def _is_missing(delivery: Delivery, answers: Mapping[str, ProbeResult]) -> bool:
    landing = answers.get(id_text(delivery.id))
    return (landing is None or landing.outcome != "found") and delivery.replay is None


_NOT_ASKED = ProbeResult("inconclusive", None, None, 0, "Nobody can say: the topic could not be looked at.")


def _oldest_timestamp(delivery: Delivery) -> int:
    """Milliseconds: the earliest timestamp the record can carry on the log, whichever kind the topic keeps."""
    accepted, asked = int(delivery.accepted_at * 1000), delivery.placement.timestamp_ms
    return min(accepted, asked) if asked else accepted


def _asked_for(delivery: Delivery) -> int | None:
    return None if delivery.partition < 0 or delivery.placement.ours else delivery.partition


def _read_where(attempt: FailedAttempt | None, landing: ProbeResult) -> bool:
    """Whether all was read of the partition that the attempt was sent to, and it is not there."""
    return attempt is not None and landing.outcome == "not_found" and attempt.partition not in landing.unread


class FoundReport:
    """Stands for the delivery report of a message that a look found on its topic."""

    __slots__ = ("_landing",)

    def __init__(self, landing: ProbeResult) -> None:
        self._landing = landing

    def partition(self) -> int | None:
        return self._landing.partition

    def offset(self) -> int | None:
        return self._landing.offset

    def latency(self) -> Any:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, -1)


def resolve(
    landing: ProbeResult, on_ambiguous: OnAmbiguous, *, absent: bool, waited: bool
) -> Literal["landed", "resend", "wait", "bury"]:
    """What follows a look. `absent`: proved; `waited`: a late request would usually have arrived (see QUIET_PERIOD_S)."""
    if landing.outcome == "found":
        return "landed"
    if on_ambiguous == "retry" or absent:
        return "resend"
    return "bury" if waited else "wait"
