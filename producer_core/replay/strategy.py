"""The interface of the replay strategies: exactly once if the cluster allows it, else at least once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import failure_of, fingerprint
from producer_core.replay.claims import Floors
from producer_core.replay.doubtful_records import still_doubtful
from producer_core.replay.outcome import AcknowledgedBatch, FailedReplay, OrphanedRecord, RecordOutcome

Guarantee = Literal["exactly_once", "at_least_once"]


class ReplayStrategy(Protocol):
    """Used by one thread. `begin` and `gather` may wait for brokers and raise `Interrupted` on request."""

    guarantee: Guarantee
    by_wave: bool
    """Whether it sends the records of a claim as a whole, so that one row can claim them."""

    @property
    def in_flight(self) -> int:
        """Return the number of records passed to `send` that have no outcome yet."""

    @property
    def bytes(self) -> int:
        """Return the size of their keys and values."""

    @property
    def floors(self) -> Floors | None: ...

    def begin(self, topics: Sequence[str]) -> None:
        """Prepare the strategy before the first record is sent."""

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        """Return the outcomes of records that a dead owner left claimed."""

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        """Accept the records and return the outcomes that are known at once."""

    def gather(self, seconds: float) -> Sequence[RecordOutcome] | AcknowledgedBatch:
        """Return the outcomes that become known within about `seconds`."""

    def give_back(self) -> list[RecordOutcome]:
        """Return the records that have not been sent yet."""

    def close(self) -> None: ...


class Interrupted(Exception):
    """The replay was interrupted while it waited; records in flight stay claimed for the next runner."""


Interrupt = Callable[[], bool]


def died_again(
    dead_letter: ReplayRecord, error: KafkaError, now: float, verdict: Verdict, reason: str
) -> FailedReplay:
    """Return the new failure of a dead letter; a doubtful verdict stays doubtful."""
    failure, text = failure_of(error), error.str()
    attempt = Attempt(now, failure.code, text)
    death = FailedReplay(
        failure.kind, failure.code, text, fingerprint(failure.code, text), verdict, reason, now, (attempt,)
    )
    return still_doubtful(dead_letter, death)
