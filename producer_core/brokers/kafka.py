"""A real Apache Kafka on this machine: one node or several, started from its jars.

    with kafka.start(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.kill(2)
        cluster.start_node(2)

Its brokers end with the `with` block, and also when this process dies, however it dies.
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
    """Tells nobody."""


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
    """Starts a cluster and waits until every broker answers.

    Without `folder` the data live in a temporary one and go with the cluster; with it they stay and a later
    start goes on with them. `properties` come last and win; a function gets each Node (its ports, its
    folder), for example {"producer.id.expiration.ms": "5000"}. Topics that a client merely uses come to be with
    4 partitions, unless `auto_create=False`. `advertise` gives clients another (host, port) for a node than the
    one it listens on, for something that stands in between: by its number, or a function of its Node, which is
    called before anything runs; brokers among themselves, and `direct_servers`, pass it by. `secure`: clients
    come over SASL_SSL and may do only what they are granted; the cluster's `security` has the users.
    `format_options` go to Kafka's storage tool (`--add-scram`, `--feature`).
    """
    installation = prepare(progress)
    home = Path(folder).absolute() if folder else Path(tempfile.mkdtemp(prefix="producer-core-kafka-"))
    security = access.prepare(home / "security") if secure else None
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
    """What every broker is started with; MissingTool when there is no Java."""
    return Installation(find_java().program, jars.fetch(progress))


def check_folder(folder: Path, nodes: int) -> int:
    """`nodes`, if the data in this folder are of as many."""
    if nodes < 1:
        raise ConfigError("A cluster needs at least one node.")
    there = len(list(folder.glob("node-*/data/meta.properties")))
    if there not in (0, nodes):
        raise BrokerError(
            f"{folder} holds the data of {there} node{'s' if there > 1 else ''}, not of {nodes}.",
            fix="Start as many, or choose another folder.",
        )
    return nodes


def advertised(nodes: Sequence[Node], choice: Advertise | None) -> list[Node]:
    """The same nodes with the addresses that clients are to be told."""
    if choice is None:
        return list(nodes)
    ask = choice if callable(choice) else lambda node: choice.get(node.number, ("127.0.0.1", node.port))
    return [replace(node, advertised="{}:{}".format(*ask(node))) for node in nodes]


class KafkaCluster:
    """A running cluster; every method may be called from any thread, and waits until it is done.

    `bootstrap_servers` is for clients. `direct_servers` names the same brokers over their second listener,
    for a reader that must not pass a proxy set in front of the first. `security` has the passwords and
    certificates of a secured cluster.
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
        """Returns when every partition has a leader; by default with as many copies as the cluster allows."""
        readiness.create_topic(self.direct_servers, topic, partitions, dict(config or {}), replicas)

    def delete_topic(self, topic: str) -> None:
        readiness.delete_topic(self.direct_servers, topic)

    def wait_ready(self, timeout: float = 300.0) -> None:
        """Until every broker that should run answers; BrokerError with the end of its log when one ended."""
        with self._lock:
            expected = {n.number: n.direct_address for n in self.nodes if n.number in self._processes}
        readiness.wait(expected, self._check_alive, timeout)

    def kill(self, number: int) -> None:
        """SIGKILL, as by a power cut. The others notice after its session of 9 s has run out."""
        with self._lock:
            process = self._take(number)
            process.kill()
            self._guard.forget(process)

    def stop_node(self, number: int) -> None:
        """SIGTERM: the broker hands its leaderships over first."""
        with self._lock:
            process = self._take(number)
            process.end()
            self._guard.forget(process)

    def start_node(self, number: int, *, wait: bool = True, timeout: float = 300.0) -> None:
        """Starts a killed or stopped node again, at its old address with its old data."""
        with self._lock:
            if (process := self._processes.get(number)) and process.alive:
                raise BrokerError(f"Node {number} is running.")
            self._launch(self._node(number))
        if wait:
            self.wait_ready(timeout)

    def pause(self, number: int) -> None:
        """SIGSTOP: the broker keeps its connections and says nothing more."""
        self._running(number).signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._running(number).signal(signal.SIGCONT)

    def alive(self, number: int) -> bool:
        with self._lock:
            process = self._processes.get(number)
        return process is not None and process.alive

    def stop(self) -> None:
        """Ends the brokers; those with a folder of yours cleanly. Calling it again does nothing."""
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
            access.hand_out(self.security, self.bootstrap_servers)
            access.admit(self.direct_servers, self.security)

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
        raise BrokerError(f"There is no node {number}; the cluster has 1 to {len(self.nodes)}.")

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
    """Settings and empty storage for every node; storage that is there already stays as it is."""
    tools = []
    securing = access.properties(security) if security else {}
    for node in nodes:
        extra = properties(node) if callable(properties) else properties
        layout.write(node, {**layout.settings(node, nodes, auto_create=auto_create), **securing, **extra})
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
    """All at once: a broker that leaves alone waits for the others."""
    for process in processes:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
    for process in processes:
        process.end(timeout)


def ended(node: Node) -> BrokerError:
    return BrokerError(
        f"Broker {node.number} ended. The end of its log ({node.log}):\n{tail(node)}",
    )


def tail(node: Node, lines: int = 12) -> str:
    """The last lines that the broker wrote, the JVM's own ones first."""
    found: list[str] = []
    for file in (node.console, node.log):
        if file.exists():
            found += file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(found) or "(it wrote nothing)"
