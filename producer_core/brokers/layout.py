"""Assign ports and folders to the nodes of a real Kafka, and derive their settings."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from producer_core._internal import private_files
from producer_core.brokers.ports import free_ports
from producer_core.errors import BrokerError

PORTS_PER_NODE = 3
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # 170 to 260 MiB, 2.3 s of CPU per start


@dataclass(frozen=True, slots=True)
class Node:
    """A node. Clients use `port`; `direct_port` is for traffic between the brokers, and for tests that bypass a
    proxy."""

    number: int
    port: int
    direct_port: int
    controller_port: int
    folder: Path
    advertised: str = ""

    @property
    def address(self) -> str:
        """Return the advertised address: the listener, unless a proxy is in front of it."""
        return self.advertised or self.listens

    @property
    def listens(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def direct_address(self) -> str:
        return f"127.0.0.1:{self.direct_port}"

    @property
    def settings_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def console(self) -> Path:
        """Return the file of the JVM's own output, before logging starts."""
        return self.folder / "console.log"


def plan(count: int, folder: Path, *, port: int | None = None) -> list[Node]:
    """Return `count` nodes under `folder`; with `port`, their client ports are port, port + 1, …"""
    wanted = [] if port is None else list(range(port, port + count))
    ports = free_ports(PORTS_PER_NODE * count, wanted=wanted)
    return [
        Node(i + 1, ports[i], ports[count + i], ports[2 * count + i], folder / f"node-{i + 1}")
        for i in range(count)
    ]


def settings(node: Node, nodes: Sequence[Node], *, auto_create: bool) -> dict[str, str]:
    """Return a broker's properties.

    Every node is broker and controller; with three nodes, topics have three replicas and two in sync.
    """
    replicas = str(min(len(nodes), 3))
    in_sync = "2" if len(nodes) >= 3 else "1"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "controller.quorum.voters": ",".join(f"{n.number}@127.0.0.1:{n.controller_port}" for n in nodes),
        "listeners": f"CLIENT://{node.listens},DIRECT://{node.direct_address},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"CLIENT://{node.address},DIRECT://{node.direct_address}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,DIRECT:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "DIRECT",
        "log.dirs": str(node.data),
        "auto.create.topics.enable": str(auto_create).lower(),
        "num.partitions": "4",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
    }


def write(node: Node, properties: Mapping[str, str]) -> None:
    try:
        private_files.make_folder(node.folder)
    except OSError as error:
        raise BrokerError(
            f"The folder {node.folder} for a broker cannot be created ({error.strerror}).",
            fix="Choose another folder.",
        ) from error
    lines = (f"{name}={_escaped(value)}\n" for name, value in properties.items())
    private_files.write(node.settings_file, "".join(lines))  # contains passwords of test listeners
    (node.folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")


def command(java: str, jars: Path, node: Node, *arguments: str) -> list[str]:
    """Return the JVM's command line for a broker or one of Kafka's tools."""
    return [
        java,
        *JVM,
        f"-Dlog4j2.configurationFile={node.folder / 'log4j2.properties'}",
        f"-Dproducer.log={node.log}",
        "-cp",
        f"{jars}/*",
        *arguments,
    ]


def cluster_id_in(folder: Path) -> str | None:
    """Return the id of the cluster whose data are in this folder; None when there are none."""
    for found in sorted(folder.glob("node-*/data/meta.properties")):
        for line in found.read_text(encoding="utf-8").splitlines():
            if line.startswith("cluster.id="):
                return line.partition("=")[2].replace("\\", "").strip()
    return None


def new_cluster_id() -> str:
    """Return 22 characters, Kafka's form of a UUID; never with a leading dash, which its tools take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()).startswith("-"):
        continue
    return text


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:producer.log}
appender.file.filePattern = ${sys:producer.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
