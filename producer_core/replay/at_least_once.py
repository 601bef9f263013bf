"""At-least-once replay: a producer sends many records at a time, and each is settled on its own report."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import NotAccepted, ProducerClosed
from producer_core.replay.doubtful_records import search_orphans, still_doubtful
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome
from producer_core.replay.strategy import Guarantee, Interrupt, Interrupted

if TYPE_CHECKING:
    from producer_core.delivery.dead_letter import ReplayRecord
    from producer_core.delivery.reports import ReplayResult
    from producer_core.events import DeadLetter
    from producer_core.kafka.record_lookup import Prober

logger = queued_logger(__name__)

_ORPHAN_BATCH = 500


class ReplayProducer(Protocol):
    """The producer that sends the records. `identity` must be unique to this process."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def resend(self, dead_letter: DeadLetter | ReplayRecord, settled: Callable[[ReplayResult], None]) -> None:
        """Send the dead letter under its own id; `settled` is called once, from any thread, with the result."""


class AtLeastOnceReplay:
    """The strategy that sends through a ReplayProducer.

    `may_send` returns whether this process still holds the lease; `closed` is set when the producer is closed. `quiet` is
    the number of seconds in which a dead owner's request usually arrives. The strategy waits that long after the claim,
    and never longer, before it looks for the owner's records. This proves nothing, so records not found are sent again
    only with `send_inconclusive`.
    """

    guarantee: Guarantee = "at_least_once"
    by_wave = False
    floors = None

    def __init__(
        self,
        sender: ReplayProducer,
        probe: Prober | None,
        *,
        may_send: Callable[[], bool],
        interrupt: Interrupt,
        closed: threading.Event,
        quiet: float,
        send_inconclusive: bool = False,
        clock: Callable[[], float],
    ) -> None:
        self._sender = sender
        self._probe = probe
        self._may_send = may_send
        self._interrupt = interrupt
        self._closed = closed
        self._quiet = quiet
        self._send_inconclusive = send_inconclusive
        self._clock = clock
        self._reports: queue.SimpleQueue[ReplayResult] = queue.SimpleQueue()  # filled by the sender's threads
        self._sent: dict[str, ReplayRecord] = {}
        self._send_due = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    @property
    def bytes(self) -> int:
        return sum(dead_letter.size for dead_letter in list(self._sent.values()))

    def begin(self, topics: Sequence[str]) -> None:
        """Do nothing; a producer needs no preparation."""

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        if not orphans:
            return []
        youngest = max(orphan.claimed_at for orphan in orphans)
        deadline = time.monotonic() + min(self._quiet, max(0.0, youngest + self._quiet - self._clock()))
        while (left := deadline - time.monotonic()) > 0:
            if self._interrupt():
                raise Interrupted
            self._closed.wait(min(0.2, left))
        outcomes: list[RecordOutcome] = []
        for start in range(0, len(orphans), _ORPHAN_BATCH):
            batch = orphans[start : start + _ORPHAN_BATCH]
            outcomes += search_orphans(batch, self._probe, send_inconclusive=self._send_inconclusive)
        return outcomes

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        outcomes: list[RecordOutcome] = []
        for dead_letter in dead_letters:
            if self._may_send() and time.monotonic() >= self._send_due:
                outcomes += self._resend(dead_letter)
            else:
                outcomes.append(RecordOutcome(dead_letter.message_id, "pending"))
        return outcomes

    def _resend(self, dead_letter: ReplayRecord) -> list[RecordOutcome]:
        self._sent[dead_letter.message_id] = dead_letter  # first: the report may come before `resend` returns
        try:
            self._sender.resend(dead_letter, self._reports.put)
            return []
        except ProducerClosed:
            self._closed.set()
            outcome = RecordOutcome(dead_letter.message_id, "pending")
        except ValueError as error:  # includes InvalidMessage: the record can never be sent unchanged
            outcome = RecordOutcome(dead_letter.message_id, "failed", str(error))
        except NotAccepted as error:
            logger.info(**with_fields("replay waits for queue space", error=str(error)))
            self._send_due = time.monotonic() + 1.0
            outcome = RecordOutcome(dead_letter.message_id, "pending")
        self._sent.pop(dead_letter.message_id, None)
        return [outcome]

    def gather(self, seconds: float) -> list[RecordOutcome]:
        outcomes: list[RecordOutcome] = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                outcomes += self._ended(self._reports.get(timeout=left))
            except queue.Empty:
                break
        return outcomes

    def _ended(self, report: ReplayResult) -> list[RecordOutcome]:
        dead_letter = self._sent.pop(report.message_id, None)
        if dead_letter is None:
            return []
        if report.outcome == "acknowledged":
            return [RecordOutcome(report.message_id, "acknowledged", None, report.partition, report.offset)]
        death = (
            None
            if report.dead_letter is None
            else still_doubtful(dead_letter, FailedReplay.again(report.dead_letter))
        )
        text = report.text or (death.error_text if death else "no reason given")
        return [RecordOutcome(report.message_id, "failed", text, death=death)]

    def give_back(self) -> list[RecordOutcome]:
        return []

    def close(self) -> None:
        """Do nothing; the producer belongs to its owner."""
