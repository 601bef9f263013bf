"""Apache Kafka's jars: resolved once, then kept in the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from producer_core.brokers import maven
from producer_core.errors import BrokerError

VERSION = "4.3.1"
# Kafka's jars contain slf4j-api 1.7 and log4j 2.25.4 without the binding between the two; without it, Kafka logs
# nothing. The binding is resolved alone because its dependency management would pull in kafka-clients 3.9.
_GROUPS = (
    [f"org.apache.kafka:kafka_2.13:{VERSION}"],
    ["org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"],
)


def folder() -> Path:
    """Return $XDG_CACHE_HOME/producer-core/kafka-4.3.1, by default under ~/.cache."""
    return maven.cache_folder() / f"kafka-{VERSION}"


def fetch(progress: Callable[[str], None] = lambda text: None) -> Path:
    """Return the folder with every jar; download it (45 MB) when it is absent or incomplete."""
    target = folder()
    try:
        maven.fetch_jars(
            target, *_GROUPS, extra="broker",
            before=lambda: progress(f"fetching Apache Kafka {VERSION} (45 MB, once)"),
        )  # fmt: skip
    except maven.RESOLVE_ERRORS as error:
        raise BrokerError(
            f"Apache Kafka {VERSION} could not be fetched: {error}.",
            fix="Check the network (HTTPS_PROXY is used if set), then run: producer-core broker fetch",
        ) from error
    return target
