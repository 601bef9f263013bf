"""Manage the one cluster that `producer-core broker start` leaves running; any later process can find it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from producer_core._internal import private_files
from producer_core._internal.file_lock import FileLock, lock_file
from producer_core._internal.home_folder import own_state_folder
from producer_core.brokers import kafka, layout, readiness, schema_registry
from producer_core.brokers import secure as access
from producer_core.brokers.kafka import Progress
from producer_core.brokers.layout import Node
from producer_core.brokers.processes import TrackedProcess
from producer_core.brokers.schema_registry import RegistryProcess
from producer_core.brokers.secure import Security
from producer_core.errors import BrokerError


@dataclass(frozen=True, slots=True)
class DetachedState:
    """Describe the cluster. With `temporary`, stopping it deletes its folder.

    `security` is set when it is secured, `registry` when it was started with a schema registry.
    """

    cluster_id: str
    folder: Path
    temporary: bool
    nodes: tuple[Node, ...]
    processes: tuple[TrackedProcess, ...]
    security: Security | None = None
    registry: RegistryProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def direct_servers(self) -> str:
        """Return the addresses of the plain-text listener for set-up, which needs no password."""
        return ",".join(node.direct_address for node in self.nodes)

    @property
    def alive(self) -> tuple[int, ...]:
        """Return the numbers of the nodes whose process is running."""
        pairs = zip(self.nodes, self.processes, strict=True)
        return tuple(node.number for node, process in pairs if process.alive)


def status() -> DetachedState | None:
    """Return the cluster that was started and not stopped, whether or not its brokers are running."""
    return _read()


def start_detached(
    *,
    nodes: int = 1,
    folder: Path | None = None,
    port: int | None = None,
    auto_create: bool = True,
    secure: bool = False,
    registry: bool = False,
    timeout: float = 90.0,
    progress: Progress = lambda text: None,
) -> tuple[DetachedState, bool]:
    """Start the cluster and return it when it responds, with True; return a running one with False.

    Without `folder` it starts empty, with a new cluster id, and stopping it deletes its data. With `registry`, a schema
    registry runs beside the brokers. Its schemas are kept in `folder`, or deleted with the data.
    """
    with _locked():
        if (found := _read()) and found.alive:
            return found, False
        if found:
            _end_registry(found, 5)
            _forget(found)
        state = _start(nodes, folder, port, auto_create, secure, timeout, progress)
        return (_with_registry(state, timeout, progress) if registry else state), True


def stop(timeout: float = 15.0) -> DetachedState | None:
    """Stop every broker with SIGTERM, and SIGKILL after `timeout`; return the cluster, or None when there was none."""
    with _locked():
        if found := _read():
            _end_registry(found, timeout)
            kafka.end_all(found.processes, timeout)
            _forget(found)
        return found


def _start(
    nodes: int,
    folder: Path | None,
    port: int | None,
    auto_create: bool,
    secure: bool,
    timeout: float,
    progress: Progress,
) -> DetachedState:
    installation = kafka.prepare(progress)
    home = (folder or _state_folder() / "data").absolute()
    if folder is None:
        shutil.rmtree(home, ignore_errors=True)  # left by a start that was killed
    kafka.check_folder(home, nodes)
    security = access.create_security(home / "security") if secure else None
    planned = kafka.advertised(layout.plan(nodes, home, port=port), access.advertise if security else None)
    cluster_id = layout.cluster_id_in(home) or layout.new_cluster_id()
    progress("formatting the storage")
    kafka.write_and_format(installation, planned, cluster_id, {}, auto_create=auto_create, security=security)
    progress(f"waiting for {nodes} broker{'s' if nodes > 1 else ''}")
    processes = tuple(kafka.launch(installation, node) for node in planned)
    state = DetachedState(cluster_id, home, folder is None, tuple(planned), processes, security)
    _write(state)  # before waiting, so that `stop` finds the brokers when this process is killed
    try:
        readiness.wait({n.number: n.direct_address for n in planned}, lambda: _check(state), timeout)
        if security is not None:
            access.write_client_configs(security, state.bootstrap_servers)
            access.create_users(state.direct_servers, security)
    except BaseException:
        kafka.end_all(processes, 5)
        _forget(state)
        raise
    return state


def _with_registry(state: DetachedState, timeout: float, progress: Progress) -> DetachedState:
    """Start a schema registry beside the running brokers. If it does not start, stop the brokers too."""
    try:
        folder = state.folder / "schema-registry"
        running = schema_registry.launch(folder, keep=not state.temporary, progress=progress)
        state = replace(state, registry=running)
        _write(state)
        progress("waiting for the schema registry")
        running.wait(timeout)
    except BaseException:
        _end_registry(state, 5)
        kafka.end_all(state.processes, 5)
        _forget(state)
        raise
    return state


def _end_registry(state: DetachedState, timeout: float) -> None:
    if state.registry is not None:
        state.registry.process.end(timeout)


def _check(state: DetachedState) -> None:
    for node in state.nodes:
        if node.number not in state.alive:
            raise kafka.ended(node)


def _forget(state: DetachedState) -> None:
    if state.temporary:
        shutil.rmtree(state.folder, ignore_errors=True)
    _file().unlink(missing_ok=True)


def _state_folder() -> Path:
    return own_state_folder("broker")


def _file() -> Path:
    return _state_folder() / "state.json"


def _locked() -> FileLock:
    """Allow one start or stop at a time; a second one waits."""
    return lock_file(_state_folder() / "lock")


def _write(state: DetachedState) -> None:
    text = json.dumps(
        {
            "cluster_id": state.cluster_id,
            "folder": str(state.folder),
            "temporary": state.temporary,
            "nodes": [_node_to_json(node) for node in state.nodes],
            "processes": [{"pid": process.pid, "started": process.started} for process in state.processes],
            "security": str(state.security.folder) if state.security else None,
            "registry": _registry_to_json(state.registry) if state.registry else None,
        },
        indent=2,
    )
    draft = _file().with_suffix(".new")
    private_files.write(draft, text)
    draft.replace(_file())


def _read() -> DetachedState | None:
    try:
        found: dict[str, Any] = json.loads(_file().read_text(encoding="utf-8"))
        return DetachedState(
            cluster_id=found["cluster_id"],
            folder=Path(found["folder"]),
            temporary=found["temporary"],
            nodes=tuple(_node_from_json(each) for each in found["nodes"]),
            processes=tuple(TrackedProcess(each["pid"], each["started"]) for each in found["processes"]),
            security=Security(Path(place)) if (place := found.get("security")) else None,
            registry=_registry_from_json(kept) if (kept := found.get("registry")) else None,
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BrokerError(
            f"The broker's state file {_file()} is damaged.",
            fix="Kill the Java processes, then delete the file.",
        ) from error


def _registry_to_json(registry: RegistryProcess) -> dict[str, Any]:
    process = registry.process
    return {
        "port": registry.port,
        "pid": process.pid,
        "started": process.started,
        "log": str(registry.log),
    }


def _registry_from_json(found: dict[str, Any]) -> RegistryProcess:
    process = TrackedProcess(found["pid"], found["started"])
    return RegistryProcess(found["port"], process, Path(found["log"]))


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "number": node.number,
        "port": node.port,
        "direct_port": node.direct_port,
        "controller_port": node.controller_port,
        "folder": str(node.folder),
        "advertised": node.advertised,
    }


def _node_from_json(found: dict[str, Any]) -> Node:
    return Node(**{**found, "folder": Path(found["folder"])})
