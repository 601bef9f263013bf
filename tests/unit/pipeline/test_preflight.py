"""A missing permission on a topic differs from a topic that cannot be read at the moment."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from producer_core.errors import BrokerError
from producer_core.kafka.cluster import TopicView
from producer_core.pipeline.preflight import MissingPermission, _check_topic


def cluster(*, operations=("READ",), leaderless=0):
    view = TopicView("telemetry", 3, 1, 1, leaderless, frozenset(operations), None, None)
    return SimpleNamespace(topic=lambda name, timeout: view)


def test_a_topic_that_may_not_be_read_is_a_missing_permission():
    with pytest.raises(MissingPermission, match="The credentials lack READ on topic 'telemetry'"):
        _check_topic(cluster(operations=["DESCRIBE"]), "telemetry", "READ")
    _check_topic(cluster(operations=["ALL"]), "telemetry", "READ")


def test_a_partition_without_leader_is_no_missing_permission():
    with pytest.raises(BrokerError, match="1 of 3 partitions of topic 'telemetry' has no leader") as caught:
        _check_topic(cluster(leaderless=1), "telemetry", "READ")
    assert not isinstance(caught.value, MissingPermission)
