"""Apache Kafka's jars: resolved once with jgo, then kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from producer_core._internal import private_files
from producer_core.errors import BrokerError, MissingTool

VERSION = "4.3.1"
# Kafka's jars hold slf4j-api 1.7 and log4j 2.25.4 without the binding between the two, so nothing would be
# logged. Each is resolved alone: together, the binding's dependency management would pull in kafka-clients 3.9.
_COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)


def folder() -> Path:
    """$XDG_CACHE_HOME/producer-core/kafka-4.3.1, by default under ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "producer-core" / f"kafka-{VERSION}"


def fetch(progress: Callable[[str], None] = lambda text: None) -> Path:
    """The folder with every jar; downloaded (45 MB) when it is not there yet.

    Complete or absent, also when two processes ask at once or one is killed: jars are gathered in a folder
    beside it that is renamed at the end.
    """
    target = folder()
    if target.is_dir():
        return target
    private_files.make_folder(target.parent)
    with _locked(target.with_suffix(".lock")):
        if not target.is_dir():
            progress(f"fetching Apache Kafka {VERSION} (45 MB, once)")
            _gather(target)
    return target


def _gather(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kafka-") as name:
        scratch = Path(name)
        libs = scratch / "libs"
        libs.mkdir(mode=0o700)
        for jar in _resolve(scratch):
            shutil.copyfile(jar, libs / jar.name)
        libs.rename(target)


def _resolve(scratch: Path) -> Iterator[Path]:
    try:
        from jgo.env import EnvironmentBuilder, LinkStrategy
        from jgo.maven import MavenContext
    except ImportError as error:
        raise MissingTool(
            "The Python package jgo, which fetches Apache Kafka, is not installed.",
            fix="Install it with: pip install 'producer-core[broker]'",
        ) from error
    builder = EnvironmentBuilder(
        context=MavenContext(repo_cache=scratch / "repository"),
        cache_dir=scratch / "environments",
        link_strategy=LinkStrategy.HARD,
    )
    for coordinate in _COORDINATES:
        try:
            yield from builder.from_endpoint(coordinate).all_jars
        except (OSError, RuntimeError, ValueError) as error:  # requests' errors are OSErrors
            raise BrokerError(
                f"Apache Kafka {VERSION} could not be fetched: {error}.",
                fix="Check the network (HTTPS_PROXY is honoured), then run: producer-core broker fetch",
            ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
