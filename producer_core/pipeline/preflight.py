"""Check brokers and topics before Spark starts, with the Python client: it reports errors in seconds; Spark takes a minute."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Sequence

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.config import ClientConfig
from producer_core.errors import BrokerError
from producer_core.kafka.cluster import Cluster, ClusterView

_TIMEOUT = 8.0
_NEW_TOPIC = 2.0
"""Seconds until all brokers know a topic that was created a moment ago."""
_never = threading.Event()  # never set: its wait() is a pause


class MissingPermission(BrokerError):
    """The credentials lack a permission on a topic."""


def reach(
    config: ClientConfig,
    topics: Sequence[str] = (),
    *,
    operation: str = "READ",
    require_leaders: bool = True,
) -> Cluster:
    """Return the cluster after checking that it responds and that the topics can be used.

    Each topic must exist, have a leader for every partition unless that is not required, and allow `operation`. Otherwise
    raises an error with its fix, within 15 seconds. Never creates a topic.
    """
    cluster = Cluster(config)
    view = cluster.view(timeout=_TIMEOUT)
    deadline = time.monotonic() + _NEW_TOPIC
    while not view.topics.issuperset(topics) and time.monotonic() < deadline:
        _never.wait(0.1)
        view = cluster.view(timeout=_NEW_TOPIC)
    for topic in topics:
        if topic not in view.topics:
            raise _missing(topic, view)
    for topic in topics:
        _check_topic(cluster, topic, operation, require_leaders=require_leaders)
    return cluster


def _missing(topic: str, view: ClusterView) -> BrokerError:
    names = [name for name in view.topics if not name.startswith("__")]
    close = difflib.get_close_matches(topic, names, n=1)
    return BrokerError(
        f"Topic {topic!r} does not exist, or the credentials lack DESCRIBE.",
        fix=f"Did you mean {close[0]!r}?"
        if close
        else f"Existing topics: {_listed(names)}."
        if names
        else "Create it first.",
    )


def _listed(names: Sequence[str]) -> str:
    return join_names(sorted(names), most=5)


def _check_topic(cluster: Cluster, topic: str, operation: str, *, require_leaders: bool = True) -> None:
    found = cluster.topic(topic, timeout=4.0)
    if found.leaderless and require_leaders:
        verb = "has" if found.leaderless == 1 else "have"
        raise BrokerError(
            f"{found.leaderless} of {plural(found.partitions, 'partition')} of topic {topic!r} {verb} no leader.",
            fix="Wait until its brokers are back; the partition cannot be read until then."
            if found.leaderless == 1
            else "Wait until their brokers are back; the partitions cannot be read until then.",
        )
    if found.operations is not None and not found.operations & {operation, "ALL"}:
        raise MissingPermission(
            f"The credentials lack {operation} on topic {topic!r}.",
            fix=f"Grant {operation} and DESCRIBE on it.",
        )
