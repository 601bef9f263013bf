"""Run a real Apache Kafka on this machine, with one node or several, from its jars.

    with kafka.start(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.kill(2)
        cluster.start_node(2)

Its brokers end with the `with` block, and when this process dies for any reason.
"""

from __future__ import annotations

import signal
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from types import TracebackType

from producer_core.brokers import jars, layout, readiness
from producer_core.brokers import secure as access
from producer_core.brokers.guard import BrokerGuard
from producer_core.brokers.java import find_java
from producer_core.brokers.layout import Node
from producer_core.brokers.processes import TrackedProcess, spawn
from producer_core.brokers.secure import Security
from producer_core.errors import BrokerError, ConfigError

Properties = Mapping[str, str] | Callable[[Node], Mapping[str, str]]
Advertise = Mapping[int, tuple[str, int]] | Callable[[Node], tuple[str, int]]
Progress = Callable[[str], None]


def _silent(text: str) -> None:
    """Ignore progress messages."""


def start(
    *,
    nodes: int = 1,
    folder: Path | str | None = None,
    properties: Properties | None = None,
    auto_create: bool = True,
    port: int | None = None,
    advertise: Advertise | None = None,
    secure: bool = False,
    format_options: Sequence[str] = (),
    timeout: float = 300.0,
    progress: Progress = _silent,
) -> KafkaCluster:
    """Start a cluster and wait until every broker responds.

    Without `folder` the data are in a temporary folder, which is deleted with the cluster; in a given folder they
    stay, and a later start continues with them. `properties` override all others; a function gets each Node (its
    ports, its folder), for example {"producer.id.expiration.ms": "5000"}. Topics are created automatically on first
    use, with 4 partitions, unless `auto_create=False`. `advertise` gives clients a different (host, port) from the one a
    node listens on, for a proxy in front of it: by node number, or as a function of the Node, which is called before
    anything runs. Traffic between the brokers, and `direct_servers`, do not use that address. With `secure`, clients
    connect over SASL_SSL and need ACLs; the cluster's `security` has the users. `format_options` go to Kafka's
    storage tool (`--add-scram`, `--feature`).
    """
    installation = prepare(progress)
    home = Path(folder).absolute() if folder else Path(tempfile.mkdtemp(prefix="producer-core-kafka-"))
    security = access.create_security(home / "security") if secure else None
    if secure and advertise is None:
        advertise = access.advertise
    cluster = KafkaCluster(
        installation,
        advertised(layout.plan(check_folder(home, nodes), home, port=port), advertise),
        home,
        temporary=folder is None,
        security=security,
    )
    try:
        cluster._begin(properties or {}, auto_create, format_options, timeout, progress)
    except BaseException:
        cluster.stop()
        raise
    return cluster


@dataclass(frozen=True, slots=True)
class Installation:
    java: str
    jars: Path


def prepare(progress: Progress = _silent) -> Installation:
    """Find Java and fetch Kafka's jars; MissingTool when there is no Java."""
    return Installation(find_java().program, jars.fetch(progress))


def check_folder(folder: Path, nodes: int) -> int:
    """Return `nodes` if the folder is empty or has the data of that many nodes."""
    if nodes < 1:
        raise ConfigError("A cluster needs at least one node.")
    existing = len(list(folder.glob("node-*/data/meta.properties")))
    if existing not in (0, nodes):
        raise BrokerError(
            f"{folder} holds the data of {existing} node{'s' if existing > 1 else ''}, not of {nodes}.",
            fix="Start that many nodes, or choose another folder.",
        )
    return nodes


def advertised(nodes: Sequence[Node], choice: Advertise | None) -> list[Node]:
    """Return the nodes with the addresses that clients get."""
    if choice is None:
        return list(nodes)
    address = choice if callable(choice) else lambda node: choice.get(node.number, ("127.0.0.1", node.port))
    return [replace(node, advertised="{}:{}".format(*address(node))) for node in nodes]


class KafkaCluster:
    """A running cluster; every method may be called from any thread, and returns when it is done.

    `bootstrap_servers` is for clients. `direct_servers` names the same brokers over their second listener, for
    clients that must bypass a proxy in front of the first. `security` has the passwords and certificates of a secured
    cluster.
    """

    def __init__(
        self,
        installation: Installation,
        nodes: Sequence[Node],
        folder: Path,
        *,
        temporary: bool,
        security: Security | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.security = security
        self.folder = folder
        self.bootstrap_servers = ",".join(node.address for node in nodes)
        self.direct_servers = ",".join(node.direct_address for node in nodes)
        self.cluster_id = layout.cluster_id_in(folder) or layout.new_cluster_id()
        self._installation = installation
        self._temporary = temporary
        self._lock = RLock()  # guards the processes: one change of a node at a time
        self._processes: dict[int, TrackedProcess] = {}
        self._guard = BrokerGuard(folder if temporary else None)
        self._finalizer = weakref.finalize(self, self._guard.close)

    def create_topic(
        self, topic: str, partitions: int = 4, config: Mapping[str, str] | None = None, *, replicas: int = -1
    ) -> None:
        """Create a topic and return when every partition has a leader; by default with the cluster's replication
        factor."""
        readiness.create_topic(self.direct_servers, topic, partitions, dict(config or {}), replicas)

    def delete_topic(self, topic: str) -> None:
        readiness.delete_topic(self.direct_servers, topic)

    def wait_ready(self, timeout: float = 300.0) -> None:
        """Wait until every started broker responds; raise BrokerError with the end of its log if one exited."""
        with self._lock:
            expected = {n.number: n.direct_address for n in self.nodes if n.number in self._processes}
        readiness.wait(expected, self._check_alive, timeout)

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL, like a power loss. The others notice when its session of 9 s has expired."""
        with self._lock:
            process = self._take(number)
            process.kill()
            self._guard.forget(process)

    def stop_node(self, number: int) -> None:
        """Stop a broker with SIGTERM; it hands over its leaderships first."""
        with self._lock:
            process = self._take(number)
            process.end()
            self._guard.forget(process)

    def start_node(self, number: int, *, wait: bool = True, timeout: float = 300.0) -> None:
        """Start a killed or stopped node again, at its old address with its old data."""
        with self._lock:
            if (process := self._processes.get(number)) and process.alive:
                raise BrokerError(f"Node {number} is running.")
            self._launch(self._node(number))
        if wait:
            self.wait_ready(timeout)

    def pause(self, number: int) -> None:
        """Suspend a broker with SIGSTOP: it keeps its connections and does not respond."""
        self._running(number).signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._running(number).signal(signal.SIGCONT)

    def alive(self, number: int) -> bool:
        with self._lock:
            process = self._processes.get(number)
        return process is not None and process.alive

    def stop(self) -> None:
        """Stop the brokers, those with a given folder cleanly. A second call does nothing."""
        with self._lock:
            processes, self._processes = list(self._processes.values()), {}
            if not self._temporary:
                end_all(processes)
            self._finalizer()
            for process in processes:
                process.wait(10)  # reaps it

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _begin(
        self,
        properties: Properties,
        auto_create: bool,
        options: Sequence[str],
        timeout: float,
        progress: Progress,
    ) -> None:
        progress("formatting the storage")
        write_and_format(
            self._installation,
            self.nodes,
            self.cluster_id,
            properties,
            auto_create=auto_create,
            options=options,
            security=self.security,
        )
        progress(f"waiting for {len(self.nodes)} broker{'s' if len(self.nodes) > 1 else ''}")
        with self._lock:
            for node in self.nodes:
                self._launch(node)
        self.wait_ready(timeout)
        if self.security is not None:
            access.write_client_configs(self.security, self.bootstrap_servers)
            access.create_users(self.direct_servers, self.security)

    def _launch(self, node: Node) -> None:
        process = launch(self._installation, node)
        self._guard.watch(process)
        self._processes[node.number] = process

    def _check_alive(self) -> None:
        with self._lock:
            for number, process in self._processes.items():
                if not process.alive:
                    raise ended(self._node(number))

    def _node(self, number: int) -> Node:
        for node in self.nodes:
            if node.number == number:
                return node
        raise BrokerError(f"Node {number} does not exist; the cluster has {_node_numbers(len(self.nodes))}.")

    def _running(self, number: int) -> TrackedProcess:
        self._node(number)
        with self._lock:
            process = self._processes.get(number)
        if process is None or not process.alive:
            raise BrokerError(f"Node {number} is not running.")
        return process

    def _take(self, number: int) -> TrackedProcess:
        process = self._running(number)
        del self._processes[number]
        return process


def launch(installation: Installation, node: Node) -> TrackedProcess:
    return spawn(
        layout.command(installation.java, installation.jars, node, "kafka.Kafka", str(node.settings_file)),
        output=node.console,
    )


def write_and_format(
    installation: Installation,
    nodes: Sequence[Node],
    cluster_id: str,
    properties: Properties,
    *,
    auto_create: bool,
    options: Sequence[str] = (),
    security: Security | None = None,
) -> None:
    """Write the settings and format the storage of every node; existing storage stays as it is."""
    tools = []
    security_properties = access.properties(security) if security else {}
    for node in nodes:
        extra = properties(node) if callable(properties) else properties
        layout.write(
            node, {**layout.settings(node, nodes, auto_create=auto_create), **security_properties, **extra}
        )
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(node.settings_file)]
        tools.append(
            spawn(
                layout.command(
                    installation.java, installation.jars, node, *tool, "--ignore-formatted", *options
                ),
                output=node.console,
            )
        )
    for node, tool_process in zip(nodes, tools, strict=True):
        if not tool_process.wait(300):
            tool_process.kill()
        if not (node.data / "meta.properties").exists():
            raise BrokerError(f"The storage of node {node.number} could not be formatted:\n{tail(node)}")


def end_all(processes: Sequence[TrackedProcess], timeout: float = 15.0) -> None:
    """Stop all brokers at once: a broker that stops alone waits for the others."""
    for process in processes:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
    for process in processes:
        process.end(timeout)


def ended(node: Node) -> BrokerError:
    return BrokerError(
        f"Broker {node.number} exited. Last lines of its log ({node.log}):\n{tail(node)}",
    )


def tail(node: Node, lines: int = 12) -> str:
    """Return the last lines that the broker wrote, those of the JVM first."""
    found: list[str] = []
    for file in (node.console, node.log):
        if file.exists():
            found += file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(found) or "(the log is empty)"


def _node_numbers(count: int) -> str:
    return "node 1 only" if count == 1 else f"nodes 1 to {count}"
