"""A broker inside this process: librdkafka's mock cluster, with faults on request.

    with embedded.start(topics={"orders": 4}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, cluster_id=broker.cluster_id)
        broker.reject("orders", "POLICY_VIOLATION")

It speaks Kafka's protocol to any client, keeps records in memory (5 MB per partition, then it drops the oldest), and
needs neither Java nor a file.

It accepts the requests of transactions, so code with `delivery="exactly_once"` runs, but without the guarantee: it does
not drop the duplicates of an idempotent client's own retries, fences no transactional id, and shows the records of open
and aborted transactions to `read_committed` consumers too. As on Kafka, the end of a transaction adds a marker to each
of its partitions, which takes an offset. The marker's checksum is wrong: a consumer with `check.crcs` reports _BAD_MSG
there. Use `producer-core broker start` to test exactly-once delivery.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from threading import RLock
from types import TracebackType
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from producer_core._internal.removed_clusters import EMBEDDED
from producer_core.brokers.mock import MockCluster
from producer_core.brokers.rejections import Rejections, drain
from producer_core.errors import BrokerError, ConfigError
from producer_core.kafka.classify import lookup


def start(*, brokers: int = 3, topics: Mapping[str, int] | None = None) -> EmbeddedBroker:
    """Start a cluster with these topics (name to number of partitions) and return when it is ready."""
    return EmbeddedBroker(brokers=brokers, topics=topics or {})


class EmbeddedBroker:
    """A running cluster; every method may be called from any thread.

    Brokers 1 to `brokers` (at least four) are the bootstrap servers and lead the topics that clients create by using
    them. A topic created here, or given a fault, is led by a broker of its own (`leader(topic)`), so that a fault
    affects one topic only. While the topic moves there, clients refresh their metadata: a few messages take a tenth
    of a second longer, and none is lost.

    `cluster_id` is new at each start. Pass it to producers, so that they do not apply state of an earlier start to
    this one.
    """

    def __init__(self, *, brokers: int = 3, topics: Mapping[str, int] | None = None) -> None:
        if brokers < 1:
            raise ConfigError("An embedded cluster needs at least one broker.")
        self.cluster_id = f"{EMBEDDED}{uuid4()}"
        # With one initial broker, librdkafka gives auto-created topics one replica, and so partition n to broker n +
        # 1: never to the brokers that are added for a topic of their own. These topics have four partitions.
        self._mock = MockCluster(1)
        self._rejections = Rejections(self._mock)
        # The mock's thread and sockets end with the interpreter or this object, even without a call to stop().
        self._finalizer = weakref.finalize(self, _close, self._rejections, self._mock, os.getpid())
        self._lock = RLock()  # guards all fields below; changes of leaders and broker states are serialized
        self._brokers = max(brokers, 4)
        self._homes: dict[str, int] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._latency: dict[int | None, float] = {None: 0.0}  # by broker; None: the default
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
        """Create a topic with a leader of its own; an existing topic keeps its partitions and records."""
        with self._lock:
            self._mock.create_topic(topic, partitions, min(self._brokers, 3))
            self._home(topic)

    def leader(self, topic: str) -> int:
        """Return the broker that leads every partition of the topic: `down(broker.leader("orders"))`."""
        with self._lock:
            return self._home(topic)

    def fail_next(self, topic: str, code: int | str, times: int = 1) -> None:
        """Answer the next `times` produce requests of this topic with `code`, for any partition.

        The broker decides before the append, so nothing is written. An error that librdkafka retries
        (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS) uses one of the `times` at each try.
        """
        number = _number(code)
        with self._lock:
            self._mock.push_errors(self._home(topic), [number] * times)

    def reject(self, topic: str, code: int | str = "POLICY_VIOLATION") -> None:
        """Answer every produce request of this topic with `code`, until `accept(topic)`."""
        number = _number(code)
        with self._lock:
            home = self._home(topic)
            self._drain_when_up.discard(home)
            self._rejections.start(home, number)

    def accept(self, topic: str) -> None:
        """End `reject`, and the rest of `fail_next`, on this topic: the next produce request succeeds."""
        with self._lock:
            home = self._home(topic)
            self._rejections.lift(home)
            if home in self._down or not self._bootstrap_brokers_up():
                self._drain_when_up.add(home)
            else:
                self._drain(home)

    def set_latency(self, seconds: float, broker: int | None = None) -> None:
        """Delay all responses of all brokers (including those added later), or of one, by `seconds`."""
        with self._lock:
            if broker is None:
                self._latency.clear()
            self._latency[broker] = seconds
            for number in self._numbers(broker):
                self._mock.set_latency(number, seconds)

    def down(self, broker: int | None = None) -> None:
        """Close the connections and the port of all brokers, or of one; the records stay."""
        with self._lock:
            self._all_down = self._all_down or broker is None
            for number in self._numbers(broker):
                self._mock.set_up(number, up=False)
                self._down.add(number)

    def up(self, broker: int | None = None) -> None:
        """Accept connections again, at the same address."""
        with self._lock:
            self._all_down = self._all_down and broker is not None
            for number in self._numbers(broker):
                self._mock.set_up(number, up=True)
                self._down.discard(number)
            for number in self._drain_when_up - self._down if self._bootstrap_brokers_up() else ():
                self._drain(number)
                self._drain_when_up.discard(number)

    def advertise(self, listen: Callable[[int, str, int], tuple[str, int]]) -> None:
        """Advertise other addresses: `listen(number, host, port)` returns where clients reach each broker from now on.

        For a proxy in front of the brokers. Call it after the last topic was created; `bootstrap_servers` stays direct.
        """
        with self._lock:
            if not self._advertised:
                self._learn_addresses(self.bootstrap_servers)
                self._advertised = True
            for number, (host, port) in self._addresses.items():
                self._mock.advertise(number, *listen(number, host, port))

    def stop(self) -> None:
        """Stop the cluster and discard its records. A second call does nothing."""
        self._finalizer()

    def __enter__(self) -> EmbeddedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _home(self, topic: str) -> int:
        """Return the topic's own broker; add it at the first use."""
        if topic not in self._homes:
            self._homes[topic] = home = self._brokers + len(self._homes) + 1
            self._mock.add_broker(home)
            self._mock.set_latency(home, self._latency[None])
            if self._all_down:
                self._mock.set_up(home, up=False)
                self._down.add(home)
            # librdkafka reassigns all leaders when a broker joins.
            for name, number in self._homes.items():
                self._mock.lead(name, number)
        return self._homes[topic]

    def _numbers(self, broker: int | None) -> list[int]:
        every = range(1, self._brokers + len(self._homes) + 1)
        if broker is None:
            return list(every)
        if broker not in every:
            raise BrokerError(
                f"Broker {broker} does not exist; the brokers of the embedded cluster are numbered 1 to {every[-1]}."
            )
        return [broker]

    def _drain(self, broker: int) -> None:
        if broker not in self._addresses:
            self._learn_addresses(self.bootstrap_servers)
        if self._mock.errors_left(broker):
            drain(self._mock, broker, self._addresses[broker])

    def _bootstrap_brokers_up(self) -> list[int]:
        """Return the bootstrap brokers that are up."""
        return [number for number in range(1, self._brokers + 1) if number not in self._down]

    def _learn_addresses(self, servers: str) -> None:
        """Ask the running brokers for all addresses; their latency is suspended for the request."""
        for number in self._bootstrap_brokers_up():
            self._mock.set_latency(number, 0)
        found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=10)
        self._addresses |= {number: (broker.host, broker.port) for number, broker in found.brokers.items()}
        for number in self._bootstrap_brokers_up():
            self._mock.set_latency(number, self._latency.get(number, self._latency[None]))


def _close(rejections: Rejections, mock: MockCluster, owner: int) -> None:
    if os.getpid() != owner:  # a forked child has none of the broker's threads, so destroying it would hang
        return
    rejections.close()
    mock.close()


def _number(code: int | str) -> int:
    """Return the number of an error code; for an unknown name, the error suggests the nearest one."""
    return code if isinstance(code, int) else lookup(code).number
