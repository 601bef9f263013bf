"""How long a topic keeps what a probe, or a consumer that skips duplicates, looks for before a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from producer_core._internal.time_span import span
from producer_core.kafka.topic_retention import TopicRetention
from producer_core.replay.broker_check import BrokerCheck

if TYPE_CHECKING:
    from producer_core.dlq.objectives import TopicDecisions
    from producer_core.store import Store

NOT_ASKED = "unknown: the cluster was not asked"
NOT_NEEDED = "not needed"

TopicOfCluster = tuple[str, str]
"""A cluster id and a topic."""


@dataclass(frozen=True, slots=True)
class ProbeTime:
    """The time in seconds until the topic may have removed a record, below 0 afterwards; None if `text` tells why not."""

    left: float | None
    text: str


def checked_retentions(store: Store) -> dict[TopicOfCluster, TopicRetention]:
    """Return what the latest dry runs of this store read about topics. Nothing is asked."""
    found: dict[TopicOfCluster, TopicRetention] = {}
    for row in store.rows("operations_checked"):
        for topic in _checked(row["checked"]).topics:
            known = TopicRetention(topic.cleanup_policy, topic.retention_ms)
            if topic.partitions and known.cleanup_policy is not None:
                found.setdefault((row["cluster_id"], topic.topic), known)
    return found


def probe_time(one: TopicDecisions, known: Mapping[TopicOfCluster, TopicRetention], now: float) -> ProbeTime:
    """Return how long the oldest pending record that may be on its topic stays there, if it was written.

    Records have the time of their acceptance, which is also the time that `retention.ms` counts from.
    """
    if one.doubtful_at is None:
        return ProbeTime(None, NOT_NEEDED)
    if len(one.clusters) != 1 or not one.clusters[0]:
        return ProbeTime(None, "unknown: the dead letters are of several or unknown clusters")
    retention = known.get((one.clusters[0], one.topic))
    if retention is None:
        return ProbeTime(None, NOT_ASKED)
    if retention.compacts:
        return ProbeTime(None, "compaction can remove it at any time")
    if retention.retention_ms is None or retention.cleanup_policy is None:
        return ProbeTime(None, f"unknown: {retention.reason or 'the broker does not report it'}")
    if retention.retention_ms < 0:
        return ProbeTime(None, "no limit")
    left = one.doubtful_at + retention.retention_ms / 1000 - now
    return ProbeTime(left, f"{span(left)} left" if left > 0 else f"over for {span(-left)}")


def _checked(text: str) -> BrokerCheck:
    try:
        return BrokerCheck.from_json(text)
    except (orjson.JSONDecodeError, KeyError, TypeError):  # of a version with another form
        return BrokerCheck((), 0.0)
