"""The replication watch: it looks at each topic once, beside the producer, and tells where «acknowledged» is weak."""

from __future__ import annotations

import threading

import pytest

from producer_core.config import client_config
from producer_core.errors import BrokerUnreachable
from producer_core.kafka.cluster import TopicView
from producer_core.kafka.replication import ReplicationWatch, judge
from tests.support import eventually

CONFIG = client_config("a:9092")


def topic(name="orders", copies=3, least=2):
    return TopicView(name, 4, copies, copies, 0, None, least, None)


@pytest.mark.parametrize(
    ("copies", "least", "strength", "weak"),
    [
        (1, 1, "one_copy", True),
        (1, None, "one_copy", True),
        (3, 1, "one_copy_at_times", True),
        (3, None, "not_told", False),
        (3, 3, "stops_at_once", False),
        (3, 2, "sound", False),
        (2, 2, "stops_at_once", False),
    ],
)
def test_what_acks_all_means_is_named(copies, least, strength, weak):
    found = judge(topic(copies=copies, least=least))
    assert (found.strength, found.weak) == (strength, weak)
    assert bool(found.fix) == (strength != "sound")


def watch(views, told, **options):
    return ReplicationWatch(CONFIG, told.append, ask=lambda name: views[name], **options)


def test_each_topic_is_looked_at_once_and_only_weak_ones_are_told():
    told, asked = [], []
    views = {"weak": topic("weak", copies=1, least=1), "sound": topic("sound")}

    def ask(name):
        asked.append(name)
        return views[name]

    looking = ReplicationWatch(CONFIG, told.append, ask=ask, clock=lambda: 5.0)
    for _ in range(3):
        looking.client_statistics({"topics": {"weak": {}, "sound": {}}})
    looking.client_statistics({})
    eventually(lambda: sorted(asked) == ["sound", "weak"])

    (notice,) = eventually(lambda: told)
    assert (notice.kind, notice.severity, notice.at) == ("weak_replication", "warning", 5.0)
    assert "acks=all means one disk" in notice.text
    assert notice.details["topic"] == "weak"
    eventually(lambda: not running())


def running():
    return [thread for thread in threading.enumerate() if thread.name == "replication-watch"]


def test_a_topic_that_cannot_be_described_is_tried_again_and_then_left():
    told, answers = [], [BrokerUnreachable("not yet"), BrokerUnreachable("not yet"), topic(copies=1)]

    def ask(name):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ReplicationWatch(CONFIG, told.append, ask=ask, pauses=(0.0, 0.0)).look("orders")
    eventually(lambda: len(told) == 1)

    answers += [BrokerUnreachable("never")] * 3
    ReplicationWatch(CONFIG, told.append, ask=ask, pauses=(0.0, 0.0)).look("orders")
    eventually(lambda: not answers and not running())
    assert len(told) == 1


def test_after_stop_nobody_is_told_and_nobody_is_asked():
    told, asked, go_on = [], threading.Event(), threading.Event()

    def ask(name):
        asked.set()
        go_on.wait(10)
        return topic(copies=1)

    looking = ReplicationWatch(CONFIG, told.append, ask=ask)
    looking.look("orders")
    assert asked.wait(10)
    looking.stop()
    looking.look("payments")
    go_on.set()
    eventually(lambda: not running())
    assert told == []


def test_a_topic_that_comes_while_another_waits_is_looked_at_now():
    told = []

    def ask(name):
        if name == "away":
            raise BrokerUnreachable("away")
        return topic(name, copies=1)

    looking = ReplicationWatch(CONFIG, told.append, ask=ask, pauses=(3600.0,))
    looking.look("away")
    looking.look("orders")
    eventually(lambda: [notice.details["topic"] for notice in told] == ["orders"])
    looking.stop()
    eventually(lambda: not running())


def test_without_acks_all_there_is_nothing_to_look_at():
    told = []
    config = client_config("a:9092", {"acks": "1", "enable_idempotence": False})
    ReplicationWatch(config, told.append, ask=lambda name: topic(copies=1)).look("orders")
    assert not running()
    assert told == []
