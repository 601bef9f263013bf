"""The delivery guarantee of a replay: exactly once if the cluster and the permissions allow it, else at least once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from producer_core.config import ClientConfig
from producer_core.errors import ProducerError
from producer_core.kafka import acls

TRANSACTIONAL_ID = "producer-core-replay-"
"""Prefix of the transactional id, followed by the operation id. A replay needs WRITE on ids with this prefix."""
WITHOUT_TRANSACTIONS = ("mockCluster", "embedded-")
"""Prefixes of the cluster ids of embedded brokers (librdkafka's mock cluster)."""
EMBEDDED = "the embedded broker has no fencing and no read_committed"
NO_CLIENT = "the sending process has no client settings for transactions"


@dataclass(frozen=True, slots=True)
class ReplayGuarantee:
    """`delivery` is None if it is not known. `why` tells why it is not exactly once, without a full stop."""

    delivery: Literal["exactly_once", "at_least_once"] | None = None
    why: str = ""


UNKNOWN = ReplayGuarantee()


def guarantee_from_cluster_id(cluster_id: str) -> ReplayGuarantee:
    """Return the guarantee as far as the cluster id determines it."""
    return (
        ReplayGuarantee("at_least_once", EMBEDDED) if cluster_id.startswith(WITHOUT_TRANSACTIONS) else UNKNOWN
    )


def never_compacts(cluster_id: str) -> bool:
    """Return whether this is an embedded broker, which keeps every record, so no old value replaces a newer one."""
    return cluster_id.startswith(WITHOUT_TRANSACTIONS)


def replay_guarantee(client: ClientConfig, topics: Sequence[str], cluster_id: str) -> ReplayGuarantee:
    """Return the guarantee that the brokers allow for these topics now; UNKNOWN if they do not respond."""
    if (known := guarantee_from_cluster_id(cluster_id)).delivery:
        return known
    try:
        missing = missing_permissions(client, topics)
    except ProducerError:
        return UNKNOWN
    return (
        ReplayGuarantee("at_least_once", f"the sending client lacks {missing}")
        if missing
        else ReplayGuarantee("exactly_once")
    )


def missing_permissions(client: ClientConfig, topics: Sequence[str]) -> str:
    """Return the permissions still needed for transactions, as text; raise BrokerError if no broker responds."""
    missing = acls.check(client, topics, feature="replay", transactional_id=TRANSACTIONAL_ID)
    return ", ".join(map(str, missing))
