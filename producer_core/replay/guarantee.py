"""What a replay promises: exactly once where the cluster and the permissions allow it, else at least once, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from producer_core.config import ClientConfig
from producer_core.errors import ProducerError
from producer_core.kafka import acls

TRANSACTIONAL_ID = "producer-core-replay-"
"""Followed by the operation's id: WRITE on transactional ids with this prefix is what a replay needs."""
WITHOUT_TRANSACTIONS = ("mockCluster", "embedded-")
"""Beginnings of the cluster ids of librdkafka's mock cluster."""
EMBEDDED = "the embedded broker has no fencing and no read_committed"
NO_CLIENT = "the process that sends it has no client settings for transactions"


@dataclass(frozen=True, slots=True)
class ReplayGuarantee:
    """`delivery` None: nobody could say. `why` it is not exactly once, without a full stop."""

    delivery: Literal["exactly_once", "at_least_once"] | None = None
    why: str = ""


UNKNOWN = ReplayGuarantee()


def beforehand(cluster_id: str) -> ReplayGuarantee:
    """As far as the name of the cluster says it."""
    return (
        ReplayGuarantee("at_least_once", EMBEDDED) if cluster_id.startswith(WITHOUT_TRANSACTIONS) else UNKNOWN
    )


def never_compacts(cluster_id: str) -> bool:
    """Whether this is an embedded broker: it keeps every record, so no old value replaces a newer one for good."""
    return cluster_id.startswith(WITHOUT_TRANSACTIONS)


def replay_guarantee(client: ClientConfig, topics: Sequence[str], cluster_id: str) -> ReplayGuarantee:
    """What holds for these topics now, as the brokers say; never raises for what they answer."""
    if (known := beforehand(cluster_id)).delivery:
        return known
    try:
        missing = lacking(client, topics)
    except ProducerError:
        return UNKNOWN
    return (
        ReplayGuarantee("at_least_once", f"its client lacks {missing}")
        if missing
        else ReplayGuarantee("exactly_once")
    )


def lacking(client: ClientConfig, topics: Sequence[str]) -> str:
    """What must be granted for transactions, in words; empty when nothing. BrokerError when nobody answers."""
    missing = acls.check(client, topics, feature="replay", transactional_id=TRANSACTIONAL_ID)
    return ", ".join(map(str, missing))
