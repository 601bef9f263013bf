"""Before Spark starts: brokers and topics asked by our own client, which answers in seconds; Spark takes a minute."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Sequence

from producer_core.config import ClientConfig
from producer_core.errors import BrokerError
from producer_core.kafka.cluster import Cluster, ClusterView

_ANSWER = 8.0
_NEW_TOPIC = 2.0
"""Seconds that a topic made a moment ago may take to be known everywhere."""
_never = threading.Event()  # waiting on it is a pause


def reach(config: ClientConfig, topics: Sequence[str] = (), *, operation: str = "READ") -> Cluster:
    """The cluster, which answered and has these topics, each with a leader for every partition, and lets us do
    `operation` there. Else an error that says what to do, within 15 seconds. Never makes a topic."""
    cluster = Cluster(config)
    view = cluster.view(timeout=_ANSWER)
    deadline = time.monotonic() + _NEW_TOPIC
    while not view.topics.issuperset(topics) and time.monotonic() < deadline:
        _never.wait(0.1)
        view = cluster.view(timeout=_NEW_TOPIC)
    for topic in topics:
        if topic not in view.topics:
            raise _missing(topic, view)
    for topic in topics:
        _usable(cluster, topic, operation)
    return cluster


def _missing(topic: str, view: ClusterView) -> BrokerError:
    seen = [name for name in view.topics if not name.startswith("__")]
    close = difflib.get_close_matches(topic, seen, n=1)
    return BrokerError(
        f"There is no topic {topic!r}, or these credentials may not see it.",
        fix=f"Did you mean {close[0]!r}?"
        if close
        else f"There are {_listed(seen)}."
        if seen
        else "Create it first.",
    )


def _listed(names: Sequence[str]) -> str:
    some = sorted(names)[:5]
    return ", ".join(some) + (f" and {len(names) - len(some)} more" if len(names) > len(some) else "")


def _usable(cluster: Cluster, topic: str, operation: str) -> None:
    seen = cluster.topic(topic, timeout=4.0)
    if seen.leaderless:
        raise BrokerError(
            f"{seen.leaderless} of the {seen.partitions} partitions of topic {topic!r} have no leader now.",
            fix="Wait until their brokers are back: nobody can read them until then.",
        )
    if seen.operations is not None and not seen.operations & {operation, "ALL"}:
        raise BrokerError(
            f"Topic {topic!r} may not be used with these credentials: {operation} is missing.",
            fix=f"Grant {operation} and DESCRIBE on it.",
        )
