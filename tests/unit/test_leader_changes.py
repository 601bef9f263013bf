"""A partition's leader changes: what was acknowledged before is read back, and acknowledged loss is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.delivery.loss_detection import BrokerView
from producer_core.messages import id_bytes
from tests.support import eventually
from tests.unit.test_standing import SESSION, FakeAsker, Watched


class CutLog(FakeAsker):
    """A log that a new leader cut back to `length`, and that another producer then continued up to `end`."""

    length, end = 1_000_000, 1_000_000

    def look(self, wanted, timeout):
        self.asked += wanted
        return [self.looks.get(item.partition) or self.shown(item.offset) for item in wanted]

    def shown(self, offset):
        ours = offset < self.length or offset >= self.end
        return BrokerView(
            exists=True, topic_id="A", low=0, high=max(self.end, offset + 1), found_at=offset,
            found_id=id_bytes(SESSION, offset + 1000) if ours else b"x" * 24, compacted=False,
        )  # fmt: skip


@pytest.fixture
def watched():
    made = Watched()
    made.broker = made.watch._asker = CutLog()
    yield made
    made.watch.stop()


def led_by(watched, broker, epoch, partition=0):
    shown = {"partition": partition, "leader": broker, "leader_epoch": epoch}
    watched.watch.client_statistics({"topics": {"orders": {"partitions": {str(partition): shown}}}})


def asked(watched):
    return {item.offset for item in watched.broker.asked}


def quiet(watched):
    return not len(watched.watch._inquiry.questions)


def test_records_that_an_unclean_leader_lost_are_told_although_others_wrote_past_them(watched):
    watched.acks(49, 50)
    led_by(watched, 1, 0)
    watched.acks(100)
    led_by(watched, 1, 0)
    watched.broker.length, watched.broker.end = 60, 360
    watched.later(12)
    watched.acks(360)
    led_by(watched, 2, 3)
    watched.acks(361)
    watched.later(1)

    (notice,) = eventually(lambda: watched.told)
    assert (notice.kind, notice.severity, notice.details["last_acknowledged"]) == (
        "acknowledged_lost",
        "critical",
        100,
    )
    assert "from broker 1 to broker 2 (leader epoch 0 to 3)" in notice.text
    assert notice.details["trigger"] == "leader_changed"
    assert set(watched.watch.lost) == {("orders", 0)}


@pytest.mark.parametrize("burst", [1, 2, 7])
def test_a_loss_shows_also_where_many_acknowledgements_follow_the_change_at_once(watched, burst):
    """The statistics come once a second: by then the newest mark is the new leader's."""
    led_by(watched, 1, 0)
    for offset in range(90, 100):
        watched.acks(offset)
        watched.later(0.05)
    watched.broker.length, watched.broker.end = 95, 400
    watched.later(0.5)
    for number in range(burst):
        watched.acks(400 + number)
        watched.later(0.05)
    led_by(watched, 2, 1)
    watched.later(1)

    assert eventually(lambda: watched.told)[0].details["last_acknowledged"] == 99


def test_what_was_acknowledged_before_the_change_and_reported_after_it_is_read_back_too(watched):
    watched.acks(90)
    led_by(watched, 1, 0)
    led_by(watched, 2, 1)
    watched.acks(99)  # of the old leader; the poll thread was held up
    watched.broker.length, watched.broker.end = 95, 400
    watched.later(0.9)
    watched.acks(400)
    watched.later(0.2)

    assert eventually(lambda: watched.told)[0].details["last_acknowledged"] == 99


def test_a_clean_change_of_the_leader_alarms_nobody(watched):
    for epoch in range(5):
        watched.acks(*range(epoch * 10, epoch * 10 + 5))
        led_by(watched, epoch % 3, epoch)
        watched.later(6)
        eventually(lambda: quiet(watched))

    assert set(watched.cases()) == {"intact"}
    assert watched.told == []
    assert {14, 24, 34, 44} <= asked(watched)


def test_a_broker_that_was_elected_again_is_looked_at_too(watched):
    """A broker alone comes back from a power cut without the end of its log."""
    watched.acks(9)
    led_by(watched, 1, 4)
    watched.broker.length, watched.broker.end = 5, 40
    led_by(watched, 1, 6)
    watched.later(1)

    assert "broker 1, was elected again (leader epoch 4 to 6)" in eventually(lambda: watched.told)[0].text


def test_a_partition_without_a_leader_is_looked_at_once_it_has_one(watched):
    watched.acks(9)
    led_by(watched, 1, 0)
    led_by(watched, -1, 1)
    assert quiet(watched)
    led_by(watched, 1, 0)
    assert quiet(watched)
    led_by(watched, 2, 2)

    assert not quiet(watched)


def test_a_look_that_fails_through_an_outage_is_made_again_quietly_until_it_succeeds(watched):
    watched.acks(9)
    led_by(watched, 1, 0)
    watched.broker.looks[0] = BrokerView(trouble="OFFSET_NOT_AVAILABLE")
    led_by(watched, 2, 1)
    for tries in range(1, 12):
        watched.later(61)
        eventually(lambda tries=tries: len(watched.broker.asked) >= tries)
        eventually(lambda: not watched.watch._inquiry.questions.due(watched.now, 10))
    assert watched.told == []
    watched.broker.length, watched.broker.end = 5, 40
    watched.broker.looks.clear()
    watched.later(61)

    assert eventually(watched.kinds) == ["acknowledged_lost"]


def test_a_second_change_ends_the_wait_after_failed_looks(watched):
    watched.acks(9)
    led_by(watched, 1, 0)
    watched.broker.looks[0] = BrokerView(trouble="no leader")
    led_by(watched, 2, 1)
    for tries in range(1, 8):
        watched.later(61)
        eventually(lambda tries=tries: len(watched.broker.asked) >= tries)
        eventually(lambda: not watched.watch._inquiry.questions.due(watched.now, 10))
    watched.broker.looks.clear()
    watched.broker.length, watched.broker.end = 5, 40
    led_by(watched, 3, 2)
    watched.later(5)

    (notice,) = eventually(lambda: watched.told)
    assert "from broker 1 to broker 3 (leader epoch 0 to 2)" in notice.text


def test_without_the_permission_to_read_it_is_said_once_a_topic(watched):
    watched.broker.looks[0] = watched.broker.looks[1] = BrokerView(trouble="no READ", refused=True)
    for epoch in range(4):
        for partition in (0, 1):
            watched.acks(9 + epoch, partition=partition)
            led_by(watched, epoch % 2, epoch, partition)
        watched.later(10)
        eventually(lambda: quiet(watched))

    assert watched.kinds() == ["standing_unknown"]


def test_no_partition_is_left_out_when_a_broker_of_thousands_dies():
    watched = Watched(max_questions=20)
    for partition in range(1000):
        watched.acks(5, partition=partition)
        led_by(watched, 1, 0, partition)
    watched.broker.gate.clear()
    for partition in range(1000):
        led_by(watched, 2, 1, partition)
    assert watched.watch._inquiry.questions.skipped == 0
    watched.broker.gate.set()
    watched.later(1)

    eventually(lambda: len({(item.partition, item.offset) for item in watched.broker.asked}) == 1000, 30)
    watched.watch.stop()
    assert watched.told == []


def test_a_change_just_before_close_is_still_looked_at():
    watched = Watched()
    watched.acks(9)
    led_by(watched, 1, 0)
    watched.broker.looks[0] = BrokerView(exists=True, topic_id="A", low=0, high=4)
    led_by(watched, 2, 1)
    watched.watch.stop()

    assert [item.offset for item in watched.broker.asked] == [9]


def test_a_partition_that_another_reason_asks_about_gets_the_marks_of_the_change_as_well(watched):
    """A suspicion is not resolved before what was acknowledged ahead of the change was read back."""
    watched.broker.length, watched.broker.end = 50, 80
    watched.acks(60)
    led_by(watched, 1, 0)
    watched.acks(99)
    healthy = watched.broker.shown(99)
    watched.broker.looks[0] = replace(healthy, trouble="later", found_at=None)
    watched.fails("UNKNOWN_PRODUCER_ID")
    eventually(lambda: watched.broker.asked)
    led_by(watched, 2, 1)
    watched.broker.looks.clear()
    watched.later(2)

    assert eventually(watched.kinds) == ["acknowledged_lost"]
    assert watched.told[0].details["last_acknowledged"] == 60


def test_old_leaders_cost_bounded_memory(watched):
    watched.watch._leaders._limit = 10
    for partition in range(100):
        led_by(watched, 1, 0, partition)

    assert len(watched.watch._leaders._known) == 10
