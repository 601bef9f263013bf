"""After a leader change, records acknowledged before it are read back, and lost ones are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.delivery.loss_detection import BrokerView
from producer_core.messages import id_bytes
from tests.fixtures.loss_monitor import SESSION, FakeBroker, MonitorRig
from tests.support import eventually


class TruncatedLog(FakeBroker):
    """A log that a new leader truncated to `truncated_at` and another producer then continued up to `end`."""

    truncated_at, end = 1_000_000, 1_000_000

    def query(self, queries, timeout):
        self.queries += queries
        return [self.views.get(item.partition) or self.view_at(item.offset) for item in queries]

    def view_at(self, offset):
        is_own = offset < self.truncated_at or offset >= self.end
        return BrokerView(
            exists=True, topic_id="A", low=0, high=max(self.end, offset + 1), found_at=offset,
            found_id=id_bytes(SESSION, offset + 1000) if is_own else b"x" * 24, compacted=False,
        )  # fmt: skip


@pytest.fixture
def rig():
    rig = MonitorRig()
    rig.broker = rig.monitor._queries = TruncatedLog()
    yield rig
    rig.monitor.stop()


def set_leader(rig, broker, epoch, partition=0):
    leader = {"partition": partition, "leader": broker, "leader_epoch": epoch}
    rig.monitor.client_statistics({"topics": {"orders": {"partitions": {str(partition): leader}}}})


def queried_offsets(rig):
    return {item.offset for item in rig.broker.queries}


def is_idle(rig):
    return not len(rig.monitor._investigation.questions)


def test_records_lost_by_an_unclean_leader_are_reported_although_others_wrote_past_them(rig):
    rig.acknowledge(49, 50)
    set_leader(rig, 1, 0)
    rig.acknowledge(100)
    set_leader(rig, 1, 0)
    rig.broker.truncated_at, rig.broker.end = 60, 360
    rig.advance(12)
    rig.acknowledge(360)
    set_leader(rig, 2, 3)
    rig.acknowledge(361)
    rig.advance(1)

    (notice,) = eventually(lambda: rig.notices)
    assert (notice.kind, notice.severity, notice.details["last_acknowledged"]) == (
        "acknowledged_lost",
        "critical",
        100,
    )
    assert "from broker 1 to broker 2 (leader epoch 0 to 3)" in notice.text
    assert notice.details["trigger"] == "leader_changed"
    assert set(rig.monitor.lost) == {("orders", 0)}


@pytest.mark.parametrize("burst", [1, 2, 7])
def test_a_loss_is_detected_when_many_acknowledgements_follow_the_change_at_once(rig, burst):
    """Statistics arrive once a second; by then the newest checkpoint is the new leader's."""
    set_leader(rig, 1, 0)
    for offset in range(90, 100):
        rig.acknowledge(offset)
        rig.advance(0.05)
    rig.broker.truncated_at, rig.broker.end = 95, 400
    rig.advance(0.5)
    for number in range(burst):
        rig.acknowledge(400 + number)
        rig.advance(0.05)
    set_leader(rig, 2, 1)
    rig.advance(1)

    assert eventually(lambda: rig.notices)[0].details["last_acknowledged"] == 99


def test_records_acknowledged_before_the_change_and_reported_after_it_are_read_back(rig):
    rig.acknowledge(90)
    set_leader(rig, 1, 0)
    set_leader(rig, 2, 1)
    rig.acknowledge(99)  # by the old leader; the poll thread was delayed
    rig.broker.truncated_at, rig.broker.end = 95, 400
    rig.advance(0.9)
    rig.acknowledge(400)
    rig.advance(0.2)

    assert eventually(lambda: rig.notices)[0].details["last_acknowledged"] == 99


def test_a_clean_leader_change_emits_no_notice(rig):
    for epoch in range(5):
        rig.acknowledge(*range(epoch * 10, epoch * 10 + 5))
        set_leader(rig, epoch % 3, epoch)
        rig.advance(6)
        eventually(lambda: is_idle(rig))

    assert set(rig.cases()) == {"intact"}
    assert rig.notices == []
    assert {14, 24, 34, 44} <= queried_offsets(rig)


def test_a_re_elected_leader_is_checked_too(rig):
    """A single broker can restart after a power failure without the end of its log."""
    rig.acknowledge(9)
    set_leader(rig, 1, 4)
    rig.broker.truncated_at, rig.broker.end = 5, 40
    set_leader(rig, 1, 6)
    rig.advance(1)

    assert "broker 1, was re-elected (leader epoch 4 to 6)" in eventually(lambda: rig.notices)[0].text


def test_a_partition_without_a_leader_is_checked_once_it_has_one(rig):
    rig.acknowledge(9)
    set_leader(rig, 1, 0)
    set_leader(rig, -1, 1)
    assert is_idle(rig)
    set_leader(rig, 1, 0)
    assert is_idle(rig)
    set_leader(rig, 2, 2)

    assert not is_idle(rig)


def repeat_check(rig, times):
    """Advance the clock until the check of the partition has run this many times."""
    for attempt in range(1, times + 1):
        rig.advance(61)
        eventually(lambda attempt=attempt: len(rig.broker.queries) >= attempt)
        eventually(lambda: not rig.monitor._investigation.questions.due(rig.now, 10))


@pytest.mark.slow
def test_a_check_that_fails_during_an_outage_is_retried_without_a_notice(rig):
    rig.acknowledge(9)
    set_leader(rig, 1, 0)
    rig.broker.views[0] = BrokerView(problem="OFFSET_NOT_AVAILABLE")
    set_leader(rig, 2, 1)
    repeat_check(rig, times=11)
    assert rig.notices == []
    rig.broker.truncated_at, rig.broker.end = 5, 40
    rig.broker.views.clear()
    rig.advance(61)

    assert eventually(rig.kinds) == ["acknowledged_lost"]


def test_a_second_change_ends_the_wait_after_failed_checks(rig):
    rig.acknowledge(9)
    set_leader(rig, 1, 0)
    rig.broker.views[0] = BrokerView(problem="no leader")
    set_leader(rig, 2, 1)
    repeat_check(rig, times=7)
    rig.broker.views.clear()
    rig.broker.truncated_at, rig.broker.end = 5, 40
    set_leader(rig, 3, 2)
    rig.advance(5)

    (notice,) = eventually(lambda: rig.notices)
    assert "from broker 1 to broker 3 (leader epoch 0 to 2)" in notice.text


def test_a_missing_read_permission_is_reported_once_per_topic(rig):
    rig.broker.views[0] = rig.broker.views[1] = BrokerView(problem="no READ", denied=True)
    for epoch in range(4):
        for partition in (0, 1):
            rig.acknowledge(9 + epoch, partition=partition)
            set_leader(rig, epoch % 2, epoch, partition)
        rig.advance(10)
        eventually(lambda: is_idle(rig))

    assert rig.kinds() == ["standing_unknown"]


def test_no_partition_is_skipped_when_a_broker_with_thousands_of_them_fails():
    rig = MonitorRig(max_questions=20)
    for partition in range(1000):
        rig.acknowledge(5, partition=partition)
        set_leader(rig, 1, 0, partition)
    rig.broker.gate.clear()
    for partition in range(1000):
        set_leader(rig, 2, 1, partition)
    assert rig.monitor._investigation.questions.skipped == 0
    rig.broker.gate.set()
    rig.advance(1)

    eventually(lambda: len({(item.partition, item.offset) for item in rig.broker.queries}) == 1000, 30)
    rig.monitor.stop()
    assert rig.notices == []


def test_a_change_just_before_close_is_still_checked():
    rig = MonitorRig()
    rig.acknowledge(9)
    set_leader(rig, 1, 0)
    rig.broker.views[0] = BrokerView(exists=True, topic_id="A", low=0, high=4)
    set_leader(rig, 2, 1)
    rig.monitor.stop()

    assert [item.offset for item in rig.broker.queries] == [9]


def test_a_leader_change_adds_its_checkpoints_to_an_open_question(rig):
    """A suspicion is resolved only after records acknowledged before the change have been read back."""
    rig.broker.truncated_at, rig.broker.end = 50, 80
    rig.acknowledge(60)
    set_leader(rig, 1, 0)
    rig.acknowledge(99)
    complete_view = rig.broker.view_at(99)
    rig.broker.views[0] = replace(complete_view, problem="later", found_at=None)
    rig.fail("UNKNOWN_PRODUCER_ID")
    eventually(lambda: rig.broker.queries)
    set_leader(rig, 2, 1)
    rig.broker.views.clear()
    rig.advance(2)

    assert eventually(rig.kinds) == ["acknowledged_lost"]
    assert rig.notices[0].details["last_acknowledged"] == 60


def test_the_number_of_known_leaders_is_limited(rig):
    rig.monitor._leaders._limit = 10
    for partition in range(100):
        set_leader(rig, 1, 0, partition)

    assert len(rig.monitor._leaders._known) == 10
