"""Run a real schema registry with Confluent's API on this machine: Apicurio Registry, from its archive.

    with schema_registry.start() as registry:
        client = SchemaRegistryClient({"url": registry.url})

It keeps its schemas in memory. It ends with the `with` block, and when this process dies for any reason.
"""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Self

from producer_core.brokers import maven
from producer_core.brokers.guard import BrokerGuard
from producer_core.brokers.java import find_java
from producer_core.brokers.ports import free_ports
from producer_core.brokers.processes import TrackedProcess, spawn
from producer_core.errors import BrokerError

VERSION = "3.0.9"  # the last version for Java 17
_ARCHIVE = maven.Archive(
    "io.apicurio", "apicurio-registry-app", VERSION, classifier="all", packaging="tar.gz",
    sha256="2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
)  # fmt: skip
_RUNNER = f"apicurio-registry-app-{VERSION}-runner.jar"
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # 250 MiB, 5 s of CPU per start


def folder() -> Path:
    """Return $XDG_CACHE_HOME/producer-core/apicurio-registry-3.0.9, by default under ~/.cache."""
    return maven.cache_folder() / f"apicurio-registry-{VERSION}"


def fetch(progress: Callable[[str], None] = lambda text: None) -> Path:
    """Return the folder of the registry; download it (109 MB) when it is absent."""
    target = folder()
    try:
        maven.fetch_archive(
            target, _ARCHIVE, extra="broker",
            before=lambda: progress(f"fetching Apicurio Registry {VERSION} (109 MB, once)"),
        )  # fmt: skip
    except maven.RESOLVE_ERRORS as error:
        raise BrokerError(
            f"Apicurio Registry {VERSION} could not be fetched: {error}.",
            fix="Check the network, then run: producer-core broker fetch --schema-registry",
        ) from error
    return target


@dataclass(frozen=True, slots=True)
class RegistryProcess:
    """The process of a registry, its port and its log. Another process can track it by these values."""

    port: int
    process: TrackedProcess
    log: Path

    @property
    def url(self) -> str:
        """Return the address for `schema.registry.url`."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def wait(self, timeout: float) -> None:
        """Wait until the registry responds. Raise BrokerError if it ends or `timeout` seconds pass."""
        deadline, pause = monotonic() + timeout, Event()
        while not self.responds():
            if not self.process.alive or monotonic() > deadline:
                last = self.log.read_text(errors="replace").splitlines()[-1:]
                raise BrokerError(
                    f"The schema registry did not start: {''.join(last) or 'no output'}.",
                    fix=f"Its log is {self.log}.",
                )
            pause.wait(0.1)

    def responds(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):  # noqa: S310  our own address
                return True
        except (OSError, urllib.error.URLError):
            return False


def launch(
    folder: Path, *, port: int | None = None, keep: bool = False, progress: Callable[[str], None]
) -> RegistryProcess:
    """Start the process of a registry, which does not end with this process. Its log is in `folder`.

    With `keep`, its schemas are in `folder` too, and a later start continues with them; otherwise they are in memory.
    """
    java, home = find_java("Apicurio Registry").program, fetch(progress)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    [free] = free_ports(1, wanted=[] if port is None else [port])
    database = [f"-Dapicurio.datasource.url=jdbc:h2:file:{folder / 'schemas'}"] if keep else []
    log = folder / "registry.log"
    process = spawn(
        [
            java, *_JVM, "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={free}",
            "-Dquarkus.http.access-log.enabled=false", *database, "-jar", str(home / _RUNNER),
        ],
        output=log,
    )  # fmt: skip
    return RegistryProcess(free, process, log)


def start(
    *, port: int | None = None, timeout: float = 300.0, progress: Callable[[str], None] = lambda text: None
) -> SchemaRegistry:
    """Start a registry and wait until it responds, which takes about 10 s. Raise BrokerError after `timeout` seconds."""
    registry = SchemaRegistry(port, progress)
    try:
        registry.running.wait(timeout)
    except BaseException:
        registry.stop()
        raise
    return registry


class SchemaRegistry:
    """A registry that ends with this process. `url` is the address for `schema.registry.url`, `process` the JVM."""

    def __init__(self, port: int | None, progress: Callable[[str], None]) -> None:
        scratch = Path(tempfile.mkdtemp(prefix="producer-core-registry-"))
        self._guard = BrokerGuard(scratch)
        self._finalizer = weakref.finalize(self, self._guard.close)
        self.running = launch(scratch, port=port, progress=progress)
        self._guard.watch(self.running.process)

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def process(self) -> TrackedProcess:
        return self.running.process

    def stop(self) -> None:
        self.process.end()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
