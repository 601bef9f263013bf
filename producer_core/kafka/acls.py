"""The permissions that each feature needs on a cluster with access control, and how to find missing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from producer_core.config import ClientConfig
from producer_core.errors import BrokerError
from producer_core.kafka.cluster import Cluster

Feature = Literal["send", "probe", "standing", "replication", "exactly_once", "replay", "telemetry"]
Resource = Literal["topic", "group", "transactional_id", "cluster"]

FEATURES: tuple[Feature, ...] = get_args(Feature)


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation on a resource with this name (`*`: any name). `prefixed` means all names with this prefix.

    `reason` states what the permission is for. Comparisons ignore it.
    """

    resource: Resource
    name: str
    operation: str
    prefixed: bool = False
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        kind = self.resource.replace("_", " ")
        return f"{self.operation} on {kind} {self.name}{'*' if self.prefixed else ''}"


@dataclass(frozen=True, slots=True)
class PermissionNeed:
    """A row of the table: what a feature needs on each of its topics, or on its transactional ids."""

    resource: Resource
    operation: str
    reason: str


_WRITE = PermissionNeed("topic", "WRITE", "to send")
_DESCRIBE = PermissionNeed("topic", "DESCRIBE", "to read the topic's metadata and watermarks")
_READ = PermissionNeed("topic", "READ", "to check whether an ambiguous message is on the topic")
_CONFIGS = PermissionNeed("topic", "DESCRIBE_CONFIGS", "to read min.insync.replicas and max.message.bytes")
_TRANSACT = PermissionNeed("transactional_id", "WRITE", "to commit, and to fence an earlier process")
_REPLAY = PermissionNeed("transactional_id", "WRITE", "to replay exactly once; without it, at least once")
_READ_BACK = PermissionNeed("topic", "READ", "to read back the records of the last transaction")

TABLE: Mapping[Feature, tuple[PermissionNeed, ...]] = MappingProxyType(
    {
        "send": (_WRITE, _DESCRIBE),
        "probe": (_READ, _DESCRIBE),
        "standing": (
            PermissionNeed("topic", "READ", "to check that the log still has its acknowledged records"),
            _DESCRIBE,
        ),
        "replication": (_DESCRIBE, _CONFIGS),
        "exactly_once": (_WRITE, _DESCRIBE, _READ_BACK, _TRANSACT),
        "replay": (_WRITE, _DESCRIBE, _READ, _REPLAY),
        "telemetry": (PermissionNeed("topic", "WRITE", "to publish statistics"), _DESCRIBE),
    }
)
"""WRITE and READ include DESCRIBE. Since Kafka 2.8 idempotence needs no permission; before, IDEMPOTENT_WRITE on the cluster."""


OPTIONAL_FEATURES: frozenset[Feature] = frozenset({"probe", "standing", "replication"})
"""Features that only collect information. Messages are delivered without them."""


def required_permissions(
    feature: Feature, topics: Sequence[str], *, transactional_id: str | None = None
) -> list[Permission]:
    """Return the permissions to grant for a feature. Transactional ids are prefixed, because each shard has its own."""
    permissions: list[Permission] = []
    for need in TABLE[feature]:
        if need.resource == "topic":
            permissions += [
                Permission("topic", topic, need.operation, reason=need.reason) for topic in topics
            ]
        elif transactional_id is not None:
            permissions.append(
                Permission(need.resource, transactional_id, need.operation, prefixed=True, reason=need.reason)
            )
    return permissions


def missing_permissions(
    needs: Sequence[Permission], operations: Mapping[str, frozenset[str] | None]
) -> list[Permission]:
    """Return the needs on topics that the allowed operations do not cover. None: the cluster does not report them."""
    return [
        need
        for need in needs
        if need.resource == "topic"
        and (allowed := operations.get(need.name)) is not None
        and not allowed & {need.operation, "ALL"}
    ]


def check(
    config: ClientConfig,
    topics: Sequence[str],
    *,
    feature: Feature,
    transactional_id: str | None = None,
    timeout: float = 10.0,
) -> list[Permission]:
    """Return the permissions that the feature lacks on these topics, according to the brokers.

    Raise BrokerError when no broker responds. A topic that does not exist lacks no permission. The transactional id is
    tested with another id that has it as prefix, so that no running producer is fenced. This requires a prefixed grant.
    """
    needs = required_permissions(feature, topics, transactional_id=transactional_id)
    cluster = Cluster(config)
    missing = missing_permissions(needs, cluster.operations(topics, timeout=timeout))
    return missing + [
        need
        for need in needs
        if need.resource == "transactional_id"
        and not cluster.may_transact(f"{need.name}-check", timeout=timeout)
    ]


def require(
    config: ClientConfig,
    topics: Sequence[str],
    *,
    feature: Feature,
    transactional_id: str | None = None,
    timeout: float = 10.0,
) -> None:
    """Raise BrokerError with all permissions that `check` finds missing."""
    missing = check(config, topics, feature=feature, transactional_id=transactional_id, timeout=timeout)
    if missing:
        raise BrokerError(
            f"{feature} lacks permissions: {'; '.join(f'{each} ({each.reason})' for each in missing)}.",
            fix=f"Grant {', '.join(str(each) for each in missing)}. producer-core doctor --feature {feature} shows "
            "the permissions that are still missing.",
        )
