"""The permissions that each feature needs on a cluster with access control, and which of them are missing."""

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
    """An operation on a resource of this name, `*` for every one; `prefixed`: on all that begin with it.

    `reason` says what a lack of it breaks, and does not count in comparisons.
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
    """A row of the table: what a feature must be allowed on each of its topics, or on its transactional ids."""

    resource: Resource
    operation: str
    reason: str


_WRITE = PermissionNeed("topic", "WRITE", "to send")
_SEE = PermissionNeed("topic", "DESCRIBE", "to see the topic and its watermarks")
_LOOK = PermissionNeed("topic", "READ", "to look whether a doubtful message is there")
_CONFIGS = PermissionNeed("topic", "DESCRIBE_CONFIGS", "to see min.insync.replicas and max.message.bytes")
_TRANSACT = PermissionNeed("transactional_id", "WRITE", "to commit, and to fence an earlier process")
_REPLAY = PermissionNeed("transactional_id", "WRITE", "to replay exactly once; without it, at least once")
_READ_BACK = PermissionNeed("topic", "READ", "to read back what the last transaction left")

TABLE: Mapping[Feature, tuple[PermissionNeed, ...]] = MappingProxyType(
    {
        "send": (_WRITE, _SEE),
        "probe": (_LOOK, _SEE),
        "standing": (
            PermissionNeed("topic", "READ", "to see whether the log still holds what it acknowledged"),
            _SEE,
        ),
        "replication": (_SEE, _CONFIGS),
        "exactly_once": (_WRITE, _SEE, _READ_BACK, _TRANSACT),
        "replay": (_WRITE, _SEE, _LOOK, _REPLAY),
        "telemetry": (PermissionNeed("topic", "WRITE", "to publish statistics"), _SEE),
    }
)
"""WRITE and READ bring DESCRIBE. Idempotence needs no permission of its own since Kafka 2.8; before, IDEMPOTENT_WRITE on the cluster."""


MERELY_LOOK: frozenset[Feature] = frozenset({"probe", "standing", "replication"})
"""Features without which messages are still delivered, only with less known of them."""


def needed(
    feature: Feature, topics: Sequence[str], *, transactional_id: str | None = None
) -> list[Permission]:
    """What to grant for a feature on these topics. Transactional ids by prefix: each shard has its own."""
    found: list[Permission] = []
    for need in TABLE[feature]:
        if need.resource == "topic":
            found += [Permission("topic", topic, need.operation, reason=need.reason) for topic in topics]
        elif transactional_id is not None:
            found.append(
                Permission(need.resource, transactional_id, need.operation, prefixed=True, reason=need.reason)
            )
    return found


def lacking(needs: Sequence[Permission], operations: Mapping[str, frozenset[str] | None]) -> list[Permission]:
    """Which of the needs on topics the allowed operations leave open; None: the cluster does not tell."""
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
    """What the feature lacks on these topics, as the brokers themselves say; BrokerError when none answers.

    A topic that does not exist lacks nothing yet. The transactional id is tried with a name of our own that
    begins with it, so that no running producer is fenced: it takes a grant by prefix.
    """
    needs = needed(feature, topics, transactional_id=transactional_id)
    cluster = Cluster(config)
    missing = lacking(needs, cluster.operations(topics, timeout=timeout))
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
    """BrokerError with the whole list when something is missing; as `check` otherwise."""
    missing = check(config, topics, feature=feature, transactional_id=transactional_id, timeout=timeout)
    if missing:
        raise BrokerError(
            f"{feature} lacks permissions: {'; '.join(f'{each} ({each.reason})' for each in missing)}.",
            fix=f"Grant {', '.join(str(each) for each in missing)}; producer-core doctor --feature {feature} shows "
            "what is still missing.",
        )
