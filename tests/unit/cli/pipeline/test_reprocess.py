"""`pipeline reprocess`: a started operation keeps its plan."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.cli.lazy_group import Failed
from producer_core.cli.pipeline.reprocess import _refuse_changes
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import BrokerError, ReplayError
from producer_core.kafka.acls import Permission
from producer_core.pipeline.reprocess import progress_topic
from tests.fixtures.reprocess import command_for, paused_replay


def test_a_started_operation_keeps_its_plan():
    nothing = {"limit": None, "rate": 5.0, "canary": None, "allow_quarantined": False, "to_cluster": None}
    _refuse_changes(DeadLetterFilter(), nothing)

    with pytest.raises(Failed, match="a selection, --canary and --include-quarantined"):
        _refuse_changes(DeadLetterFilter(topic="orders"), {**nothing, "canary": 0, "allow_quarantined": True})


@pytest.mark.slow
def test_a_paused_replay_continues_at_another_rate_with_its_own_progress_topic(store, monkeypatch):
    one, topics = paused_replay(store), []
    store.set_setting(
        f"reprocess.{one}", {"slices": 4, "by": "key", "lives": 1, "topic": "seals", "partitions": 3}
    )
    monkeypatch.setattr(progress_topic, "require_topic", lambda settings, topic: topics.append(topic))
    command = command_for(store)

    assert command.go(command.select(one), rate=7.0).rate == 7.0
    assert topics == ["seals"]
    with pytest.raises(Failed, match="The rate of replay"):
        command.go(command.select(one), rate=8.0)
    with pytest.raises(ReplayError, match="progress topic seals"):
        command_for(store, progress_topic="others").go(command.select(one))


def test_a_replay_without_a_usable_progress_topic_stays_paused(store, monkeypatch):
    one = paused_replay(store)
    lacks = [Permission("topic", "producer-core-progress", "WRITE")]
    monkeypatch.setattr(progress_topic, "_partitions_of", lambda settings, topic: 16)
    monkeypatch.setattr(progress_topic.acls, "check", lambda config, topics, feature: lacks)
    command = command_for(store)

    with pytest.raises(BrokerError, match="the credentials lack WRITE on topic producer-core-progress"):
        command.go(command.select(one))

    assert replay.get(store, one).state == "paused"
