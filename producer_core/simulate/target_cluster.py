"""The target of `make run`: the embedded broker, or the user's Kafka."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from producer_core._internal.home_folder import state_folder
from producer_core.brokers import embedded
from producer_core.config import client_config
from producer_core.delivery.transport import KafkaTransport, TransportFactory
from producer_core.errors import BrokerError
from producer_core.kafka.cluster import Cluster
from producer_core.simulate.client_faults import ClientFaults
from producer_core.simulate.faults import BrokerExecutor, Executor
from producer_core.simulate.load import topic_names

REAL_PREFIX = "demo."
_TIMEOUT = 8.0
"""Seconds to wait for a response; Ctrl-C must stop everything within ten."""


@dataclass(frozen=True)
class TargetCluster:
    """A cluster with the load's topics, and the executor of its faults."""

    bootstrap_servers: str
    cluster_id: str
    prefix: str
    faults: Executor
    transport: TransportFactory


def store_path(bootstrap_servers: str | None) -> Path:
    """Return `demo.duckdb` in the user's state folder, or a name with the first host of a real Kafka."""
    folder = state_folder()
    if not bootstrap_servers:
        return folder / "demo.duckdb"
    host = bootstrap_servers.split(",")[0].strip().rpartition(":")[0] or bootstrap_servers
    return folder / f"demo-{re.sub('[^A-Za-z0-9.-]+', '-', host).strip('-.') or 'kafka'}.duckdb"


@contextlib.contextmanager
def embedded_target() -> Iterator[TargetCluster]:
    with embedded.start(topics=topic_names()) as broker:
        yield TargetCluster(
            broker.bootstrap_servers, broker.cluster_id, "", BrokerExecutor(broker), KafkaTransport
        )


def real_target(bootstrap_servers: str) -> TargetCluster:
    """Return a reachable cluster, with its missing topics `demo.*` created; raise BrokerError otherwise."""
    config = client_config(bootstrap_servers, {})
    view = Cluster(config).view(timeout=_TIMEOUT)
    missing = {name: count for name, count in topic_names(REAL_PREFIX).items() if name not in view.topics}
    make_topics(config.bootstrap_servers, missing)
    client_faults = ClientFaults()
    return TargetCluster(
        config.bootstrap_servers, view.cluster_id, REAL_PREFIX, client_faults, client_faults.transport
    )


def make_topics(bootstrap_servers: str, topics: Mapping[str, int]) -> None:
    """Create topics with the cluster's default replication factor; topics created in the meantime are fine."""
    if not topics:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [NewTopic(name, num_partitions=count, replication_factor=-1) for name, count in topics.items()]
    for name, made in admin.create_topics(wanted, operation_timeout=_TIMEOUT).items():
        try:
            made.result(_TIMEOUT)
        except (KafkaException, FutureTimeout) as error:
            known = isinstance(error, KafkaException)
            if known and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            reason = error.args[0].str() if known else "no response"
            raise BrokerError(
                f"Topic {name!r} cannot be created: {reason}.", fix="Create it, or grant CREATE on it."
            ) from error
