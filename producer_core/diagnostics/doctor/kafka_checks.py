"""The brokers and topics, as the doctor judges them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from producer_core.config import DEFAULTS, ClientConfig, client_config
from producer_core.diagnostics.doctor.finding import DoctorFinding, Level, of_error
from producer_core.errors import BrokerError, ConfigError
from producer_core.kafka.acls import (
    OPTIONAL_FEATURES,
    TABLE,
    Feature,
    Permission,
    missing_permissions,
    required_permissions,
)
from producer_core.kafka.cluster import Cluster, ClusterView, TopicView
from producer_core.kafka.replication import judge

_CONNECT = 3.0
DEFAULT_FEATURES: tuple[Feature, ...] = ("send", "probe", "standing")
_LEAST = 1_000  # message.max.bytes, librdkafka's CONFIGURATION.md
_SETTLED_PARTITIONERS = ("murmur2_random", "murmur2")


def examine_kafka(
    servers: str,
    settings: Mapping[str, Any],
    topics: Sequence[str],
    timeout: float,
    *,
    features: Sequence[Feature] = DEFAULT_FEATURES,
    transactional_id: str | None = None,
) -> Iterator[DoctorFinding]:
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
        yield replace(found, fix=found.fix.replace("producer-core doctor shows details. ", ""))
        return
    yield from judge_cluster(view)
    told = {finding.check for finding in listening}
    yield from (found for address in view.brokers.values() if (found := _listens(address)).check not in told)
    for topic in topics:
        yield from _topic(cluster, topic, view, config, features)
    if transactional_id is not None:
        yield _transactions(cluster, transactional_id, timeout)
    if not topics:
        yield DoctorFinding(
            "topic", "ok", "No topic was named; --topic NAME checks its replicas and our permissions."
        )


def judge_settings(config: ClientConfig) -> Iterator[DoctorFinding]:
    """What the settings promise."""
    acks, partitioner = str(config.settings["acks"]), str(config.settings["partitioner"])
    if acks in ("all", "-1") and config.idempotent:
        yield DoctorFinding(
            "settings", "ok", "acks=all with idempotence: acknowledged means on every in-sync replica."
        )
    else:
        yield DoctorFinding(
            "settings", "warning", f"acks={acks}, idempotence {'on' if config.idempotent else 'off'}: an acknowledged "
            "message can be lost, or a retry written twice.", "Leave acks and enable.idempotence at their defaults."
        )  # fmt: skip
    if partitioner in _SETTLED_PARTITIONERS:
        yield DoctorFinding(
            "partitioner", "ok", f"{partitioner}: keys land where Java's and kafka-python's clients put them."
        )
    else:
        yield DoctorFinding(
            "partitioner", "warning", f"{partitioner}: the same key lands elsewhere than with Java's clients.",
            f"Where other producers write too, use partitioner={DEFAULTS['partitioner']}."
        )  # fmt: skip


def judge_cluster(view: ClusterView) -> Iterator[DoctorFinding]:
    """How many brokers there are."""
    brokers = ", ".join(f"{number} at {address}" for number, address in sorted(view.brokers.items()))
    if len(view.brokers) == 1:
        yield DoctorFinding(
            "cluster", "warning", f"Cluster {view.cluster_id} has one broker ({brokers}): when it is down, nothing "
            "can be sent; when its disk is lost, so are the messages.", "For production use three brokers or more."
        )  # fmt: skip
    else:
        yield DoctorFinding(
            "cluster", "ok", f"Cluster {view.cluster_id} has {len(view.brokers)} brokers: {brokers}."
        )


def judge_topic(
    topic: TopicView, *, largest_message: int, features: Sequence[Feature] = DEFAULT_FEATURES
) -> Iterator[DoctorFinding]:
    """What acks=all means on this topic, and how many brokers may fail."""
    check = f"topic {topic.name}"
    if topic.leaderless:
        yield DoctorFinding(
            check, "problem", f"{topic.leaderless} of {topic.partitions} partitions have no leader: nothing can be "
            "written there.", "Start the brokers that hold them."
        )  # fmt: skip
    yield _replicas(check, topic)
    if topic.in_sync < topic.replication_factor and not topic.leaderless:
        yield DoctorFinding(
            check, "warning", f"A partition has {topic.in_sync} of {topic.replication_factor} replicas in sync.",
            "See whether a broker is down or lags behind."
        )  # fmt: skip
    if topic.max_message_bytes is not None and topic.max_message_bytes < largest_message:
        yield DoctorFinding(
            check, "warning", f"It takes messages of {topic.max_message_bytes:,} bytes, our client of "
            f"{largest_message:,}: those between die at the broker.", _fitting(topic.max_message_bytes)
        )  # fmt: skip
    yield _permissions(check, topic.name, topic.operations, features)


def _fitting(largest: int) -> str:
    if largest < _LEAST:
        return (
            f"Raise the topic's max.message.bytes: a client's message.max.bytes is {_LEAST:,} at the least."
        )
    return f"Set message.max.bytes={largest}."


def _replicas(check: str, topic: TopicView) -> DoctorFinding:
    found = judge(topic)
    return DoctorFinding(check, "ok" if found.strength == "sound" else "warning", found.text, found.fix)


def _permissions(
    check: str, topic: str, operations: frozenset[str] | None, features: Sequence[Feature]
) -> DoctorFinding:
    if operations is None:
        return DoctorFinding(check, "ok", "The cluster does not tell our permissions.")
    needs: dict[str, Permission] = {}
    for need in (need for feature in features for need in required_permissions(feature, [topic])):
        known = needs.setdefault(need.operation, need)
        if need.reason not in known.reason:
            needs[need.operation] = replace(known, reason=f"{known.reason}, and {need.reason}")
    asked = [operation.lower().replace("_", " ") for operation in needs]
    missing = missing_permissions(list(needs.values()), {topic: operations})
    if not missing:
        return DoctorFinding(check, "ok", f"We may {', '.join(asked[:-1])} and {asked[-1]} it.")
    names = ", ".join(need.operation for need in missing)
    reasons = ", ".join(f"{need.operation} ({need.reason})" for need in missing)
    text = f"We lack {reasons}."
    if "standing" in features and any(need.operation in ("READ", "DESCRIBE") for need in missing):
        text += " The check for lost acknowledged records after a leader election is off."
    return DoctorFinding(check, _weight(missing, features), text, f"Grant {names} on topic {topic}.")


def _weight(missing: Sequence[Permission], features: Sequence[Feature]) -> Level:
    """A problem when something cannot be delivered without them."""
    delivering = {
        need.operation for feature in features if feature not in OPTIONAL_FEATURES for need in TABLE[feature]
    }
    return "problem" if delivering & {need.operation for need in missing} else "warning"


def _transactions(cluster: Cluster, transactional_id: str, timeout: float) -> DoctorFinding:
    check = f"transactional id {transactional_id}"
    try:
        if cluster.may_transact(f"{transactional_id}-check", timeout=timeout):
            return DoctorFinding(check, "ok", "We may use transactional ids that begin like this.")
    except BrokerError as error:
        return of_error(check, error)
    return DoctorFinding(
        check, "problem", "We lack WRITE on the transactional ids that begin like this (to commit, and to fence).",
        f"Grant WRITE on transactional ids with the prefix {transactional_id}."
    )  # fmt: skip


def _topic(
    cluster: Cluster, topic: str, view: ClusterView, config: ClientConfig, features: Sequence[Feature]
) -> Iterator[DoctorFinding]:
    check = f"topic {topic}"
    try:
        if topic in view.topics:
            found = cluster.topic(topic)
            yield from judge_topic(found, largest_message=config.max_message_bytes, features=features)
        elif (allowed := cluster.operations([topic])[topic]) is not None:
            yield DoctorFinding(check, "problem", "We may not even see whether it exists.")
            yield _permissions(check, topic, allowed, features)
        else:
            yield DoctorFinding(
                check, "problem", "It does not exist.",
                "Create it; some clusters create topics when they are first written to."
            )  # fmt: skip
    except BrokerError as error:
        yield of_error(check, error, level="warning")


def _listens(address: str) -> DoctorFinding:
    """Whether a port can be reached at all, before TLS and credentials."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    host, port = (host, port) if host else (port, "9092")
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT):
            took = (time.monotonic() - began) * 1000
            return DoctorFinding(f"broker {host}:{port}", "ok", f"Its port can be reached ({took:.0f} ms).")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return DoctorFinding(
            f"broker {host}:{port}", "problem", f"Its port cannot be reached: {reason}.",
            "Check the address, the firewall, and the broker's advertised.listeners."
        )  # fmt: skip
