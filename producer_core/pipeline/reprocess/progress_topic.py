"""The progress topic: for each slice of an operation, the number below which no attempt may send again.

A seal is a transaction under the slice's transactional id that contains only this record. It fences the earlier owner
of the id, and a later owner reads it before it sends. The record has the number of the next batch, never that of a
batch in progress: a stale EndTxn can commit half of a transaction at any time. The floors, the offsets before a
batch, are in the store, in the transaction that claimed the batch.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from producer_core._internal.compression_choice import with_fixed_codec
from producer_core._internal.join_names import join_names
from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.exactly_once.transactional_client import (
    ClientStopped,
    TransactionalClient,
    TransactionFailed,
)
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.errors import BrokerError, ReplayError
from producer_core.kafka import acls
from producer_core.kafka.clients import admin
from producer_core.messages import Placement
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.replay.guarantee import TRANSACTIONAL_ID
from producer_core.replay.strategy import Interrupted

PROGRESS_TOPIC = "producer-core-progress"
_PARTITIONS = 16
_NAMESPACE = uuid.UUID("0d1f2b52-6a43-5a0e-9d6c-3a1c1f0f7b61")
_TIMEOUT = 10.0
_RETRY_FOR = 60.0
"""Seconds for which a seal is retried."""
_CONCURRENT = 8
_PAUSE = 0.5
DRIVER_BITS = 32
"""The lower bits of a number count a driver's batches and seals; the upper bits count drivers."""
_never = threading.Event()  # never set: its wait() is a pause


@dataclass(frozen=True)
class ProgressTopic:
    """Locate an operation's seals. `since` has, by slice, an offset directly below this driver's seal."""

    topic: str
    partitions: int
    since: Mapping[int, int]

    def where(self, slice_: int) -> tuple[str, int]:
        return self.topic, slice_ % self.partitions


def transactional_id(operation_id: str, slice_: int) -> str:
    return f"{TRANSACTIONAL_ID}{slice_id(operation_id, slice_)}"


def slice_id(operation_id: str, slice_: int) -> str:
    """Return the name of a slice as an operation of `TransactionalReplay`."""
    return f"{operation_id}-{slice_}"


def require_topic(settings: Mapping[str, Any], topic: str) -> int:
    """Return the topic's number of partitions; create the topic, compacted, when it is missing.

    Raises BrokerError when it cannot be created or may not be used.
    """
    count = _partitions_of(settings, topic)
    if missing := acls.check(ClientConfig(settings), [topic], feature="exactly_once"):
        names = join_names(map(str, missing))
        raise BrokerError(
            f"The topic {topic}, which stores the progress of replays, cannot be used: "
            f"the credentials lack {names}.",
            fix=f"Grant {names}, or specify another topic with --progress-topic.",
        )
    return count


def _partitions_of(settings: Mapping[str, Any], topic: str) -> int:
    # A broker may create a topic on request, with settings other than those needed.
    client = admin(settings, {"allow.auto.create.topics": False})
    try:
        if count := _count(client, topic):
            return count
        new = NewTopic(
            topic,
            num_partitions=_PARTITIONS,
            replication_factor=-1,
            config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
        )
        client.create_topics([new], operation_timeout=_TIMEOUT)[topic].result(_TIMEOUT + 1)
        return _PARTITIONS
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return _partitions_once_known(client, topic)
        reason = error.args[0].str() if isinstance(error, KafkaException) else "no response in time"
        raise BrokerError(
            f"The topic {topic}, which stores the progress of replays, cannot be used: {reason}.",
            fix=f"Create it: kafka-topics --create --topic {topic} --partitions {_PARTITIONS} "
            "--config cleanup.policy=compact; or specify another topic with --progress-topic.",
        ) from error


def _partitions_once_known(client: AdminClient, topic: str) -> int:
    """Wait until the brokers know a topic that another process has just created."""
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        if count := _count(client, topic):
            return count
        _never.wait(_PAUSE)
    raise BrokerError(
        f"The topic {topic} was just created, and the brokers do not know it yet.", fix="Try again."
    )


def _count(client: AdminClient, topic: str) -> int:
    """Return the topic's number of partitions; 0 when it does not exist."""
    found = client.list_topics(topic, timeout=_TIMEOUT).topics[topic]
    return len(found.partitions) if found.error is None else 0


def seal(
    settings: Mapping[str, Any],
    progress: ProgressTopic,
    operation_id: str,
    slices: Sequence[int],
    number: int,
    *,
    interrupt: Callable[[], bool],
    report: Callable[[str], None],
    clients: ClientPool | None = None,
) -> dict[int, int]:
    """Prevent attempts with a smaller number from sending anything from these slices, and abort their open transactions.

    Returns, by slice, the offset directly below its seal. The clients that wrote the seals go into `clients`, if
    given. Waits while brokers are unavailable; raises Interrupted when `interrupt` asks for it.
    """

    def one(slice_: int) -> int:
        return _seal(
            settings,
            progress,
            operation_id,
            slice_,
            number,
            interrupt=interrupt,
            report=report,
            clients=clients,
        )

    with ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="seal") as pool:
        waiting = {slice_: pool.submit(one, slice_) for slice_ in slices}
        try:
            return {slice_: future.result() for slice_, future in waiting.items()}
        except ClientStopped:
            raise Interrupted from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after one failure the others are not tried


def _seal(
    settings: Mapping[str, Any],
    progress: ProgressTopic,
    operation_id: str,
    slice_: int,
    number: int,
    *,
    interrupt: Callable[[], bool],
    report: Callable[[str], None],
    clients: ClientPool | None,
) -> int:
    topic, partition = progress.where(slice_)
    chosen = {**with_fixed_codec(transactional_settings(settings)), "client.id": f"replay-{operation_id}"}
    chosen.pop("statistics.interval.ms", None)
    deadline = time.monotonic() + _RETRY_FOR
    kept: TransactionalClient | None = None
    while True:
        client = TransactionalClient(
            chosen,
            transactional_id(operation_id, slice_),
            statistics=lambda _: None,
            connection_error=lambda _: None,
            stopping=interrupt,
        )
        try:
            client.fence(lambda error: report(f"Waiting for the brokers: {error.str()}"))
            record = _record(operation_id, slice_, number, topic, partition)
            reports, _ = client.transact([record], time.monotonic() + 20)
            if clients is not None:
                kept = client
                clients.give(slice_, number, client)
            return int(reports[0][2].offset()) - 1
        except TransactionFailed as failed:
            if time.monotonic() > deadline:
                raise ReplayError(
                    f"The progress of slice {slice_} could not be written to {topic}: {failed}",
                    fix="Check that the topic exists and that WRITE on it is granted, then continue with the same command.",
                ) from failed
            report(f"Cannot write the progress of slice {slice_}: {failed}")
        finally:
            if kept is None:
                client.destroy()
        _never.wait(_PAUSE)
        if interrupt():
            raise ClientStopped


def _record(operation_id: str, slice_: int, number: int, topic: str, partition: int) -> Delivery:
    content = {"operation": operation_id, "slice": slice_, "wave": number}
    raw = _mark(operation_id, slice_) + number.to_bytes(8, "big")
    # A key per driver: a late seal of an earlier driver must not compact away a later driver's seal.
    key = f"{operation_id}/{slice_}/{_driver(number)}".encode()
    return Delivery(raw, -1, topic, key, orjson.dumps(content), (), Placement(partition))


def check_seal(
    settings: Mapping[str, Any],
    progress: ProgressTopic,
    operation_id: str,
    slice_: int,
    number: int,
    *,
    wait: Callable[[float], None],
) -> None:
    """Check the newest seal after the fence: it must be this driver's, and not later than this attempt's batch.

    Raises ClientStopped otherwise, even when there is no seal: the topic is then not the one that was sealed, so the
    owner of the slice is unknown.
    """
    where, mark = progress.where(slice_), _mark(operation_id, slice_)
    read_back = ReadBack(settings, wait, lambda *_: None, lambda _: None)
    seen = read_back({where: progress.since[slice_]}, lambda raw: raw[:16] == mark)
    newest = max((int.from_bytes(raw[16:]) for raw, _ in seen.found.get(where, ())), default=0)
    if newest > number or _driver(newest) != _driver(number):
        raise ClientStopped


def _driver(number: int) -> int:
    """Return which driver of the operation a number belongs to, counted from 1."""
    return number >> DRIVER_BITS


def _mark(operation_id: str, slice_: int) -> bytes:
    return uuid.uuid5(_NAMESPACE, f"{operation_id}/{slice_}").bytes
