"""The transactional transport: exactly-once delivery behind the interface of all transports.

Each partition belongs to one shard, so its order is kept; shards commit in parallel. A message is reported only when its
transaction is committed and the journal has settled it, or when it is proven that the message is not in the log and
never will be.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from confluent_kafka import KafkaError

from producer_core._internal.librdkafka import queued_client_log
from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.log_positions import LogPositions, PartitionId, shard_ids, shard_note
from producer_core.delivery.exactly_once.merged_statistics import merge_statistics
from producer_core.delivery.exactly_once.native_client import core_refusal
from producer_core.delivery.exactly_once.native_shard import NO_CORE, NativeShard
from producer_core.delivery.exactly_once.outcome import TransactionOutcome
from producer_core.delivery.exactly_once.shard import Shard, TransactionBounds
from producer_core.delivery.exactly_once.transactional_client import check_settings
from producer_core.delivery.journal import SettlementState
from producer_core.delivery.transport import ClientQueueFull, ClientRefused, TransportListener
from producer_core.errors import ConfigError, Fenced, ForkedProducer
from producer_core.events import Notice, Severity
from producer_core.kafka import clients, record_lookup
from producer_core.kafka.compaction import Compaction, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import SequenceLookup
from producer_core.kafka.partitioner import Partitioner, metadata_count
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import MessageIds, Placement
from producer_core.native import Core

_MESSAGE_TIMEOUT_MS = 60_000
"""Message timeout inside a transaction, in milliseconds. One lost broker stalls all partitions for about 10 s."""
_TRANSACTION_EXTRA_MS = 30_000
"""Milliseconds by which the transaction timeout exceeds the message timeout."""
_FENCED_FIX = (
    "Every running producer needs its own transactional id: stop the other producer, or set another transactional_id "
    "for this one and restart it. No message is lost: the journal keeps the uncommitted messages, and they are sent "
    "after the restart."
)


@dataclass(frozen=True)
class TransactionLimits:
    """Limits of a transaction: it ends at this number of messages or bytes, or when its oldest message has this age.

    With the native core, it ends at `stream_messages`, or early enough that its oldest message is committed within
    `latency`. Times are in seconds.
    """

    messages: int = 5000
    bytes: int = 8 * 1024 * 1024
    age: float = 0.1
    stream_messages: int = 20_000
    latency: float = 0.25


class TransactionalTransport:
    """Deliver exactly once for `read_committed` consumers, across crashes, with a journal.

    `progress` is the journal, and `ids` are the ids of its messages. The transactional ids are `{transactional_id}-0`
    and so on, one per shard. `core="native"` sends plain messages through the native core; where it cannot be used, a
    notice gives the reason and everything runs in Python.
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
        core: Core = "python",
    ) -> None:
        limits = limits or TransactionLimits()
        self._config = config
        self._listener = listener
        self._progress = progress
        self._transactional_id = transactional_id
        self._pid = os.getpid()
        # Serializes the calls to the listener, and guards the field below.
        self._listener_lock = threading.RLock()
        self._stopped = False
        self._fenced: str | None = None
        self._statistics: dict[int, Mapping[str, Any]] = {}
        self._missing: dict[str, float] = {}
        self._shard_numbers: dict[PartitionId, int] = {}
        self._all_recovered = False
        self._positions = LogPositions(progress, ids)
        self._compaction = Compaction(config.settings)
        settings = transactional_settings(config.settings)
        check_settings(settings)
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
            stream_messages=limits.stream_messages,
            latency=limits.latency,
        )
        self.core_refusal = None if core == "python" else core_refusal(settings)
        kind = Shard if core == "python" or self.core_refusal else NativeShard
        names = shard_ids(transactional_id, shards, progress.offsets)
        own, others = names[:shards], names[shards:]
        self._all_fenced = [threading.Event() for _ in own]
        self._shards = [
            kind(
                number,
                name,
                settings={**settings, "client.id": f"{config.client_id}-{number}"},
                positions=self._positions,
                bounds=bounds,
                listener=self,
                owns=lambda partition, number=number: self._shard_of(partition) == number,  # type: ignore[misc]  # a bound default
                also_fence=others[number::shards],
            )
            for number, name in enumerate(own)
        ]

    # Transport

    def start(self) -> None:
        note = shard_note(self._transactional_id, len(self._shards), self._progress.offsets)
        self._positions.start_partitions(note)
        if self.core_refusal is not None:
            text = f"{NO_CORE} {self.core_refusal}"
            self.notice("native_core_unavailable", "warning", text)
        for shard in self._shards:
            shard.start()

    def yield_to_poller(self) -> None:
        """Do nothing: the shards collect and poll on their own threads."""

    def flush_soon(self) -> None:
        """Do nothing: the shards poll all the time."""

    def produce(self, delivery: Delivery) -> None:
        if os.getpid() != self._pid:
            raise ForkedProducer
        if self._fenced is not None:
            raise Fenced(self._fenced)
        if delivery.partition < 0:
            self._choose_partition(delivery)
        self._shards[self._shard_of((delivery.topic, delivery.partition))].produce(delivery)

    def _choose_partition(self, delivery: Delivery) -> None:
        """Choose a partition. Before that, everything is read back, because the record may already be on any partition."""
        if not self._all_recovered:
            if not all(shard.recovered.is_set() for shard in self._shards):
                raise ClientQueueFull
            self._all_recovered = True
        position = self._positions.position(delivery.id)
        if position is not None:
            return _set_partition(delivery, position.partition)
        partition = self._partitioner.choose(delivery.topic, delivery.key, delivery.id)
        if partition >= 0:
            self._missing.pop(delivery.topic, None)
            return _set_partition(delivery, partition)
        if self._is_missing(delivery.topic):
            raise ClientRefused(
                KafkaError(KafkaError._UNKNOWN_TOPIC, f"the topic {delivery.topic} does not exist")
            )
        raise ClientQueueFull

    def reassign_partitions(self, deliveries: Sequence[Delivery]) -> Sequence[Report]:
        """Move messages whose partition no longer exists to partitions that do. Return rejections for deleted topics.

        Raise ClientQueueFull and move nothing while the brokers do not return the topic's partitions.
        """
        for topic in {one.topic for one in deliveries}:
            self._partitioner.refresh_now(topic)
        rejected: list[Report] = []
        by_shard: dict[int, list[Delivery]] = {}
        for one in deliveries:
            one.placement = one.placement._replace(partition=-1)
            try:
                self._choose_partition(one)
            except ClientRefused as refusal:
                rejected.append((one, refusal.error, TransactionOutcome(one, "not_sent")))
            else:
                by_shard.setdefault(self._shard_of((one.topic, one.partition)), []).append(one)
        for number, moved in by_shard.items():
            self._shards[number].insert_first(moved)
        return rejected

    def _is_missing(self, topic: str) -> bool:
        """Return whether the brokers have reported for a while that the topic does not exist."""
        if self._partitioner.count(topic) != 0:
            self._missing.pop(topic, None)
            return False
        bound = float(self._config.settings.get("topic.metadata.propagation.max.ms", 5_000)) / 1000
        return time.monotonic() - self._missing.setdefault(topic, time.monotonic()) >= bound

    @property
    def core(self) -> Core:
        """Return which core sends plain messages now."""
        return "native" if any(shard.native for shard in self._native_shards) else "python"

    @property
    def _native_shards(self) -> list[NativeShard]:
        return [shard for shard in self._shards if isinstance(shard, NativeShard)]

    def use_core(self, core: Core) -> None:
        """Change the core; the next transaction of each shard uses it. Any thread may call it.

        Raise ConfigError for "native" if the transport was not created with it, or cannot use it.
        """
        if core == "native" and not self._native_shards:
            raise ConfigError(
                "This producer does not have the native core.", fix='Create it with core="native".'
            )
        for shard in self._native_shards:
            shard.native = core == "native"

    @property
    def ended(self) -> bool:
        """Return whether another process uses the transactional id."""
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
        return record_lookup.find_records(
            settings, topic, message_ids, since_ms=since_ms, floors=floors, timeout=timeout
        )

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: SequenceLookup, timeout: float
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
        with self._listener_lock:
            self._stopped = True

    # shards

    def _shard_of(self, partition: PartitionId) -> int:
        number = self._shard_numbers.get(partition)
        if number is None:
            number = zlib.crc32(f"{partition[0]}/{partition[1]}".encode()) % len(self._shards)
            self._shard_numbers[partition] = number
        return number

    # events of the shards

    def report(self, reports: Sequence[Report]) -> None:
        with self._listener_lock:
            if reports and not self._stopped:
                self._listener.reports(reports)

    def statistics(self, number: int, statistics: Mapping[str, Any]) -> None:
        with self._listener_lock:
            self._statistics[number] = statistics
            if number == 0 and not self._stopped:
                self._listener.statistics(merge_statistics(list(self._statistics.values())))

    def connection_error(self, error: KafkaError) -> None:
        with self._listener_lock:
            if not self._stopped:
                self._listener.connection_error(error)

    def notice(self, kind: str, severity: Severity, text: str) -> None:
        with self._listener_lock:
            if not self._stopped:
                self._listener.notice(Notice(kind, severity, text, time.time()))

    def fenced(self, transactional_id: str) -> None:
        """Stop all shards: another producer owns their transactional ids."""
        text = f"Another process is using the transactional id {transactional_id!r}; this producer sends no more messages."
        with self._listener_lock:
            if self._fenced is not None:
                return
            self._fenced = f"{text} {_FENCED_FIX}"
        for shard in self._shards:
            shard.yield_id()
        self.notice("fenced", "critical", self._fenced)

    def wait_all_fenced(self, number: int, stopping: threading.Event) -> None:
        """Wait until all shards are fenced. A partition may have belonged to another shard before, so no read starts earlier."""
        self._all_fenced[number].set()
        for event in self._all_fenced:
            while not event.wait(0.1) and not stopping.is_set():
                pass


def _set_partition(delivery: Delivery, partition: int) -> None:
    placement = delivery.placement
    if placement.timestamp_ms:
        delivery.placement = Placement(partition, placement.timestamp_ms, computed=True)
    else:  # for speed: one object for each partition
        delivery.placement = _placed(partition)


_placed = cache(partial(Placement, computed=True))


def transactional_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a client for use in transactions.

    In a transaction the message timeout has no meaning for the caller: a message that times out is read back and sent
    again. It only has to be shorter than the transaction timeout, or the coordinator would abort a running transaction.
    """
    chosen = dict(settings)
    requested = int(chosen.get("message.timeout.ms", 0)) or _MESSAGE_TIMEOUT_MS
    message = min(requested, _MESSAGE_TIMEOUT_MS)
    transaction = int(chosen.get("transaction.timeout.ms", message + _TRANSACTION_EXTRA_MS))
    chosen["transaction.timeout.ms"] = transaction
    chosen["message.timeout.ms"] = min(message, transaction * 3 // 4)
    # librdkafka requires a socket timeout no longer than the transaction timeout
    chosen["socket.timeout.ms"] = min(int(chosen.get("socket.timeout.ms", 60_000)), transaction)

    chosen["enable.idempotence"] = True
    chosen["acks"] = "all"
    chosen["logger"] = queued_client_log()
    return chosen
