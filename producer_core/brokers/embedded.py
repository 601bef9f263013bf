"""A broker inside this process: librdkafka's mock cluster, with faults on request.

    with embedded.start(topics={"orders": 4}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, cluster_id=broker.cluster_id)
        broker.reject("orders", "POLICY_VIOLATION")

It speaks Kafka's protocol to any client, keeps records in memory (5 MB a partition, older ones go), and
needs neither Java nor a file. It is no proof of exactly-once: it does not drop the duplicates of an
idempotent client's own retries, fences no transactional id, and shows aborted records to everybody.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from threading import RLock
from types import TracebackType
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from producer_core.brokers.mock import MockCluster
from producer_core.brokers.rejections import Rejections, drain
from producer_core.errors import BrokerError, ConfigError
from producer_core.kafka.classify import lookup


def start(*, brokers: int = 3, topics: Mapping[str, int] | None = None) -> EmbeddedBroker:
    """Starts a cluster with these topics (name to number of partitions), ready when this returns."""
    return EmbeddedBroker(brokers=brokers, topics=topics or {})


class EmbeddedBroker:
    """A running cluster; every method may be called from any thread.

    Brokers 1 to `brokers` (four at least) answer the bootstrap and lead topics that clients made by using
    them. A topic made here, or given a fault, is led as a whole by a broker of its own (`leader(topic)`), so
    that a fault touches one topic only. While it moves there, clients look for the leaders again: a tenth of
    a second for a few messages, nothing lost.

    `cluster_id` is new at each start. Pass it to producers: what they remember of an earlier start must
    not be taken for this one.
    """

    def __init__(self, *, brokers: int = 3, topics: Mapping[str, int] | None = None) -> None:
        if brokers < 1:
            raise ConfigError("An embedded broker needs at least one broker.")
        self.cluster_id = f"embedded-{uuid4()}"
        # Begun with one broker, librdkafka gives topics made by use one replica, and so partition n to broker n + 1:
        # never to the brokers that are added for topics of their own. They have four partitions.
        self._mock = MockCluster(1)
        self._rejections = Rejections(self._mock)
        # The mock's thread and sockets end with the interpreter or this object, also where stop() was forgotten.
        self._finalizer = weakref.finalize(self, _close, self._rejections, self._mock, os.getpid())
        self._lock = RLock()  # guards everything below, and keeps changes of leaders and states apart
        self._brokers = max(brokers, 4)
        self._homes: dict[str, int] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._latency: dict[int | None, float] = {None: 0.0}  # by broker; None: of the others
        self._down: set[int] = set()
        self._all_down = False
        self._advertised = False
        self._drain_when_up: set[int] = set()
        for number in range(2, self._brokers + 1):
            self._mock.add_broker(number)
        self._learn_addresses(self._mock.bootstrap_servers)
        self.bootstrap_servers = ",".join(f"{host}:{port}" for host, port in self._addresses.values())
        for topic, partitions in (topics or {}).items():
            self.create_topic(topic, partitions)

    def create_topic(self, topic: str, partitions: int = 4) -> None:
        """A topic with a leader of its own; one that is there already keeps its partitions and records."""
        with self._lock:
            self._mock.create_topic(topic, partitions, min(self._brokers, 3))
            self._home(topic)

    def leader(self, topic: str) -> int:
        """The broker that leads every partition of the topic: `down(broker.leader("orders"))`."""
        with self._lock:
            return self._home(topic)

    def fail_next(self, topic: str, code: int | str, times: int = 1) -> None:
        """The next `times` produce requests of this topic are answered with `code`, whatever the partition.

        The code is decided before the append: nothing is written. An error that librdkafka retries
        (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS) uses up one of the `times` on each of its tries.
        """
        number = _number(code)
        with self._lock:
            self._mock.push_errors(self._home(topic), [number] * times)

    def reject(self, topic: str, code: int | str = "POLICY_VIOLATION") -> None:
        """Every produce request of this topic is answered with `code`, until `accept(topic)`."""
        number = _number(code)
        with self._lock:
            home = self._home(topic)
            self._drain_when_up.discard(home)
            self._rejections.start(home, number)

    def accept(self, topic: str) -> None:
        """Ends `reject` and what is left of `fail_next` on this topic: the next produce request succeeds."""
        with self._lock:
            home = self._home(topic)
            self._rejections.lift(home)
            if home in self._down or not self._answering():
                self._drain_when_up.add(home)
            else:
                self._drain(home)

    def set_latency(self, seconds: float, broker: int | None = None) -> None:
        """How long answers take from now on, of all brokers (also those to come) or of one."""
        with self._lock:
            if broker is None:
                self._latency.clear()
            self._latency[broker] = seconds
            for number in self._numbers(broker):
                self._mock.set_latency(number, seconds)

    def down(self, broker: int | None = None) -> None:
        """Closes the connections and the port of all brokers, or of one; its records stay."""
        with self._lock:
            self._all_down = self._all_down or broker is None
            for number in self._numbers(broker):
                self._mock.set_up(number, up=False)
                self._down.add(number)

    def up(self, broker: int | None = None) -> None:
        """Takes connections again, at the same address."""
        with self._lock:
            self._all_down = self._all_down and broker is not None
            for number in self._numbers(broker):
                self._mock.set_up(number, up=True)
                self._down.discard(number)
            for number in self._drain_when_up - self._down if self._answering() else ():
                self._drain(number)
                self._drain_when_up.discard(number)

    def advertise(self, listen: Callable[[int, str, int], tuple[str, int]]) -> None:
        """Something stands in between: `listen(number, host, port)` says where clients find each broker from now on.

        For `FaultProxy.listen`. Call it after the last topic was made; `bootstrap_servers` stays direct.
        """
        with self._lock:
            if not self._advertised:
                self._learn_addresses(self.bootstrap_servers)
                self._advertised = True
            for number, (host, port) in self._addresses.items():
                self._mock.advertise(number, *listen(number, host, port))

    def stop(self) -> None:
        """Ends the cluster; its records are gone. Calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> EmbeddedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _home(self, topic: str) -> int:
        """The topic's own broker, made on first need."""
        if topic not in self._homes:
            self._homes[topic] = home = self._brokers + len(self._homes) + 1
            self._mock.add_broker(home)
            self._mock.set_latency(home, self._latency[None])
            if self._all_down:
                self._mock.set_up(home, up=False)
                self._down.add(home)
            # librdkafka deals out all leaders anew when a broker joins.
            for name, number in self._homes.items():
                self._mock.lead(name, number)
        return self._homes[topic]

    def _numbers(self, broker: int | None) -> list[int]:
        every = range(1, self._brokers + len(self._homes) + 1)
        if broker is None:
            return list(every)
        if broker not in every:
            raise BrokerError(f"There is no broker {broker}; the embedded cluster has 1 to {every[-1]}.")
        return [broker]

    def _drain(self, broker: int) -> None:
        if broker not in self._addresses:
            self._learn_addresses(self.bootstrap_servers)
        if self._mock.errors_left(broker):
            drain(self._mock, broker, self._addresses[broker])

    def _answering(self) -> list[int]:
        """The brokers that clients begin with, as far as they are up."""
        return [number for number in range(1, self._brokers + 1) if number not in self._down]

    def _learn_addresses(self, servers: str) -> None:
        """Asks the brokers that are up; they answer without their latency meanwhile."""
        for number in self._answering():
            self._mock.set_latency(number, 0)
        found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=10)
        self._addresses |= {number: (broker.host, broker.port) for number, broker in found.brokers.items()}
        for number in self._answering():
            self._mock.set_latency(number, self._latency.get(number, self._latency[None]))


def _close(rejections: Rejections, mock: MockCluster, owner: int) -> None:
    if os.getpid() != owner:  # a forked child has none of the broker's threads: destroying it would hang
        return
    rejections.close()
    mock.close()


def _number(code: int | str) -> int:
    """The number of an error code; a name is looked up, an unknown one names the nearest."""
    return code if isinstance(code, int) else lookup(code).number
