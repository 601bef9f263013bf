"""The way in which records go out again: exactly once where the cluster allows it, else at least once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import failure_of, fingerprint
from producer_core.replay.claims import Floors
from producer_core.replay.doubtful_records import still_doubtful
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome

Guarantee = Literal["exactly_once", "at_least_once"]


class ReplayStrategy(Protocol):
    """Used by one thread. `begin` and `gather` may wait for brokers, and raise `Interrupted` when told to."""

    guarantee: Guarantee

    @property
    def in_flight(self) -> int:
        """Records that were given to `send` and have no outcome yet."""

    @property
    def bytes(self) -> int:
        """Of their keys and values."""

    @property
    def floors(self) -> Floors | None: ...

    def begin(self, topics: Sequence[str]) -> None:
        """What must be done before a record goes."""

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        """What became of records that a dead owner left claimed."""

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        """Takes them; outcomes that are known at once."""

    def gather(self, seconds: float) -> list[RecordOutcome]:
        """Outcomes that became known within about so long."""

    def give_back(self) -> list[RecordOutcome]:
        """What was not sent yet goes back."""

    def close(self) -> None: ...


class Interrupted(Exception):
    """The work was told to leave while it waited; what is in flight stays claimed for whoever comes next."""


Interrupt = Callable[[], bool]


def died_again(
    dead_letter: ReplayRecord, error: KafkaError, now: float, verdict: Verdict, reason: str
) -> FailedReplay:
    """Its death by this error; the doubt that it was sent in stays."""
    failure, text = failure_of(error), error.str()
    attempt = Attempt(now, failure.code, text)
    death = FailedReplay(
        failure.kind, failure.code, text, fingerprint(failure.code, text), verdict, reason, now, (attempt,)
    )
    return still_doubtful(dead_letter, death)
