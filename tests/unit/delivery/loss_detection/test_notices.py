"""The notices of loss detection: suspicions, losses, and epoch rises, each reported once."""

from __future__ import annotations

from producer_core.delivery.loss_detection import BrokerView
from producer_core.events import Notice
from tests.support import eventually


def test_out_of_order_is_a_suspected_loss_until_the_evidence_is_read(rig):
    rig.acknowledge(9)
    rig.broker.gate.clear()
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")

    (suspicion,) = eventually(lambda: rig.notices)
    assert (suspicion.kind, suspicion.severity) == ("loss_suspected", "critical")
    assert rig.monitor.await_finding("orders", 0, 0.05) is None
    rig.broker.gate.set()
    finding = rig.monitor.await_finding("orders", 0, 10)

    assert finding.case == "desynchronised"
    _, answer = eventually(lambda: rig.notices[1:] and rig.notices)
    assert (answer.kind, answer.severity) == ("producer_desynchronised", "warning")
    assert answer.details["ends"] == [("loss_suspected", "orders")]


def test_out_of_order_with_a_missing_record_is_a_confirmed_loss(rig):
    rig.acknowledge(9)
    rig.broker.views[0] = BrokerView(exists=True, low=0, high=4)
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")

    assert rig.monitor.await_finding("orders", 0, 10).case == "acknowledged_lost"
    eventually(lambda: rig.kinds() == ["loss_suspected", "acknowledged_lost"])
    assert rig.notices[1].details["ends"] == [("loss_suspected", "orders")]


def test_one_suspicion_of_many_partitions_gives_one_notice_and_one_per_loss(rig):
    for partition in range(12):
        rig.acknowledge(9, partition=partition)
    rig.broker.views[4] = rig.broker.views[7] = BrokerView(exists=True, low=0, high=4)
    for _ in range(50):
        rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")

    eventually(lambda: len(rig.cases()) == 12)
    eventually(lambda: rig.notices[-1].details.get("ends"))
    lost = [notice.details["subject"] for notice in rig.notices if notice.kind == "acknowledged_lost"]
    assert rig.kinds()[0] == "loss_suspected"
    assert lost == ["orders/4", "orders/7"]
    assert len(rig.notices) <= 4


def test_a_code_shortly_after_an_answer_is_checked_later_and_reported_only_if_records_are_lost(rig):
    rig.acknowledge(9)
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")
    eventually(lambda: len(rig.notices) == 2)
    for _ in range(100):
        rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")

    assert rig.monitor.await_finding("orders", 0, 10).case == "desynchronised"
    assert not rig.monitor.lost_on("orders", 10)
    assert len(rig.broker.queries) == 1
    rig.advance(10)
    eventually(lambda: len(rig.cases()) == 2)
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")
    rig.broker.views[0] = BrokerView(exists=True, low=0, high=4)
    rig.advance(10)
    eventually(lambda: len(rig.cases()) == 3)

    assert rig.kinds() == ["loss_suspected", "producer_desynchronised", "acknowledged_lost"]
    assert rig.monitor.lost_on("orders", 0)


def test_an_unknown_producer_is_reported_after_the_evidence_is_read(rig):
    rig.acknowledge(9)
    rig.broker.views[0] = BrokerView(exists=True, low=20, high=20)
    rig.fail("UNKNOWN_PRODUCER_ID")

    assert rig.monitor.await_finding("orders", 0, 10).case == "retention_removed"
    assert eventually(rig.kinds) == ["retention_removed"]


def test_a_fatal_error_that_names_its_partition_checks_only_that_one(rig):
    rig.acknowledge(9, partition=0)
    rig.acknowledge(9, partition=1)
    text = (
        "The Kafka client failed and was re-created: ProduceRequest for orders [1] with 1 message(s) failed"
    )
    code = {"code": "OUT_OF_ORDER_SEQUENCE_NUMBER"}
    rig.monitor.notice(Notice("fatal_error", "critical", text, rig.now, code))

    assert rig.monitor.await_finding("orders", 1, 10).case == "desynchronised"
    assert [item.partition for item in rig.broker.queries] == [1]


def test_a_fatal_error_without_a_partition_checks_all_of_them(rig):
    for partition in range(3):
        rig.acknowledge(9, partition=partition)
    code = {"code": "OUT_OF_ORDER_SEQUENCE_NUMBER"}
    rig.monitor.notice(Notice("fatal_error", "critical", "It failed.", rig.now, code))
    rig.monitor.notice(Notice("fatal_error", "critical", "It failed.", rig.now, {"code": "_FENCED"}))
    rig.monitor.notice(Notice("connected", "info", "Connected.", rig.now))

    eventually(lambda: rig.cases() == ["desynchronised"] * 3)


def statistics(epoch, producer_id=5):
    return {"eos": {"producer_id": producer_id, "producer_epoch": epoch}}


def test_an_epoch_rise_is_reported_and_every_partition_is_checked(rig):
    rig.acknowledge(3, partition=0)
    rig.acknowledge(4, partition=1)
    rig.monitor.client_statistics(statistics(0))
    rig.monitor.client_statistics(statistics(1))

    (notice,) = eventually(lambda: rig.notices)
    assert (notice.kind, notice.severity) == ("epoch_rose", "info")
    assert (notice.details["old"], notice.details["new"]) == (0, 1)
    assert "did not report" in notice.text
    eventually(lambda: len(rig.monitor._investigation.questions) == 2)
    rig.advance(1)
    eventually(lambda: rig.cases() == ["intact", "intact"])


def test_many_epoch_rises_are_combined_with_the_failures_that_explain_them(rig):
    rig.monitor.client_statistics(statistics(0))
    rig.monitor.client_statistics(statistics(1))
    for epoch in range(2, 30):
        rig.fail("POLICY_VIOLATION")
        rig.monitor.client_statistics(statistics(epoch))
        rig.advance(1)
    rig.advance(60)
    rig.monitor.client_statistics(statistics(30))

    eventually(lambda: len(rig.notices) == 2)
    assert [(item.details["old"], item.details["new"]) for item in rig.notices] == [(0, 1), (1, 30)]
    assert "POLICY_VIOLATION on orders" in rig.notices[1].text


def test_the_epoch_of_a_new_client_starts_again(rig):
    rig.monitor.client_statistics(statistics(-1, -1))
    rig.monitor.client_statistics(statistics(4))
    rig.monitor.client_statistics(statistics(0, 6))
    rig.monitor.client_statistics({})
    rig.monitor.client_statistics(statistics(2, 7))

    rig.monitor.check("orders", 0)
    rig.monitor.await_finding("orders", 0, 10)
    assert rig.notices == []


def test_a_missing_permission_is_reported_once_per_topic(rig):
    rig.broker.views[0] = rig.broker.views[1] = BrokerView(problem="no READ", denied=True)
    for round_number in range(3):
        for partition in (0, 1):
            rig.acknowledge(round_number, partition=partition)
        rig.advance(100)
        eventually(lambda: not rig.monitor._investigation.questions.due(rig.now, 10))

    eventually(lambda: rig.kinds() == ["standing_unknown"])


def test_a_recreated_topic_is_reported_once_and_its_checkpoints_are_removed(rig):
    for partition in range(3):
        rig.acknowledge(9, partition=partition)
    eventually(lambda: rig.monitor._investigation.ids or rig.advance(1))
    for partition in range(3):
        rig.broker.views[partition] = BrokerView(exists=True, topic_id="B", low=0, high=1)
        rig.acknowledge(0, partition=partition)
    rig.advance(1)

    eventually(lambda: rig.kinds() == ["topic_recreated"])
    assert rig.notices[0].details["subject"] == "orders"
    assert len(rig.monitor._investigation.checkpoints) == 0
    assert rig.monitor._investigation.ids == {"orders": "B"}
