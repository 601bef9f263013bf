"""The doctor: what stands between a producer and its broker, each finding with its fix."""

from __future__ import annotations

import platform
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from producer_core import __version__
from producer_core.cluster import Cluster, ClusterView, TopicView
from producer_core.config import DEFAULTS, ClientConfig, client_config
from producer_core.errors import BrokerError, ConfigError, ProducerError, StoreError

Level = Literal["ok", "warning", "problem"]

_GIB = 1 << 30
_CONNECT = 3.0
_SETTLED_PARTITIONERS = ("murmur2_random", "murmur2")
_NEEDED = {
    "WRITE": "to send",
    "DESCRIBE": "to see the topic",
    "READ": "to look whether a doubtful message is there",
}


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, in a sentence, and what to do where it is not well."""

    check: str
    level: Level
    text: str
    fix: str = ""


def examine(
    servers: str,
    settings: Mapping[str, Any],
    *,
    topics: Sequence[str] = (),
    store: Path | str | None = None,
    redis_url: str | None = None,
    timeout: float = 10.0,
) -> Iterator[Finding]:
    """Every finding, as it is made; whatever fails is a finding too."""
    yield from versions()
    yield from _kafka(servers, settings, topics, timeout)
    yield from check_store(store, time.time())
    yield from _redis(redis_url)
    yield java(_java_version())


def versions() -> Iterator[Finding]:
    """What is installed, for a report to others."""
    from confluent_kafka import libversion
    from confluent_kafka import version as client_version

    duckdb = import_module("duckdb").__version__
    client = client_version() if callable(client_version) else client_version
    text = (
        f"producer-core {__version__}, Python {platform.python_version()}, confluent-kafka {client}, "
        f"librdkafka {libversion()[0]}, DuckDB {duckdb}, {platform.system()} {platform.machine()}."
    )
    yield Finding("versions", "ok", text)


# Kafka


def _kafka(
    servers: str, settings: Mapping[str, Any], topics: Sequence[str], timeout: float
) -> Iterator[Finding]:
    try:
        config = client_config(servers, settings)
    except ConfigError as error:
        yield _of_error("settings", error)
        return
    yield from judge_settings(config)
    listening = [_listens(address) for address in config.bootstrap_servers.split(",")]
    yield from listening
    cluster = Cluster(config)
    try:
        view = cluster.view(timeout=timeout)
    except BrokerError as error:
        yield _of_error("cluster", error)
        return
    yield from judge_cluster(view)
    told = {finding.check for finding in listening}
    yield from (found for address in view.brokers.values() if (found := _listens(address)).check not in told)
    for topic in topics:
        yield from _topic(cluster, topic, view, config)
    if not topics:
        yield Finding(
            "topic", "ok", "No topic was named; --topic NAME checks its replicas and our permissions."
        )


def judge_settings(config: ClientConfig) -> Iterator[Finding]:
    """What the settings promise."""
    acks, partitioner = str(config.settings["acks"]), str(config.settings["partitioner"])
    if acks in ("all", "-1") and config.idempotent:
        yield Finding(
            "settings", "ok", "acks=all with idempotence: acknowledged means on every in-sync replica."
        )
    else:
        yield Finding(
            "settings", "warning", f"acks={acks}, idempotence {'on' if config.idempotent else 'off'}: an acknowledged "
            "message can be lost, or a retry written twice.", "Leave acks and enable.idempotence at their defaults."
        )  # fmt: skip
    if partitioner in _SETTLED_PARTITIONERS:
        yield Finding(
            "partitioner", "ok", f"{partitioner}: keys land where Java's and kafka-python's clients put them."
        )
    else:
        yield Finding(
            "partitioner", "warning", f"{partitioner}: the same key lands elsewhere than with Java's clients.",
            f"Where other producers write too, use partitioner={DEFAULTS['partitioner']}."
        )  # fmt: skip


def judge_cluster(view: ClusterView) -> Iterator[Finding]:
    """How many brokers there are."""
    brokers = ", ".join(f"{number} at {address}" for number, address in sorted(view.brokers.items()))
    if len(view.brokers) == 1:
        yield Finding(
            "cluster", "warning", f"Cluster {view.cluster_id} has one broker ({brokers}): when it is down, nothing "
            "can be sent; when its disk is lost, so are the messages.", "For production use three brokers or more."
        )  # fmt: skip
    else:
        yield Finding(
            "cluster", "ok", f"Cluster {view.cluster_id} has {len(view.brokers)} brokers: {brokers}."
        )


def judge_topic(topic: TopicView, *, largest_message: int) -> Iterator[Finding]:
    """What acks=all means on this topic, and how many brokers may fail."""
    check = f"topic {topic.name}"
    if topic.leaderless:
        yield Finding(
            check, "problem", f"{topic.leaderless} of {topic.partitions} partitions have no leader: nothing can be "
            "written there.", "Start the brokers that hold them."
        )  # fmt: skip
    yield _replicas(check, topic)
    if topic.in_sync < topic.replication_factor and not topic.leaderless:
        yield Finding(
            check, "warning", f"A partition has {topic.in_sync} of {topic.replication_factor} replicas in sync.",
            "See whether a broker is down or lags behind."
        )  # fmt: skip
    if topic.max_message_bytes is not None and topic.max_message_bytes < largest_message:
        yield Finding(
            check, "warning", f"It takes messages of {topic.max_message_bytes:,} bytes, our client of "
            f"{largest_message:,}: those between die at the broker.", f"Set message.max.bytes={topic.max_message_bytes}."
        )  # fmt: skip
    yield _permissions(check, topic)


def _replicas(check: str, topic: TopicView) -> Finding:
    copies, least = topic.replication_factor, topic.min_insync_replicas or 1
    start = (
        f"{topic.partitions} partition{'s' * (topic.partitions != 1)}, {copies} replica{'s' * (copies != 1)}"
    )
    if copies == 1:
        return Finding(
            check, "warning", f"{start}: acks=all means one disk. No broker may fail: writing stops, and a lost disk "
            "loses acknowledged messages.", "Give it three replicas and min.insync.replicas=2."
        )  # fmt: skip
    start = f"{start}, min.insync.replicas={least}"
    if least >= copies:
        return Finding(
            check, "warning", f"{start}: no broker may fail, or writing stops.", f"Set min.insync.replicas={copies - 1}."
        )  # fmt: skip
    if least == 1:
        return Finding(
            check, "warning", f"{start}: while the others are behind, acks=all means one disk. {_may_fail(copies - 1)} "
            "with writing going on, but an acknowledged message may then be lost.", "Set min.insync.replicas=2."
        )  # fmt: skip
    return Finding(
        check, "ok", f"{start}: {_may_fail(copies - least)} with writing going on, and an acknowledged message "
        f"survives the loss of {_brokers(least - 1)}."
    )  # fmt: skip


def _may_fail(number: int) -> str:
    return f"{_brokers(number)} may fail"


def _brokers(number: int) -> str:
    return f"{number} broker{'s' * (number != 1)}"


def _permissions(check: str, topic: TopicView) -> Finding:
    if topic.operations is None:
        return Finding(check, "ok", "The cluster does not tell our permissions.")
    missing = [name for name in _NEEDED if not topic.operations & {name, "ALL"}]
    if not missing:
        return Finding(check, "ok", "We may write, describe and read it.")
    level: Level = "problem" if "WRITE" in missing else "warning"
    reasons = ", ".join(f"{name} ({_NEEDED[name]})" for name in missing)
    return Finding(check, level, f"We lack {reasons}.", f"Grant {', '.join(missing)} on topic {topic.name}.")


def _topic(cluster: Cluster, topic: str, view: ClusterView, config: ClientConfig) -> Iterator[Finding]:
    if topic not in view.topics:
        yield Finding(
            f"topic {topic}", "problem", "It does not exist, or we may not see it.",
            "Create it, or grant DESCRIBE; some clusters create topics when they are first written to."
        )  # fmt: skip
        return
    try:
        yield from judge_topic(cluster.topic(topic), largest_message=config.max_message_bytes)
    except BrokerError as error:
        yield _of_error(f"topic {topic}", error, level="warning")


def _listens(address: str) -> Finding:
    """Whether a port can be reached at all, before TLS and credentials."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    host, port = (host, port) if host else (port, "9092")
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT):
            took = (time.monotonic() - began) * 1000
            return Finding(f"broker {host}:{port}", "ok", f"Its port can be reached ({took:.0f} ms).")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Finding(
            f"broker {host}:{port}", "problem", f"Its port cannot be reached: {reason}.",
            "Check the address, the firewall, and the broker's advertised.listeners."
        )  # fmt: skip


# what is on this machine


def check_store(path: Path | str | None, now: float) -> Iterator[Finding]:
    """Whether the store opens, and has room."""
    from producer_core.store import Store, default_path

    place = Path(path) if path else default_path()
    if not place.exists():
        folder = next(parent for parent in place.parents if parent.exists())
        yield Finding("store", "ok", f"{place} is not there yet; the first producer makes it.")
        yield judge_disk(place, shutil.disk_usage(folder).free)
        return
    try:
        store = Store.open(place, create=False)
        info, (age,) = store.info(), store.rows("data_age")
    except StoreError as error:
        yield _of_error("store", error)
        return
    dead = info.rows.get("dead_letters", 0)
    yield Finding("store", "ok", f"{place} opens: {info.bytes / (1 << 20):.1f} MiB, {dead:,} dead letters.")
    if info.network_file_system:
        yield Finding(
            "store", "problem", f"It is on {info.network_file_system}, where locks are unsafe.",
            "Put it on a local disk (--store or PRODUCER_CORE_STORE)."
        )  # fmt: skip
    yield judge_disk(place, shutil.disk_usage(place.parent).free)
    yield judge_clock(max(age["seen_at"] or 0.0, float(age["window_start"] or 0)), now)


def judge_disk(place: Path, free: int) -> Finding:
    """Whether the store's disk has room."""
    text = f"{free / _GIB:.1f} GiB free where {place.name} is."
    if free < _GIB // 4:
        return Finding(
            "disk", "problem", text, "Free some space: a full disk stops producing when dead letters pile up."
        )
    return Finding(
        "disk",
        "warning" if free < 2 * _GIB else "ok",
        text,
        "Free some space soon." if free < 2 * _GIB else "",
    )


def judge_clock(latest: float, now: float) -> Finding:
    """Whether our clock stands behind what others wrote."""
    ahead = latest - now
    if ahead > 5:
        return Finding(
            "clock", "warning", f"The store has data from {ahead:.0f} s in the future: this clock, or that of a "
            "producer, is wrong.", "Synchronise the clocks (timedatectl, chrony)."
        )  # fmt: skip
    return Finding("clock", "ok", "Nothing in the store is from the future.")


def java(version: int | None) -> Finding:
    """Java is needed for Spark and for a broker of our own only."""
    if version is None:
        return Finding(
            "java", "warning", "No Java runtime: the pipeline and `broker start` need one, sending does not.",
            "Install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless)."
        )  # fmt: skip
    if version < 17:
        return Finding(
            "java", "warning", f"Java {version}; the pipeline and `broker start` need 17.", "Install Java 17."
        )
    return Finding("java", "ok", f"Java {version}.")


def _java_version() -> int | None:
    program = shutil.which("java")
    if program is None:
        return None
    try:
        said = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else None


def _redis(url: str | None) -> Iterator[Finding]:
    if url is None:
        yield Finding(
            "redis", "ok", "Not asked for; --redis-url URL checks it. Without, de-duplication is per process."
        )
        return
    try:
        redis = import_module("redis")
    except ModuleNotFoundError:
        yield Finding(
            "redis", "problem", "The Python package redis is missing.", "pip install 'producer-core[redis]'"
        )
        return
    yield ping(
        lambda: redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3).info("server"),
        redis.RedisError,
    )


def ping(ask: Callable[[], Mapping[str, Any]], failure: type[Exception]) -> Finding:
    """Whether Redis answers."""
    try:
        return Finding("redis", "ok", f"Redis {ask().get('redis_version', '?')} answers.")
    except (failure, ValueError, OSError) as error:
        return Finding(
            "redis", "problem", f"Redis does not answer: {error}.", "Start it, or check the address."
        )


def _of_error(check: str, error: ProducerError, *, level: Level = "problem") -> Finding:
    return Finding(check, level, str(error).removesuffix(error.fix).strip(), error.fix)
