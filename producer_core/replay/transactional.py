"""Exactly once: records go out in transactions whose id is the operation's, so that a new owner fences the old one.

Each transaction is written down in the store (its records claimed, the offsets before it) before it begins, and
settled after it committed. Where nobody knows whether it did, the client is destroyed, the next one fences it, and
the topics are read from the offsets before it: what is there is settled, what is not goes out again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import ReplayRecord, delivery_of
from producer_core.delivery.delivery import Report
from producer_core.delivery.exactly_once.read_back import ReadBack, ReadBackResult
from producer_core.delivery.exactly_once.transaction_errors import (
    FENCING,
    is_permanent_rejection,
    rejects_whole_topic,
)
from producer_core.delivery.exactly_once.transactional_client import (
    ClientStopped,
    TransactionalClient,
    TransactionFailed,
)
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.events import Verdict
from producer_core.kafka.newer_keys import KeyIndex
from producer_core.kafka.partitioner import metadata_count
from producer_core.messages import id_text, parse_id
from producer_core.replay.claims import Floors
from producer_core.replay.guarantee import TRANSACTIONAL_ID
from producer_core.replay.outcome import OrphanedRecord, RecordOutcome
from producer_core.replay.preflight import NO_TOPIC
from producer_core.replay.probe_outcome import ProbeOutcome, afterwards, inconclusive
from producer_core.replay.strategy import Guarantee, Interrupt, Interrupted, died_again

logger = logging.getLogger(__name__)

_BYTES = 8 * 1024 * 1024
_REST = 2.0
"""Seconds between two failures in a row, doubled each time up to sixteen times as long."""
_ASK = 5.0
_GONE = 20.0
"""Seconds for which a topic must be unknown before it counts as deleted; a restarting broker knows few."""
_REFUSED = "The broker refused it, its transaction was aborted, and it is not on its topic."

_Letters = Mapping[bytes, ReplayRecord]
"""By the 24 bytes of their ids."""


@dataclass(frozen=True)
class Supervisor:
    """The callbacks of a replay's owner: `interrupt` raises when it must stop, `say` reports what it waits for, `fenced` is
    called after each fence."""

    interrupt: Interrupt
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    fenced: Callable[[], None] = lambda: None


class TransactionalReplay:
    """The way of one operation in one process. `say` hears what an operator should know while it waits.

    `fenced` is called after each fence, before anything is read or sent, and raises Stopped where somebody newer has
    the transactional id by right. With `yields` a twin may have the same dead letters: who is fenced himself leaves
    (Interrupted) and does not fence back, and who fenced looks for everything in hand, for a twin may have sent it.

    Where a topic may be compacted, what is not found and has a newer record of its key is not sent again. With `newer`
    "send" only records count that were themselves replayed: the operator chose that old values come last.

    With a `client` that was fenced for this id, and has nothing open, neither `begin` nor `after` is needed: as long as
    it is not fenced nobody else has sent under the id. Where it was, that is learned by its first transaction, and all
    in hand is looked for as after any failure.
    """

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        settings: Mapping[str, Any],
        operation_id: str,
        *,
        floors: Floors,
        supervisor: Supervisor,
        most: int,
        yields: bool = False,
        newer: str | None = None,
        client: TransactionalClient | None = None,
    ) -> None:
        self._settings = transactional_settings(settings)
        self._settings["client.id"] = f"replay-{operation_id}"
        self._settings.pop("statistics.interval.ms", None)
        self._id = f"{TRANSACTIONAL_ID}{operation_id}"
        self._floors = {topic: dict(partitions) for topic, partitions in floors.items()}
        self._most = self._limit = most
        self._interrupt, self._say = supervisor.interrupt, supervisor.say
        self._clock, self._fenced = supervisor.clock, supervisor.fenced
        self._yields = yields
        self._newer = newer
        self._count = metadata_count(settings)
        self._read_back = ReadBack(
            settings, self._wait, lambda _, text: supervisor.say(text), self._connection_error
        )
        self._client = client
        self._given = client is not None  # and nothing has committed since
        if client is not None:
            client.reassign(connection_error=self._connection_error, stopping=supervisor.interrupt)
        self._hand: deque[ReplayRecord] = deque()
        self._unknown: list[
            ReplayRecord
        ] = []  # of a transaction of which nobody knows yet whether it committed
        self._begun = False
        self._failures = 0
        self._gone: set[str] = set()  # topics that do not exist any more
        self._pause = threading.Event()  # never set: waiting on it is interruptible by nobody else

    @property
    def in_flight(self) -> int:
        return len(self._hand) + len(self._unknown)

    @property
    def bytes(self) -> int:
        return sum(dead_letter.size for dead_letter in (*self._hand, *self._unknown))

    @property
    def floors(self) -> Floors:
        return self._floors

    # beginning, and beginning again

    def begin(self, topics: Sequence[str]) -> None:
        """Fences whoever had the operation before, unless that was done; then the ends of the topics are its floors."""
        try:
            if not self._begun:
                self._fence()
            self._begun = True
            new = [topic for topic in topics if topic not in self._floors]
            seen = self._read_back(
                {(topic, number): None for topic in new for number in self._numbers(topic)}, _none
            )
        except ClientStopped:
            raise Interrupted from None
        for topic in new:  # one that is made later is ours from its first record on
            self._floors.setdefault(topic, {})
        for (topic, partition), end in seen.ends.items():
            self._floors[topic][partition] = end - 1

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        try:
            sought = self._look([orphan.dead_letter for orphan in orphans])
        except ClientStopped:
            raise Interrupted from None
        return [afterwards(orphan.dead_letter, sought) for orphan in orphans]

    def _fence(self) -> None:
        while True:
            self._destroy()
            self._wait(0)  # who lost the operation while he slept must not fence its new owner
            self._client = TransactionalClient(
                self._settings,
                self._id,
                statistics=lambda _: None,
                connection_error=self._connection_error,
                stopping=self._interrupt,
            )
            try:
                self._client.fence(lambda error: self._say(f"Waits for the brokers: {error.str()}"))
                return self._fenced()
            except TransactionFailed as failed:
                self._rest(f"Cannot begin a transaction: {failed}")

    def _look(self, dead_letters: Sequence[ReplayRecord]) -> ProbeOutcome:
        """Where these are, of what was written above the floors; to be asked after the fence only."""
        topics = {dead_letter.topic for dead_letter in dead_letters}
        if not topics:
            return ProbeOutcome({})
        missing = {topic for topic in topics if topic in self._gone or self._is_gone(topic)}
        removed = {(topic, number) for topic in missing for number in self._floors.get(topic, {})}
        self._floors.update({topic: {} for topic in missing})
        self._gone |= missing
        offsets = {
            (topic, number): self._floors.get(topic, {}).get(number, -1)
            for topic in topics - missing
            for number in self._numbers(topic)
        }
        wanted = {parse_id(dead_letter.message_id) for dead_letter in dead_letters}
        keys = self._keys(dead_letters)
        seen = self._read_back(offsets, wanted.__contains__, keys)
        self._raise_floors(seen)
        newer = frozenset(one for some in keys.values() for one in some.newer())
        found = {
            id_text(id): (place.partition, place.offset)
            for places in seen.found.values()
            for id, place in places
        }
        return ProbeOutcome(found, frozenset({*removed, *seen.removed, *seen.gone}), newer)

    def _keys(self, dead_letters: Sequence[ReplayRecord]) -> dict[str, KeyIndex]:
        """The keys of these dead letters by topic, to be compared with what is read."""
        keys: dict[str, KeyIndex] = {}
        for dead_letter in dead_letters:
            if dead_letter.key is not None:
                of_topic = keys.setdefault(dead_letter.topic, KeyIndex(replays_only=self._newer == "send"))
                of_topic.add(
                    dead_letter.message_id,
                    dead_letter.key,
                    dead_letter.accepted_at,
                    partition=dead_letter.partition,
                )
        return keys

    def _raise_floors(self, seen: ReadBackResult) -> None:
        """After a fence nothing of ours is on its way, so everything below the ends that were read is settled."""
        for (topic, partition), end in seen.ends.items():
            self._floors.setdefault(topic, {})[partition] = end - 1

    def _numbers(self, topic: str) -> range:
        """Its partitions; none when there is no such topic."""
        while (count := self._count(topic, _ASK)) is None:
            self._say(f"Waits for the brokers: the partitions of {topic} are not known yet.")
            self._wait(0.2)
        return range(count)

    # sending

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        self._hand += [dead_letter for dead_letter in dead_letters if dead_letter.topic not in self._gone]
        return self._left_out(dead_letters)

    def _left_out(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        """Letters of topics that went meanwhile; no failure of the others, so nothing that the guard counts."""
        return [
            RecordOutcome(dead_letter.message_id, "skipped", NO_TOPIC)
            for dead_letter in dead_letters
            if dead_letter.topic in self._gone
        ]

    def give_back(self) -> list[RecordOutcome]:
        outcomes = [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._hand]
        self._hand.clear()
        return outcomes

    def gather(self, seconds: float) -> list[RecordOutcome]:
        """One transaction of what is in hand, and what had to be done where it failed."""
        try:
            if self._unknown:  # interrupted in the middle, and asked again
                return self._recover({}, perhaps=True)
            if self._hand:
                return self._transact(self._next())
            self._wait(seconds)
            return []
        except ClientStopped:
            raise Interrupted from None

    def _next(self) -> list[ReplayRecord]:
        batch: list[ReplayRecord] = []
        size = 0
        while self._hand and len(batch) < self._limit:
            size += self._hand[0].size
            if batch and size > _BYTES:
                break
            batch.append(self._hand.popleft())
        return batch

    def _transact(self, batch: list[ReplayRecord]) -> list[RecordOutcome]:
        self._unknown = batch
        deliveries = list(map(delivery_of, batch))
        deadline = time.monotonic() + self._settings["transaction.timeout.ms"] / 1000
        failed: TransactionFailed | None = None
        try:
            reports, refused = self._live.transact(deliveries, deadline)
        except TransactionFailed as error:
            failed = error.with_traceback(None)
        if failed is not None:
            return self._after_failure(failed, len(batch))
        self._unknown, self._failures, self._given = [], 0, False
        self._limit = min(self._most, self._limit * 2)
        dead_letters = {
            delivery.id: dead_letter for delivery, dead_letter in zip(deliveries, batch, strict=True)
        }
        return [self._acknowledged(report, dead_letters) for report in reports] + self._turned_down(
            refused, dead_letters
        )

    def _after_failure(self, failed: TransactionFailed, sent: int) -> list[RecordOutcome]:
        logger.info("replay's transaction failed", extra={"error": str(failed)})
        given, self._given = self._given, False
        if self._yields and failed.error.name() in FENCING and not given:
            raise ClientStopped
        refused = {
            id_text(one.id): error
            for one, error, _ in failed.reports
            if error and is_permanent_rejection(error)
        }
        if not refused:
            self._rest(f"A transaction failed and is tried again: {failed}")
        perhaps = (
            sum(error is None for _, error, _ in failed.reports) == sent
        )  # it commits only after every report
        return self._recover(refused, perhaps=perhaps)

    def _turned_down(self, refused: Sequence[Report], dead_letters: _Letters) -> list[RecordOutcome]:
        """What the client itself would not take; the others of the transaction are there."""
        now, reason = self._clock(), "The client refused it before it was sent."
        return [
            self._failed(dead_letters[one.id], error, now, "not_sent", reason)
            for one, error, _ in refused
            if error
        ]

    def _acknowledged(self, report: Report, dead_letters: _Letters) -> RecordOutcome:
        delivery, _, message = report
        partition, offset = message.partition(), message.offset()
        floors = self._floors.setdefault(delivery.topic, {})
        floors[partition] = max(floors.get(partition, -1), offset)
        return RecordOutcome(dead_letters[delivery.id].message_id, "acknowledged", None, partition, offset)

    def _recover(self, refused: Mapping[str, KafkaError], *, perhaps: bool) -> list[RecordOutcome]:
        """After the fence: what committed all the same is settled, who is to blame has failed, the rest goes again.

        `perhaps`: it may have committed.
        """
        self._fence()
        everything = [*self._unknown, *(self._hand if self._yields else ())]
        sought = self._look(everything)
        outcomes = [
            RecordOutcome(dead_letter.message_id, "acknowledged", None, *sought.found[dead_letter.message_id])
            for dead_letter in everything
            if dead_letter.message_id in sought.found
        ]
        self._hand = deque(
            dead_letter for dead_letter in self._hand if dead_letter.message_id not in sought.found
        )
        left = [dead_letter for dead_letter in self._unknown if dead_letter.message_id not in sought.found]
        if perhaps:
            outcomes += [
                inconclusive(dead_letter, sought) for dead_letter in left if sought.may_be_gone(dead_letter)
            ]
            left = [dead_letter for dead_letter in left if not sought.may_be_gone(dead_letter)]
        if self._yields:  # a twin may have sent those in hand
            outcomes += [inconclusive(one, sought) for one in self._hand if one.message_id in sought.newer]
            self._hand = deque(one for one in self._hand if one.message_id not in sought.newer)
        # Looked for after the fence, so nothing of these is under way. Who began with a proven client has not looked before.
        outcomes += self._left_out([*left, *self._hand])
        left = [dead_letter for dead_letter in left if dead_letter.topic not in self._gone]
        self._hand = deque(dead_letter for dead_letter in self._hand if dead_letter.topic not in self._gone)
        guilty = self._guilty(left, refused)
        now = self._clock()
        outcomes += [
            self._failed(dead_letter, refused[dead_letter.message_id], now, "rejected", _REFUSED)
            for dead_letter in left
            if dead_letter.message_id in guilty
        ]
        if refused and not guilty:
            self._limit = max(1, min(len(left) - 1, len(refused) // 2))
        self._hand.extendleft(
            dead_letter for dead_letter in reversed(left) if dead_letter.message_id not in guilty
        )
        self._unknown = []
        return outcomes

    def _is_gone(self, topic: str) -> bool:
        began = time.monotonic()
        while not self._numbers(topic):
            if time.monotonic() - began > _GONE:
                return True
            self._say(f"{topic} is unknown to the brokers; it is waited for a moment.")
            self._wait(0.5)
        return False

    def _guilty(self, batch: Sequence[ReplayRecord], refused: Mapping[str, KafkaError]) -> set[str]:
        """Those who can never be written. A broker refuses batches, so one of several may be to blame: then the
        next transactions are smaller, until it is alone."""
        many = Counter(dead_letter.topic for dead_letter in batch)
        return {
            dead_letter.message_id
            for dead_letter in batch
            if (error := refused.get(dead_letter.message_id))
            and (rejects_whole_topic(error) or many[dead_letter.topic] == 1)
        }

    def _failed(
        self, dead_letter: ReplayRecord, error: KafkaError, now: float, verdict: Verdict, reason: str
    ) -> RecordOutcome:
        death = died_again(dead_letter, error, now, verdict, reason)
        return RecordOutcome(dead_letter.message_id, "failed", death.error_text, death=death)

    # waiting, ending

    @property
    def _live(self) -> TransactionalClient:
        if self._client is None:
            raise AssertionError("no client yet")
        return self._client

    def _rest(self, text: str) -> None:
        self._say(text)
        bound = time.monotonic() + _REST * 2 ** min(self._failures, 4)
        self._failures += 1
        while (left := bound - time.monotonic()) > 0:
            self._wait(min(0.2, left))

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._pause.wait(seconds)
        if self._interrupt():
            raise ClientStopped
        if self._client is not None and self._client.alive:
            self._client.serve()

    def _connection_error(self, error: KafkaError) -> None:
        logger.debug("replay's connection", extra={"error": error.str()})

    def _destroy(self) -> None:
        if self._client is not None:
            self._client.destroy()
            self._client = None

    def hand_on(self) -> TransactionalClient | None:
        """Its client, for who sends next under this id; None unless all that it was given has its outcome."""
        if self.in_flight:
            return None
        client, self._client = self._client, None
        return client

    def close(self) -> None:
        self._destroy()


def _none(_: bytes) -> bool:
    return False
