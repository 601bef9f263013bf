"""The checks of settings, brokers, topics and permissions."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.config import DEFAULTS, ClientConfig, client_config, uses_tokens
from producer_core.diagnostics.doctor.finding import DoctorFinding, Level, of_error
from producer_core.errors import BrokerError, ConfigError, TokenUnavailable
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
from producer_core.kafka.token_errors import source_of

_CONNECT_TIMEOUT = 3.0
DEFAULT_FEATURES: tuple[Feature, ...] = ("send", "probe", "standing")
_MIN_MESSAGE_BYTES = 1_000  # the minimum of message.max.bytes in librdkafka's CONFIGURATION.md
_JAVA_PARTITIONERS = ("murmur2_random", "murmur2")


def check_kafka(
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
    yield from check_settings(config)
    bootstrap = [_port(address) for address in config.bootstrap_servers.split(",")]
    yield from bootstrap
    cluster = Cluster(config)
    try:
        view = cluster.view(timeout=timeout)
    except TokenUnavailable as error:
        yield of_error("token", error)
        return
    except BrokerError as error:
        found = of_error("cluster", error)
        yield replace(found, fix=found.fix.replace("producer-core doctor shows details. ", ""))
        return
    if uses_tokens(config.settings):
        text = f"{source_of(config.settings)} returned a token, and the brokers accepted it."
        yield DoctorFinding("token", "ok", text)
    yield from check_cluster(view)
    known = {finding.check for finding in bootstrap}
    yield from (found for address in view.brokers.values() if (found := _port(address)).check not in known)
    for topic in topics:
        yield from _topic(cluster, topic, view, config, features)
    if transactional_id is not None:
        yield _transactions(cluster, transactional_id, timeout)
    if not topics:
        yield DoctorFinding(
            "topic",
            "ok",
            "No topic was specified; --topic NAME checks its replicas and the permissions on it.",
        )


def check_settings(config: ClientConfig) -> Iterator[DoctorFinding]:
    """Check the guarantees of the settings."""
    acks, partitioner = str(config.settings["acks"]), str(config.settings["partitioner"])
    if acks in ("all", "-1") and config.idempotent:
        yield DoctorFinding(
            "settings",
            "ok",
            "acks=all with idempotence: an acknowledged message is on every in-sync replica.",
        )
    else:
        yield DoctorFinding(
            "settings", "warning", f"acks={acks}, idempotence {'on' if config.idempotent else 'off'}: an acknowledged "
            "message can be lost, or a retry can write it twice.", "Use the defaults for acks and enable.idempotence."
        )  # fmt: skip
    if partitioner in _JAVA_PARTITIONERS:
        yield DoctorFinding(
            "partitioner",
            "ok",
            f"{partitioner}: keys map to the same partitions as with Java and kafka-python.",
        )
    else:
        yield DoctorFinding(
            "partitioner", "warning", f"{partitioner}: keys map to different partitions than with Java clients.",
            f"If other producers write to the topic too, use partitioner={DEFAULTS['partitioner']}."
        )  # fmt: skip


def check_cluster(view: ClusterView) -> Iterator[DoctorFinding]:
    """Check the number of brokers."""
    brokers = ", ".join(f"{number} at {address}" for number, address in sorted(view.brokers.items()))
    if len(view.brokers) == 1:
        yield DoctorFinding(
            "cluster", "warning", f"Cluster {view.cluster_id} has one broker ({brokers}): while it is down, nothing "
            "can be sent; if its disk is lost, the messages are lost.", "Use at least three brokers in production."
        )  # fmt: skip
    else:
        yield DoctorFinding(
            "cluster", "ok", f"Cluster {view.cluster_id} has {len(view.brokers)} brokers: {brokers}."
        )


def check_topic(
    topic: TopicView, *, largest_message: int, features: Sequence[Feature] = DEFAULT_FEATURES
) -> Iterator[DoctorFinding]:
    """Check the guarantees of acks=all on this topic, and the permissions on it."""
    check = f"topic {topic.name}"
    if topic.leaderless:
        verb = "has" if topic.leaderless == 1 else "have"
        yield DoctorFinding(
            check, "problem", f"{topic.leaderless} of {plural(topic.partitions, 'partition')} {verb} no leader and cannot be "
            "written to.", f"Start the brokers that hold {'this partition' if topic.leaderless == 1 else 'these partitions'}."
        )  # fmt: skip
    yield _replicas(check, topic)
    if topic.in_sync < topic.replication_factor and not topic.leaderless:
        yield DoctorFinding(
            check, "warning", f"A partition has {topic.in_sync} of {topic.replication_factor} replicas in sync.",
            "Check whether a broker is down or lagging."
        )  # fmt: skip
    if topic.max_message_bytes is not None and topic.max_message_bytes < largest_message:
        yield DoctorFinding(
            check, "warning", f"The topic accepts messages up to {topic.max_message_bytes:,} bytes, the client up to "
            f"{largest_message:,}: the broker rejects messages in between.", _size_fix(topic.max_message_bytes)
        )  # fmt: skip
    yield _permissions(check, topic.name, topic.operations, features)


def _size_fix(largest: int) -> str:
    if largest < _MIN_MESSAGE_BYTES:
        return (
            f"Raise the topic's max.message.bytes: the minimum of a client's message.max.bytes is "
            f"{_MIN_MESSAGE_BYTES:,}."
        )
    return f"Set message.max.bytes={largest}."


def _replicas(check: str, topic: TopicView) -> DoctorFinding:
    found = judge(topic)
    return DoctorFinding(check, "ok" if found.strength == "sound" else "warning", found.text, found.fix)


def _permissions(
    check: str, topic: str, operations: frozenset[str] | None, features: Sequence[Feature]
) -> DoctorFinding:
    if operations is None:
        return DoctorFinding(check, "ok", "The cluster does not report permissions.")
    needs: dict[str, Permission] = {}
    for need in (need for feature in features for need in required_permissions(feature, [topic])):
        known = needs.setdefault(need.operation, need)
        if need.reason not in known.reason:
            needs[need.operation] = replace(known, reason=f"{known.reason}, and {need.reason}")
    missing = missing_permissions(list(needs.values()), {topic: operations})
    if not missing:
        return DoctorFinding(check, "ok", f"Permissions granted: {', '.join(needs)}.")
    names = join_names(need.operation for need in missing)
    reasons = ", ".join(f"{need.operation} ({need.reason})" for need in missing)
    text = f"Permissions missing: {reasons}."
    if "standing" in features and any(need.operation in ("READ", "DESCRIBE") for need in missing):
        text += " The check for lost acknowledged records after a leader election is disabled."
    return DoctorFinding(check, _level(missing, features), text, f"Grant {names} on topic {topic}.")


def _level(missing: Sequence[Permission], features: Sequence[Feature]) -> Level:
    """Return "problem" if delivery needs one of the permissions."""
    delivering = {
        need.operation for feature in features if feature not in OPTIONAL_FEATURES for need in TABLE[feature]
    }
    return "problem" if delivering & {need.operation for need in missing} else "warning"


def _transactions(cluster: Cluster, transactional_id: str, timeout: float) -> DoctorFinding:
    check = f"transactional id {transactional_id}"
    try:
        if cluster.may_transact(f"{transactional_id}-check", timeout=timeout):
            return DoctorFinding(check, "ok", "Transactional ids with this prefix are permitted.")
    except BrokerError as error:
        return of_error(check, error)
    return DoctorFinding(
        check, "problem", "WRITE on transactional ids with this prefix is missing (to commit, and to fence).",
        f"Grant WRITE on transactional ids with the prefix {transactional_id}."
    )  # fmt: skip


def _topic(
    cluster: Cluster, topic: str, view: ClusterView, config: ClientConfig, features: Sequence[Feature]
) -> Iterator[DoctorFinding]:
    check = f"topic {topic}"
    try:
        if topic in view.topics:
            found = cluster.topic(topic)
            yield from check_topic(found, largest_message=config.max_message_bytes, features=features)
        elif (allowed := cluster.operations([topic])[topic]) is not None:
            yield DoctorFinding(
                check, "problem", "The permissions do not allow checking whether the topic exists."
            )
            yield _permissions(check, topic, allowed, features)
        else:
            yield DoctorFinding(
                check, "problem", "The topic does not exist.",
                "Create it. Some clusters create topics automatically on first use."
            )  # fmt: skip
    except BrokerError as error:
        yield of_error(check, error, level="warning")


def _port(address: str) -> DoctorFinding:
    """Check whether the port accepts a TCP connection, before TLS and credentials."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    host, port = (host, port) if host else (port, "9092")
    started = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT):
            milliseconds = (time.monotonic() - started) * 1000
            return DoctorFinding(
                f"broker {host}:{port}", "ok", f"The port is reachable ({milliseconds:.0f} ms)."
            )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return DoctorFinding(
            f"broker {host}:{port}", "problem", f"The port is not reachable: {reason}.",
            "Check the address, the firewall, and advertised.listeners of the broker."
        )  # fmt: skip
