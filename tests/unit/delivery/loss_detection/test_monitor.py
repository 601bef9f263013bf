"""The loss monitor: which acknowledgements and errors cause a query, and its findings."""

from __future__ import annotations

import threading

import pytest

from producer_core.delivery.loss_detection import AckedLogMonitor, BrokerView
from producer_core.events import AttemptFailed
from tests.fixtures.loss_monitor import SESSION, MonitorRig, ack
from tests.support import eventually


def test_acknowledgements_alone_cause_no_query(rig):
    for start in range(0, 1000, 100):
        rig.acknowledge(*range(start, start + 100))
        rig.advance(5)

    assert (rig.broker.queries, rig.notices) == ([], [])


def test_an_idle_partition_is_checked_at_its_last_offset_when_it_is_written_again(rig):
    rig.acknowledge(5)
    rig.advance(61)
    rig.acknowledge(6)
    rig.advance(1)

    assert eventually(rig.cases) == ["intact"]
    assert [item.offset for item in rig.broker.queries] == [5]
    assert rig.notices == []


def test_retention_on_an_idle_partition_is_reported_as_information(rig):
    rig.acknowledge(5)
    rig.broker.views[0] = BrokerView(exists=True, low=6, high=7)
    rig.advance(61)
    rig.acknowledge(6)
    rig.advance(1)

    (notice,) = eventually(lambda: rig.notices)
    assert (notice.kind, notice.severity) == ("retention_removed", "info")
    assert notice.details["subject"] == "orders/0"
    assert (notice.details["low_watermark"], notice.details["last_acknowledged"]) == (6, 5)


def test_an_offset_that_does_not_rise_is_a_loss_when_the_old_record_is_missing(rig):
    rig.acknowledge(*range(100, 150))
    rig.broker.views[0] = BrokerView(exists=True, topic_id="A", low=0, high=132)
    rig.acknowledge(*range(130, 132))
    rig.advance(1)

    (notice,) = eventually(lambda: rig.notices)
    assert (notice.kind, notice.severity) == ("acknowledged_lost", "critical")
    assert "At least 18 are missing" in notice.text
    assert set(rig.monitor.lost) == {("orders", 0)}


def test_a_loss_is_found_although_an_earlier_check_of_the_partition_has_no_answer_yet(rig):
    rig.acknowledge(*range(100, 105))
    rig.broker.views[0] = BrokerView(problem="no broker responded in time")
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")
    eventually(lambda: rig.broker.queries)
    rig.acknowledge(*range(105, 150))

    del rig.broker.views[0]
    rig.broker.truncate(0, 132)
    for offset in range(132, 150):
        rig.acknowledge(offset)
    rig.advance(60)

    assert eventually(lambda: "acknowledged_lost" in rig.kinds())
    assert rig.monitor.lost["orders", 0].numbers["last_acknowledged"] == 149


@pytest.mark.parametrize("known", [(), (100, 104)], ids=["nothing acknowledged", "removed by retention"])
def test_a_loss_is_found_although_the_earlier_check_has_nothing_to_compare(rig, known):
    rig.acknowledge(*known)
    rig.broker.views[0] = BrokerView(problem="no broker responded in time")
    rig.fail_partition("OUT_OF_ORDER_SEQUENCE_NUMBER", 0)
    eventually(lambda: rig.monitor._investigation.questions)
    rig.acknowledge(*range(105, 150))

    rig.broker.views[0] = BrokerView(exists=True, topic_id="A", low=105, high=132)
    rig.acknowledge(131)
    rig.advance(60)

    assert eventually(lambda: "acknowledged_lost" in rig.kinds())


def test_an_offset_that_does_not_rise_is_checked_until_there_is_an_answer(rig):
    rig.acknowledge(*range(100, 150))
    rig.broker.views[0] = BrokerView(problem="no broker responded in time")
    rig.acknowledge(130)
    for attempt in range(1, 9):
        rig.advance(60)
        eventually(lambda attempt=attempt: len(rig.broker.queries) >= attempt)
    assert eventually(rig.kinds) == ["standing_unknown"]

    rig.broker.views[0] = BrokerView(exists=True, topic_id="A", low=0, high=132)
    rig.advance(60)
    assert eventually(lambda: rig.kinds()[1:]) == ["acknowledged_lost"]


def test_a_second_loss_is_checked_soon_after_the_first(rig):
    rig.acknowledge(*range(100, 150))
    for high in (132, 120):
        rig.broker.views[0] = BrokerView(exists=True, topic_id="A", low=0, high=high)
        rig.advance(0.1)
        rig.acknowledge(high - 1)
        rig.advance(6)
        eventually(lambda: not rig.monitor._investigation.questions)

    assert rig.kinds() == ["acknowledged_lost", "acknowledged_lost"]


def test_resuming_a_topic_closes_its_losses(rig):
    rig.acknowledge(*range(100, 150))
    rig.broker.views[0] = BrokerView(exists=True, topic_id="A", low=0, high=132)
    rig.acknowledge(*range(130, 132))
    rig.advance(1)
    eventually(lambda: rig.kinds() == ["acknowledged_lost"])
    assert rig.monitor.lost_on("orders", 0)

    assert rig.monitor.resume_topic("payments") == 0
    assert rig.monitor.resume_topic("orders") == 1
    assert rig.monitor.resume_topic("orders") == 0

    assert not rig.monitor.lost_on("orders", 0)
    eventually(lambda: rig.kinds() == ["acknowledged_lost", "loss_decided"])
    assert rig.notices[-1].details["ends"] == [("acknowledged_lost", rig.notices[0].details["subject"])]


def test_a_batch_from_below_the_old_end_to_above_it_is_checked_too(rig):
    rig.acknowledge(*range(100, 150))
    rig.acknowledge(*range(130, 200))
    rig.advance(1)

    eventually(lambda: rig.broker.queries)
    assert rig.broker.queries[0].offset == 149


def test_callers_wait_for_the_check_of_a_suspected_loss(rig):
    rig.acknowledge(9)
    rig.broker.gate.clear()
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")
    rig.broker.views[0] = BrokerView(exists=True, low=0, high=4)
    threading.Timer(0.1, rig.broker.gate.set).start()

    assert rig.monitor.lost_on("orders", 10)
    assert not rig.monitor.lost_on("payments", 10)


def test_a_topic_without_acknowledgements_has_nothing_to_lose(rig):
    rig.fail("UNKNOWN_PRODUCER_ID", topic="new")

    assert rig.monitor.await_finding("new", 0, 10).case == "nothing_to_lose"
    assert eventually(rig.kinds) == ["nothing_to_lose"]
    assert rig.monitor.await_finding("never-used", 3, 10).case == "nothing_to_lose"


def test_a_success_without_an_offset_queries_that_message(rig):
    rig.acknowledge(3)
    rig.monitor.acknowledged([ack(None, seq=77)])

    query = eventually(lambda: rig.broker.queries)[0]
    assert query.message_id == f"{SESSION}-77"


def test_checkpoints_of_an_earlier_run_are_checked_when_the_partition_is_written(rig):
    rig.monitor.remember({("orders", 0): 40})
    rig.acknowledge(41)
    rig.advance(1)

    eventually(lambda: rig.broker.queries)
    assert rig.broker.queries[0].offset == 40


def test_a_suspicion_is_checked_once_more_on_stop():
    rig = MonitorRig()
    rig.acknowledge(9)
    rig.fail("UNKNOWN_PRODUCER_ID")
    rig.monitor.stop()

    assert rig.cases() == ["desynchronised"]


def test_without_a_broker_the_monitor_only_records_checkpoints():
    notices = []
    monitor = AckedLogMonitor(None, notices.append)
    monitor.start()
    monitor.acknowledged([ack(5), ack(None)])
    monitor.acknowledged([ack(1)])
    monitor.attempt_failed(
        AttemptFailed("m", "orders", "UNKNOWN_PRODUCER_ID", "fatal", "", 1, None, True, 1.0)
    )
    monitor.check("orders", 0)

    assert len(monitor._investigation.questions) == 0
    assert monitor.await_finding("orders", 0, 1) is None
    monitor.stop()
    assert notices == []
