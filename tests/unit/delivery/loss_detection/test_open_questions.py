"""Open questions: limited in number, due at a time, and asked again without an answer."""

from __future__ import annotations

from producer_core.delivery.loss_detection import BrokerView
from tests.fixtures.loss_monitor import MonitorRig
from tests.support import eventually


def test_a_partition_is_not_checked_again_within_the_interval(rig):
    rig.acknowledge(100)
    for offset in range(50, 90):
        rig.acknowledge(offset)
        rig.advance(1)
    eventually(rig.cases)

    assert len(rig.broker.queries) == 1


def test_a_loss_is_reported_only_after_two_checks(rig):
    rig.monitor._investigation._confirm_delay = 5.0
    rig.acknowledge(100)
    rig.broker.views[0] = BrokerView(exists=True, low=0, high=50)
    rig.acknowledge(60)
    rig.advance(1)
    eventually(lambda: len(rig.broker.queries) == 1)
    eventually(
        lambda: [
            question for question in rig.monitor._investigation.questions._open.values() if question.seen_lost
        ]
    )
    rig.broker.views.clear()  # the new leader has the records now
    rig.advance(5)

    assert eventually(rig.cases) == ["intact"]
    assert rig.notices == []


def test_an_unanswered_question_is_retried_and_reported_once(rig):
    rig.acknowledge(9)
    rig.broker.views[0] = BrokerView(problem="the broker is down")
    rig.fail("UNKNOWN_PRODUCER_ID")
    for attempt in range(1, 9):
        eventually(lambda attempt=attempt: len(rig.broker.queries) >= attempt)
        eventually(lambda: not rig.monitor._investigation.questions.due(rig.now, 10))
        rig.advance(61)

    eventually(lambda: rig.kinds() == ["standing_unknown"])
    assert rig.monitor.await_finding("orders", 0, 10).case == "unknown"
    rig.broker.views.clear()
    rig.advance(61)
    assert eventually(lambda: rig.kinds()[1:]) == ["producer_desynchronised"]


def test_the_number_of_questions_is_limited():
    rig = MonitorRig(max_questions=20)
    for partition in range(2000):
        rig.acknowledge(1, partition=partition)
    rig.advance(61)
    rig.broker.gate.clear()
    for partition in range(2000):
        rig.acknowledge(2, partition=partition)

    assert len(rig.monitor._investigation.questions) == 20
    assert rig.monitor._investigation.questions.skipped == 1980
    rig.broker.gate.set()
    rig.monitor.stop()
