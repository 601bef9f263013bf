"""The brokers and topics, as the doctor judges them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from producer_core.cluster import Cluster, ClusterView, TopicView
from producer_core.config import DEFAULTS, ClientConfig, client_config
from producer_core.doctor.finding import Finding, Level, of_error
from producer_core.errors import BrokerError, ConfigError

_CONNECT = 3.0
_SETTLED_PARTITIONERS = ("murmur2_random", "murmur2")
_NEEDED = {
    "WRITE": "to send",
    "DESCRIBE": "to see the topic",
    "READ": "to look whether a doubtful message is there",
}


def examine_kafka(
    servers: str, settings: Mapping[str, Any], topics: Sequence[str], timeout: float
) -> Iterator[Finding]:
    try:
        config = client_config(servers, settings)
    except ConfigError as error:
        yield of_error("settings", error)
        return
    yield from judge_settings(config)
    listening = [_listens(address) for address in config.bootstrap_servers.split(",")]
    yield from listening
    cluster = Cluster(config)
    try:
        view = cluster.view(timeout=timeout)
    except BrokerError as error:
        found = of_error("cluster", error)
        yield replace(found, fix=found.fix.replace("producer-core doctor looks closer, ", ""))
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
        yield of_error(f"topic {topic}", error, level="warning")


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
