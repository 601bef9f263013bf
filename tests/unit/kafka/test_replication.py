"""The replication watch checks each topic once in the background and reports weak acknowledgements."""

from __future__ import annotations

import logging
import threading

import pytest

from producer_core._internal.log_queue import LogQueue
from producer_core.alerts.reported_alerts import ReportedAlerts
from producer_core.config import client_config
from producer_core.errors import BrokerUnreachable
from producer_core.kafka.replication import ReplicationWatch, judge
from producer_core.producer.event_log import EventLog
from tests.fixtures.replication import CONFIG, topic
from tests.support import eventually


@pytest.mark.parametrize(
    ("replicas", "min_isr", "strength", "weak"),
    [
        (1, 1, "one_copy", True),
        (1, None, "one_copy", True),
        (3, 1, "one_copy_at_times", True),
        (3, None, "unknown", False),
        (3, 3, "stops_at_once", False),
        (3, 2, "sound", False),
        (2, 2, "stops_at_once", False),
    ],
)
def test_the_guarantee_of_acks_all_is_classified(replicas, min_isr, strength, weak):
    replication = judge(topic(replicas=replicas, min_isr=min_isr))
    assert (replication.strength, replication.weak) == (strength, weak)
    assert bool(replication.fix) == (strength != "sound")


def test_each_topic_is_checked_once_and_only_weak_ones_are_reported():
    notices, described = [], []
    views = {"weak": topic("weak", replicas=1, min_isr=1), "sound": topic("sound")}

    def describe(names):
        described.extend(names)
        return {name: views[name] for name in names}

    watch = ReplicationWatch(CONFIG, notices.append, describe=describe, clock=lambda: 5.0)
    for _ in range(3):
        watch.client_statistics({"topics": {"weak": {}, "sound": {}}})
    watch.client_statistics({})
    eventually(lambda: sorted(described) == ["sound", "weak"])

    (notice,) = eventually(lambda: notices)
    assert (notice.kind, notice.severity, notice.at) == ("weak_replication", "warning", 5.0)
    assert "an acknowledged message is on only one disk" in notice.text
    assert notice.details["topic"] == "weak"
    eventually(lambda: not watch_threads())


def watch_threads():
    return [thread for thread in threading.enumerate() if thread.name == "replication-watch"]


def test_a_topic_that_cannot_be_described_is_retried_and_then_skipped():
    notices, results = [], [BrokerUnreachable("not yet"), BrokerUnreachable("not yet"), topic(replicas=1)]

    def describe(names):
        return {name: results.pop(0) for name in names}

    ReplicationWatch(CONFIG, notices.append, describe=describe, pauses=(0.0, 0.0)).check("orders")
    eventually(lambda: len(notices) == 1)

    results += [BrokerUnreachable("never")] * 3
    ReplicationWatch(CONFIG, notices.append, describe=describe, pauses=(0.0, 0.0)).check("orders")
    eventually(lambda: not results and not watch_threads())
    assert len(notices) == 1


def test_after_stop_no_topic_is_checked_or_reported():
    notices, described, release = [], threading.Event(), threading.Event()

    def describe(names):
        described.set()
        release.wait(10)
        return {name: topic(replicas=1) for name in names}

    watch = ReplicationWatch(CONFIG, notices.append, describe=describe)
    watch.check("orders")
    assert described.wait(10)
    watch.stop()
    watch.check("payments")
    release.set()
    eventually(lambda: not watch_threads())
    assert notices == []


def test_a_new_topic_is_checked_at_once_while_another_one_waits():
    notices = []

    def describe(names):
        return {
            name: BrokerUnreachable("away") if name == "away" else topic(name, replicas=1) for name in names
        }

    watch = ReplicationWatch(CONFIG, notices.append, describe=describe, pauses=(3600.0,))
    watch.check("away")
    watch.check("orders")
    eventually(lambda: [notice.details["topic"] for notice in notices] == ["orders"])
    watch.stop()
    eventually(lambda: not watch_threads())


def test_without_acks_all_no_topic_is_checked():
    notices = []
    config = client_config("a:9092", {"acks": "1", "enable_idempotence": False})
    ReplicationWatch(config, notices.append, describe=lambda names: {}).check("orders")
    assert not watch_threads()
    assert notices == []


def test_topics_that_are_first_used_together_are_described_together():
    requests, notices, release = [], [], threading.Event()

    def describe(names):
        release.wait(10)
        requests.append(len(names))
        return {name: topic(name, replicas=1) for name in names}

    watch = ReplicationWatch(CONFIG, notices.append, describe=describe)
    watch.client_statistics({"topics": {f"topic-{number:03}": {} for number in range(1000)}})
    release.set()
    eventually(lambda: not watch_threads())

    assert requests == [100] * 10
    (notice,) = notices
    assert notice.text == (
        "1,000 topics: even with acks=all, an acknowledged message may be on only one disk. A lost disk then loses it. "
        "The topics are topic-000, topic-001, topic-002, topic-003, topic-004 and 995 more."
    )
    assert notice.details == {"topics": 1000, "advice": "Use three replicas and min.insync.replicas=2."}


def test_topics_that_are_used_later_have_a_notice_of_their_own():
    notices = []

    def describe(names):
        return {name: topic(name, replicas=3, min_isr=1) for name in names}

    watch = ReplicationWatch(CONFIG, notices.append, describe=describe)
    seen = {"topics": {"orders": {}, "payments": {}}}
    watch.client_statistics(seen)
    eventually(lambda: not watch_threads())
    seen["topics"] |= {"refunds": {}, "returns": {}}
    watch.client_statistics(seen)
    watch.client_statistics(seen)
    eventually(lambda: not watch_threads())

    first, later = notices
    assert "orders and payments." in first.text and "by now" not in first.text
    assert "refunds and returns." in later.text and "orders" not in later.text
    assert "4 topics of this producer are affected by now." in later.text
    assert later.details["advice"] == "Set min.insync.replicas=2."


def test_a_thousand_weak_topics_are_one_log_line_and_one_alert():
    """Regression: a producer logged a warning for each topic."""
    log, queue, alerts = logging.getLogger("test.weak"), LogQueue(), ReportedAlerts()
    hooks = [EventLog("a:9092", log=log, queue=queue), alerts]
    lines = []
    handler = logging.Handler()
    handler.emit = lines.append
    log.addHandler(handler)

    def describe(names):
        return {name: topic(name, replicas=1) for name in names}

    watch = ReplicationWatch(CONFIG, lambda notice: [one.notice(notice) for one in hooks], describe=describe)
    watch.client_statistics({"topics": {f"topic-{number:03}": {} for number in range(1000)}})
    eventually(lambda: not watch_threads())
    queue.drain(30)
    (line,) = [one.getMessage() for one in lines if one.levelno == logging.WARNING]
    assert line.startswith("weak replication: reason=1,000 topics: ") and "topics=1000" in line
    assert "advice=Use three replicas" in line
    (found,) = alerts.firing("p", 0.0)
    assert (found.subject, found.advice) == ("p", "Use three replicas and min.insync.replicas=2.")
    log.removeHandler(handler)


def test_a_query_that_fails_is_repeated_for_each_of_its_topics():
    notices, failures = [], [BrokerUnreachable("away")]

    def describe(names):
        if failures:
            raise failures.pop()
        return {name: topic(name, replicas=1) for name in names}

    watch = ReplicationWatch(CONFIG, notices.append, describe=describe, pauses=(0.0,))
    watch.client_statistics({"topics": {"orders": {}, "payments": {}}})
    eventually(lambda: not watch_threads())
    (notice,) = notices
    assert notice.details["topics"] == 2 and "orders and payments" in notice.text
