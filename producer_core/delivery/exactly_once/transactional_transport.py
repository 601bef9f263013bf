"""The transactional transport: protocol PL behind the face that every transport has.

Each partition belongs to one shard, so its order holds; shards commit side by side. A message is reported only
when its transaction is committed and that is written down (`progress.settle`), or when it is proved that it is
not on the log and never will be.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from producer_core._internal.librdkafka import client_log
from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.log_positions import LogPositions, Where, shard_ids, shard_note
from producer_core.delivery.exactly_once.merged_statistics import merged
from producer_core.delivery.exactly_once.outcome import TransactionOutcome
from producer_core.delivery.exactly_once.shard import Shard, TransactionBounds
from producer_core.delivery.exactly_once.transactional_client import check
from producer_core.delivery.journal import SettlementState
from producer_core.delivery.transport import ClientQueueFull, ClientRefused, TransportListener
from producer_core.errors import Fenced, ForkedProducer
from producer_core.events import Notice, Severity
from producer_core.kafka import clients, record_lookup
from producer_core.kafka.compaction import Compaction, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import Number
from producer_core.kafka.partitioner import Partitioner, metadata_count
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import MessageIds

_MESSAGE_TIMEOUT = 60_000
"""Milliseconds for a message inside its transaction; one lost broker stalls everything for about 10 s."""
_MORE = 30_000
"""Milliseconds that a transaction may last longer than its messages."""
_FIX = (
    "Every running producer needs a transactional id of its own: stop the other one, or give this one another id "
    "and start it again. Nothing is lost: what was not committed is in the journal and is sent after the start."
)


@dataclass(frozen=True)
class TransactionLimits:
    """A transaction ends when it has so many messages or bytes, or when its oldest message has this age in seconds."""

    messages: int = 5000
    bytes: int = 8 * 1024 * 1024
    age: float = 0.1


class TransactionalTransport:
    """Exactly once for `read_committed` readers, through crashes, with a journal that outlives them.

    `progress` is the journal, `ids` are those of its messages. The clients are
    `{transactional_id}-0` and so on, one a shard.
    """

    settles_journal = True

    def __init__(
        self,
        config: ClientConfig,
        listener: TransportListener,
        *,
        progress: SettlementState,
        transactional_id: str,
        ids: MessageIds,
        shards: int = 2,
        limits: TransactionLimits | None = None,
    ) -> None:
        limits = limits or TransactionLimits()
        self._config = config
        self._listener = listener
        self._progress = progress
        self._transactional_id = transactional_id
        self._pid = os.getpid()
        self._telling = threading.RLock()  # the listener hears one thing at a time; guards the field below
        self._silent = False
        self._fenced: str | None = None
        self._statistics: dict[int, Mapping[str, Any]] = {}
        self._missing: dict[str, float] = {}
        self._ledger = LogPositions(progress, ids)
        self._compaction = Compaction(config.settings)
        settings = transactional_settings(config.settings)
        check(settings)
        self._partitioner = Partitioner(
            metadata_count(config.settings), partitioner=str(settings.get("partitioner", "murmur2_random"))
        )
        bounds = TransactionBounds(
            messages=limits.messages,
            bytes=limits.bytes,
            age=limits.age,
            queue_messages=max(1, int(settings.get("queue.buffering.max.messages", 100_000)) // shards),
            queue_bytes=max(1, int(settings.get("queue.buffering.max.kbytes", 1_048_576)) * 1024 // shards),
            transaction_timeout=settings["transaction.timeout.ms"] / 1000,
        )
        names = shard_ids(transactional_id, shards, progress.offsets)
        own, others = names[:shards], names[shards:]
        self._all_fenced = [threading.Event() for _ in own]
        self._shards = [
            Shard(
                number,
                name,
                settings={**settings, "client.id": f"{config.client_id}-{number}"},
                ledger=self._ledger,
                bounds=bounds,
                owner=self,
                is_mine=lambda where, number=number: self._shard_of(where) == number,  # type: ignore[misc]  # a bound default
                also_fence=others[number::shards],
            )
            for number, name in enumerate(own)
        ]

    # Transport

    def start(self) -> None:
        note = shard_note(self._transactional_id, len(self._shards), self._progress.offsets)
        self._ledger.begin(note)
        for shard in self._shards:
            shard.start()

    def yield_to_poller(self) -> None:
        """Shards collect and poll on threads of their own."""

    def flush_soon(self) -> None:
        """They poll all the time."""

    def produce(self, delivery: Delivery) -> None:
        if os.getpid() != self._pid:
            raise ForkedProducer
        if self._fenced is not None:
            raise Fenced(self._fenced)
        if delivery.partition < 0:
            self._choose(delivery)
        self._shards[self._shard_of((delivery.topic, delivery.partition))].produce(delivery)

    def _choose(self, delivery: Delivery) -> None:
        """A message without a partition may lie in any, so everything is read back before one is chosen."""
        if not all(shard.recovered.is_set() for shard in self._shards):
            raise ClientQueueFull
        place = self._ledger.place(delivery.id)
        if place is not None:
            return _placed(delivery, place.partition)
        partition = self._partitioner.choose(delivery.topic, delivery.key, delivery.id)
        if partition >= 0:
            self._missing.pop(delivery.topic, None)
            return _placed(delivery, partition)
        if self._is_missing(delivery.topic):
            raise ClientRefused(
                KafkaError(KafkaError._UNKNOWN_TOPIC, f"the topic {delivery.topic} does not exist")
            )
        raise ClientQueueFull

    def place_again(self, deliveries: Sequence[Delivery]) -> Sequence[Report]:
        """Move messages whose partition is gone to partitions that exist; return refusals where the topic is gone.

        Full while the brokers do not say which partitions there are; then nothing was moved.
        """
        for topic in {one.topic for one in deliveries}:
            self._partitioner.ask_again(topic)
        refused: list[Report] = []
        placed: dict[int, list[Delivery]] = {}
        for one in deliveries:
            one.placement = one.placement._replace(partition=-1)
            try:
                self._choose(one)
            except ClientRefused as refusal:
                refused.append((one, refusal.error, TransactionOutcome(one, "not_sent")))
            else:
                placed.setdefault(self._shard_of((one.topic, one.partition)), []).append(one)
        for number, some in placed.items():
            self._shards[number].insert_first(some)
        return refused

    def _is_missing(self, topic: str) -> bool:
        """Whether the brokers have said for a while that there is no such topic."""
        if self._partitioner.count(topic) != 0:
            self._missing.pop(topic, None)
            return False
        bound = float(self._config.settings.get("topic.metadata.propagation.max.ms", 5_000)) / 1000
        return time.monotonic() - self._missing.setdefault(topic, time.monotonic()) >= bound

    @property
    def ended(self) -> bool:
        """Another process has taken over."""
        return self._fenced is not None

    def outstanding(self) -> int:
        return sum(shard.outstanding() for shard in self._shards)

    def cluster_id(self, topic: str | None, timeout: float) -> str | None:
        return clients.cluster_id(self._config.settings, topic, timeout)

    def find_records(
        self,
        topic: str,
        message_ids: Sequence[str],
        *,
        since_ms: int | None = None,
        floors: Mapping[int, int] | None = None,
        timeout: float = 10.0,
    ) -> Mapping[str, ProbeResult]:
        settings = self._config.settings
        return record_lookup.look(
            settings, topic, message_ids, since_ms=since_ms, floors=floors, timeout=timeout
        )

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: Number, timeout: float
    ) -> NewerRecords:
        return self._compaction.newer_records(topic, missing, number=number, timeout=timeout)

    def purge(self) -> None:
        for shard in self._shards:
            shard.purge()

    def stop(self, timeout: float = 5.0) -> None:
        for shard in self._shards:
            shard.stop()
        deadline = time.monotonic() + timeout
        for shard in self._shards:
            shard.join(max(0.0, deadline - time.monotonic()))
        with self._telling:
            self._silent = True

    # what belongs to whom

    def _shard_of(self, where: Where) -> int:
        return zlib.crc32(f"{where[0]}/{where[1]}".encode()) % len(self._shards)

    # what the shards tell

    def report(self, reports: Sequence[Report]) -> None:
        with self._telling:
            if reports and not self._silent:
                self._listener.reports(reports)

    def statistics(self, number: int, statistics: Mapping[str, Any]) -> None:
        with self._telling:
            self._statistics[number] = statistics
            if number == 0 and not self._silent:
                self._listener.statistics(merged(list(self._statistics.values())))

    def connection_error(self, error: KafkaError) -> None:
        with self._telling:
            if not self._silent:
                self._listener.connection_error(error)

    def notice(self, kind: str, severity: Severity, text: str) -> None:
        with self._telling:
            if not self._silent:
                self._listener.notice(Notice(kind, severity, text, time.time()))

    def fenced(self, transactional_id: str) -> None:
        """Stop all shards: their transactional ids belong to another producer."""
        text = f"Another process uses the transactional id {transactional_id!r}; this one sends nothing more."
        with self._telling:
            if self._fenced is not None:
                return
            self._fenced = f"{text} {_FIX}"
        for shard in self._shards:
            shard.give_way()
        self.notice("fenced", "critical", self._fenced)

    def wait_all_fenced(self, number: int, stopping: threading.Event) -> None:
        """A partition may have been another shard's before; nothing is read before all of them are fenced."""
        self._all_fenced[number].set()
        for event in self._all_fenced:
            while not event.wait(0.1) and not stopping.is_set():
                pass


def _placed(delivery: Delivery, partition: int) -> None:
    delivery.placement = delivery.placement._replace(partition=partition, computed=True)


def transactional_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings for use inside transactions.

    There a message's own time-out is no promise to anybody: what times out is read back and sent again. It only
    has to be shorter than the transaction's, or the coordinator would end a transaction that is still at work.
    """
    chosen = dict(settings)
    asked = int(chosen.get("message.timeout.ms", 0)) or _MESSAGE_TIMEOUT
    message = min(asked, _MESSAGE_TIMEOUT)
    transaction = int(chosen.get("transaction.timeout.ms", message + _MORE))
    chosen["transaction.timeout.ms"] = transaction
    chosen["message.timeout.ms"] = min(message, transaction * 3 // 4)
    chosen["socket.timeout.ms"] = min(
        int(chosen.get("socket.timeout.ms", 60_000)), transaction
    )  # librdkafka asks it
    chosen["enable.idempotence"] = True
    chosen["acks"] = "all"
    chosen.setdefault("logger", client_log())
    return chosen
