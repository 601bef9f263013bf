"""Start the brokers that benchmarks run on, at most one cluster at a time."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from producer_core.brokers import embedded, kafka
from producer_core.brokers.ports import free_ports
from tests.proxy import Delay, FaultProxy, Rule

Kind = Literal["embedded", "one", "three", "proxied"]
KINDS: Mapping[Kind, str] = {
    "embedded": "embedded broker",
    "one": "Kafka, one node",
    "three": "Kafka, three nodes, three replicas",
    "proxied": "Kafka, one node behind the proxy",
}
PARTITIONS = 6
_numbers = itertools.count()


class Stage:
    """Starts clusters, and keeps the current one running until a different kind is requested.

    With `quick` the embedded broker replaces the real ones, unless `real=True`.
    """

    def __init__(self, *, quick: bool = False) -> None:
        self._quick = quick
        self._open = ExitStack()
        self._broker: Broker | None = None

    def broker(self, kind: Kind, *, real: bool = False) -> Broker:
        if self._quick and kind != "proxied":
            kind = "one" if real else "embedded"
        if self._broker is None or self._broker.kind != kind:
            self.close()
            self._broker = self._open.enter_context(_broker(kind, on_embedded=self._quick))
        return self._broker

    def close(self) -> None:
        self._broker = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Broker:
    """A running cluster and its topics."""

    def __init__(self, kind: Kind, cluster: Any, proxy: FaultProxy | None = None) -> None:
        self.kind = kind
        self.cluster = cluster
        self._proxy = proxy
        self._rule: Rule | None = None
        self._made: set[str] = set()

    @property
    def servers(self) -> str:
        return str((self._proxy or self.cluster).bootstrap_servers)

    @property
    def real(self) -> bool:
        return isinstance(self.cluster, kafka.KafkaCluster)

    @contextmanager
    def topic(self, partitions: int = PARTITIONS) -> Iterator[dict[str, Any]]:
        """Create a topic for one run. The embedded broker keeps 5 MB per partition, so all runs share one topic there."""
        name = f"bench-{next(_numbers)}" if self.real else f"bench-{partitions}-partitions"
        if name not in self._made:
            self._made.add(name)
            self.cluster.create_topic(name, partitions)
        try:
            yield {"servers": self.servers, "topic": name}
        finally:
            if self.real:
                self.cluster.delete_topic(name)

    @contextmanager
    def topics(self, count: int) -> Iterator[dict[str, Any]]:
        """Create `count` topics with one partition each; the argument is their common prefix before the number."""
        prefix = f"bench-{next(_numbers)}-"
        if not self.real:
            yield {"servers": self.servers, "prefix": prefix}  # created automatically on first use
            return
        names = [f"{prefix}{number}" for number in range(count)]
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        _create(admin, names)
        try:
            yield {"servers": self.servers, "prefix": prefix}
        finally:
            with contextlib.suppress(KafkaException):
                for done in admin.delete_topics(names, request_timeout=60).values():
                    done.result()

    def delay(self, seconds: float) -> None:
        """Delay every further request in the proxy, as the round trip of a network does."""
        assert self._proxy is not None
        self._proxy.clear()
        if seconds:
            self._proxy.add(Rule(Delay(seconds)))


def _create(admin: AdminClient, names: Sequence[str]) -> None:
    """Create topics and wait until each partition has a leader."""
    for done in admin.create_topics([NewTopic(name, 1) for name in names], request_timeout=120).values():
        done.result()
    wanted, deadline = set(names), time.monotonic() + 120
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=30).topics
        led = {
            name
            for name in wanted & set(found)
            if all(p.leader >= 0 for p in found[name].partitions.values())
        }
        if led == wanted and all(found[name].partitions for name in wanted):
            return
        time.sleep(0.2)
    raise TimeoutError("some topics had no leader after two minutes")


@contextmanager
def _broker(kind: Kind, *, on_embedded: bool) -> Iterator[Broker]:
    if kind == "embedded":
        with embedded.start() as small:
            yield Broker(kind, small)
    elif kind == "proxied" and on_embedded:
        with (
            embedded.start(topics={f"bench-{PARTITIONS}-partitions": PARTITIONS}) as small,
            FaultProxy() as proxy,
        ):
            small.advertise(proxy.listen)
            broker = Broker(kind, small, proxy)
            broker._made.add(f"bench-{PARTITIONS}-partitions")
            yield broker
    elif kind == "proxied":
        with FaultProxy() as proxy, kafka.start(nodes=1, advertise=proxy.advertise) as cluster:
            yield Broker(kind, cluster, proxy)
    else:
        with kafka.start(nodes=3 if kind == "three" else 1) as cluster:
            yield Broker(kind, cluster)


@contextmanager
def redis_server() -> Iterator[int | None]:
    """Start a redis-server on the loopback address; yield its port, or None if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)
