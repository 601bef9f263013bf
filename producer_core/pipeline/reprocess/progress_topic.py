"""The progress topic: per slice of an operation, the number below which no attempt may send any more.

A seal is a transaction under the slice's transactional id that holds nothing but this record: so whoever had the id
before is fenced, and whoever takes it afterwards reads the seal before it sends. It carries the number of what
comes next, never what is under way: a stale EndTxn can commit half of a transaction at any time. The floors, which are the
offsets before a wave, are in the store, in the transaction that claimed it.
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
_ANSWER = 10.0
_TRIES = 60.0
"""Seconds for which a seal is tried."""
_TOGETHER = 8
_PAUSE = 0.5
DRIVER_BITS = 32
"""A number's lower bits count a driver's waves and seals; the others count drivers."""
_never = threading.Event()  # waiting on it is a pause


@dataclass(frozen=True)
class ProgressTopic:
    """Where an operation's seals are. `since` is, by slice, an offset right below this driver's seal."""

    topic: str
    partitions: int
    since: Mapping[int, int]

    def where(self, slice_: int) -> tuple[str, int]:
        return self.topic, slice_ % self.partitions


def transactional_id(operation_id: str, slice_: int) -> str:
    return f"{TRANSACTIONAL_ID}{slice_id(operation_id, slice_)}"


def slice_id(operation_id: str, slice_: int) -> str:
    """What a slice is to `TransactionalReplay`: an operation of its own."""
    return f"{operation_id}-{slice_}"


def require_topic(settings: Mapping[str, Any], topic: str) -> int:
    """The number of its partitions; made, compacted, where it is not there. BrokerError when it cannot be, or may not
    be used."""
    count = _partitions_of(settings, topic)
    if missing := acls.check(ClientConfig(settings), [topic], feature="exactly_once"):
        raise BrokerError(
            f"The topic {topic}, in which the slices of a replay keep their progress, may not be used: "
            f"{', '.join(map(str, missing))} is missing.",
            fix="Grant it, or name another topic with --progress-topic.",
        )
    return count


def _partitions_of(settings: Mapping[str, Any], topic: str) -> int:
    # A broker may make a topic because it was asked for, and then not as it must be.
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
        client.create_topics([new], operation_timeout=_ANSWER)[topic].result(_ANSWER + 1)
        return _PARTITIONS
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return _made_by_another(client, topic)
        said = error.args[0].str() if isinstance(error, KafkaException) else "nobody answered in time"
        raise BrokerError(
            f"The topic {topic}, in which the slices of a replay keep their progress, cannot be had: {said}.",
            fix=f"Create it: kafka-topics --create --topic {topic} --partitions {_PARTITIONS} "
            "--config cleanup.policy=compact; or name another with --progress-topic.",
        ) from error


def _made_by_another(client: AdminClient, topic: str) -> int:
    """It is known to every broker in a moment."""
    deadline = time.monotonic() + _ANSWER
    while time.monotonic() < deadline:
        if count := _count(client, topic):
            return count
        _never.wait(_PAUSE)
    raise BrokerError(
        f"The topic {topic} was just made, and the brokers do not know it yet.", fix="Try again."
    )


def _count(client: AdminClient, topic: str) -> int:
    """Its partitions; 0 where there is none."""
    found = client.list_topics(topic, timeout=_ANSWER).topics[topic]
    return len(found.partitions) if found.error is None else 0


def seal(
    settings: Mapping[str, Any],
    notes: ProgressTopic,
    operation_id: str,
    slices: Sequence[int],
    number: int,
    *,
    interrupt: Callable[[], bool],
    say: Callable[[str], None],
    keep: ClientPool | None = None,
) -> dict[int, int]:
    """From now on no attempt with a smaller number sends anything of these slices; what it had open is aborted.

    By slice the offset right below its seal. The clients that did it are kept, where `keep` is given. Waits for brokers;
    Interrupted when told to leave.
    """

    def one(slice_: int) -> int:
        return _seal(settings, notes, operation_id, slice_, number, interrupt=interrupt, say=say, keep=keep)

    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="seal") as pool:
        waiting = {slice_: pool.submit(one, slice_) for slice_ in slices}
        try:
            return {slice_: future.result() for slice_, future in waiting.items()}
        except ClientStopped:
            raise Interrupted from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # where one cannot be, the others are not tried


def _seal(
    settings: Mapping[str, Any],
    notes: ProgressTopic,
    operation_id: str,
    slice_: int,
    number: int,
    *,
    interrupt: Callable[[], bool],
    say: Callable[[str], None],
    keep: ClientPool | None,
) -> int:
    topic, partition = notes.where(slice_)
    chosen = {**transactional_settings(settings), "client.id": f"replay-{operation_id}"}
    chosen.pop("statistics.interval.ms", None)
    deadline = time.monotonic() + _TRIES
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
            client.fence(lambda error: say(f"Waits for the brokers: {error.str()}"))
            record = _record(operation_id, slice_, number, topic, partition)
            reports, _ = client.transact([record], time.monotonic() + 20)
            if keep is not None:
                kept = client
                keep.give(slice_, number, client)
            return int(reports[0][2].offset()) - 1
        except TransactionFailed as failed:
            if time.monotonic() > deadline:
                raise ReplayError(
                    f"The progress of slice {slice_} could not be written to {topic}: {failed}",
                    fix="Check that the topic is there and may be written (WRITE), then go on with the same command.",
                ) from failed
            say(f"Cannot write the progress of slice {slice_}: {failed}")
        finally:
            if kept is None:
                client.destroy()
        _never.wait(_PAUSE)
        if interrupt():
            raise ClientStopped


def _record(operation_id: str, slice_: int, number: int, topic: str, partition: int) -> Delivery:
    told = {"operation": operation_id, "slice": slice_, "wave": number}
    raw = _mark(operation_id, slice_) + number.to_bytes(8, "big")
    # By driver: a seal that an earlier one puts late, when he wakes, must not compact a later one's away.
    key = f"{operation_id}/{slice_}/{_driver(number)}".encode()
    return Delivery(raw, -1, topic, key, orjson.dumps(told), (), Placement(partition))


def admitted(
    settings: Mapping[str, Any],
    notes: ProgressTopic,
    operation_id: str,
    slice_: int,
    number: int,
    *,
    wait: Callable[[float], None],
) -> None:
    """After the fence: Stopped unless the newest seal is this driver's, and not later than this attempt's wave.

    Where there is none the topic is not the one that was sealed, and nobody can say whose the slice is.
    """
    where, mark = notes.where(slice_), _mark(operation_id, slice_)
    read_back = ReadBack(settings, wait, lambda *_: None, lambda _: None)
    seen = read_back({where: notes.since[slice_]}, lambda raw: raw[:16] == mark)
    newest = max((int.from_bytes(raw[16:]) for raw, _ in seen.found.get(where, ())), default=0)
    if newest > number or _driver(newest) != _driver(number):
        raise ClientStopped


def _driver(number: int) -> int:
    """Which driver's, of the operation's, counted from 1."""
    return number >> DRIVER_BITS


def _mark(operation_id: str, slice_: int) -> bytes:
    return uuid.uuid5(_NAMESPACE, f"{operation_id}/{slice_}").bytes
