"""An incident for practice: a shop's traffic with faults, recorded in a store, and a proof after the repair.

with incident.record("shop.duckdb") as shop:
    …                      # find the cause in shop.monitor, then shop.repair() and replay
    shop.prove()
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from producer_core._internal.plural import plural
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter
from producer_core.kafka import clients
from producer_core.messages import parse_id, record_id
from producer_core.producer.monitor import Monitor
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.faults import (
    BrokerExecutor,
    FaultRun,
    FaultSchedule,
    RejectFault,
    SlowFault,
    Window,
)
from producer_core.simulate.load import ShopLoad, topic_names

SECONDS = 14.0
"""Duration of the recording."""

_SETTINGS = {"linger_ms": 20, "max_block_ms": 1000}
_FLUSH = 30.0
_READ = 20.0
"""Seconds for reading all topics back."""


def schedule() -> FaultSchedule:
    """Return the schedule: responses are slow for a while, then payments are rejected. The delay looks like the cause
    but is not.

    The audit log is rejected from the first to the last second, which is an older, unrelated problem.
    """
    return FaultSchedule(
        (
            Window(RejectFault("audit-log", "INVALID_RECORD")),
            Window(SlowFault(0.15), 1.5, 4),
            Window(RejectFault("payments", "POLICY_VIOLATION"), 5, 11),
        ),
        cycle=10 * SECONDS,
    )


@dataclass(frozen=True)
class Proof:
    """Counts where the accepted messages are: on their topic, or dead letters. `twice` and `missing` must be zero."""

    accepted: int
    once: int
    twice: int
    dead: int
    missing: int

    @property
    def holds(self) -> bool:
        return not self.twice and not self.missing and self.once + self.dead == self.accepted

    def __str__(self) -> str:
        word = "Proved" if self.holds else "Not proved"
        return (
            f"{word}: {plural(self.accepted, 'accepted message')}: {self.once:,} on the right topic once, {self.twice:,} "
            f"more than once, {plural(self.dead, 'dead letter')}, {self.missing:,} missing."
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        counts = ("accepted", "once", "twice", "dead", "missing")
        facts = [(name, getattr(self, name)) for name in counts]
        return html.page("Proved" if self.holds else "Not proved", facts=facts, lines=[str(self)])


class Incident:
    """Holds a recorded incident with its broker and its producer still running."""

    def __init__(self, store: Path | str, *, seed: int, rate: float) -> None:
        self._parts = contextlib.ExitStack()
        self.broker = embedded.start(topics=topic_names())
        self._parts.callback(self.broker.stop)
        self.producer = ReliableKafkaProducer(
            self.broker.bootstrap_servers, _SETTINGS, store=store, cluster_id=self.broker.cluster_id
        )
        self._parts.callback(self.producer.close, 5.0)
        self._accepted: set[bytes] = set()  # added by the load's threads, read after they ended
        self._load = ShopLoad(cast(ReliableKafkaProducer, self), rate=rate, seed=seed)

    def send_message(self, topic: str, value: Any, key: Any = None) -> str | None:
        """Send a message of the load, and note its id for the proof."""
        message_id = self.producer.send_message(topic, value, key)
        if message_id is not None:
            self._accepted.add(parse_id(message_id))
        return message_id

    @property
    def monitor(self) -> Monitor:
        return self.producer.monitor()

    def record(self, seconds: float) -> Self:
        faults = FaultRun(schedule(), [BrokerExecutor(self.broker)])
        self._load.start()
        faults.start()
        threading.Event().wait(seconds)
        self._load.stop()
        faults.stop()
        self.broker.reject("payments", "POLICY_VIOLATION")  # the cause is not fixed yet
        self.broker.reject("audit-log", "INVALID_RECORD")
        self.producer.flush(_FLUSH)
        return self

    def repair(self) -> None:
        """Fix the cause, the broker's policy: payments are accepted again."""
        self.broker.accept("payments")

    def prove(self) -> Proof:
        """Read every topic from its beginning, and count where each accepted message is."""
        self.producer.flush(_FLUSH)
        dead_letters = self.producer.dlq.to_frame(DeadLetterFilter(state=None), kind="arrow").to_pylist()
        dead = {
            parse_id(one["message_id"]) for one in dead_letters if one["state"] not in ("replayed", "landed")
        }
        found = Counter(self._on_topics())
        written = self._accepted & found.keys()
        return Proof(
            accepted=len(self._accepted),
            once=sum(found[message_id] == 1 for message_id in written - dead),
            twice=sum(found[message_id] > 1 for message_id in written),
            dead=len(dead & self._accepted),
            missing=len(self._accepted - found.keys() - dead),
        )

    def _on_topics(self) -> Iterator[bytes]:
        with clients.reader({"bootstrap.servers": self.broker.bootstrap_servers}, name="proof") as consumer:
            left = {
                (topic, partition): TopicPartition(topic, partition, 0)
                for topic, partitions in topic_names().items()
                for partition in range(partitions)
            }
            consumer.assign(list(left.values()))
            yield from _all(consumer, set(left))

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _all(consumer: Consumer, left: set[tuple[str, int]]) -> Iterator[bytes]:
    """Yield the ids of all records up to the ends of these partitions."""
    while left:
        message = consumer.poll(_READ)
        if message is None:
            raise TimeoutError(f"no record for {_READ:.0f} s; partitions not read to their ends: {len(left)}")
        if message.error() is None:
            if (raw := record_id(message.headers())) is not None:
                yield raw
        elif message.error().code() == KafkaError._PARTITION_EOF:
            left.discard((message.topic(), message.partition()))


def record(store: Path | str, *, seconds: float = SECONDS, seed: int = 7, rate: float = 120.0) -> Incident:
    """Record an incident into a new store, on an embedded broker of its own; this takes `seconds`."""
    incident = Incident(store, seed=seed, rate=rate)
    try:
        return incident.record(seconds)
    except BaseException:
        incident.close()
        raise
