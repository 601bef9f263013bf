"""Loss detection: the case that each evidence proves, the triggers of a check, and the notices."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pytest

from producer_core.delivery.loss_detection import AckedLogMonitor, BrokerView, Checkpoint, Evidence, classify
from producer_core.delivery.loss_detection.ack_checkpoints import PartitionCheckpoints
from producer_core.events import Acknowledged, AttemptFailed, Notice
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import MessageIds, id_bytes
from producer_core.metrics.ack_batch import Acknowledgements
from tests.factories import loss_monitor
from tests.support import eventually

SESSION = uuid.uuid4()
CHECKPOINT = Checkpoint(100, 7, 1_790_000_000.0)
VIEW = BrokerView(
    exists=True, topic_id="A", low=0, high=150, found_at=100, found_id=id_bytes(SESSION, 7), compacted=False
)


def evidence(trigger="idle", last=CHECKPOINT, **view):
    return Evidence("orders", 3, trigger, last, replace(VIEW, **view), session=SESSION.bytes, topic_id="A")


# classification of the evidence


@pytest.mark.parametrize("trigger", ["out_of_order", "unknown_producer"])
def test_an_own_record_at_its_offset_means_that_the_client_is_desynchronised(trigger):
    finding = classify(evidence(trigger))

    assert (finding.case, finding.kind, finding.severity) == (
        "desynchronised",
        "producer_desynchronised",
        "warning",
    )
    assert "no acknowledged record is missing" in finding.text
    assert "the log goes from 0 to 150" in finding.text


@pytest.mark.parametrize("trigger", ["idle", "epoch_rose", "not_rising", "asked"])
def test_without_an_error_code_an_own_record_at_its_offset_is_intact(trigger):
    assert classify(evidence(trigger)).case == "intact"


@pytest.mark.parametrize("trigger", ["out_of_order", "unknown_producer", "idle", "epoch_rose", "not_rising"])
@pytest.mark.parametrize(
    ("view", "last", "case"),
    [
        ({}, None, "nothing_to_lose"),
        ({"low": 101, "found_at": None}, CHECKPOINT, "retention_removed"),
        ({"low": 150, "found_at": None}, CHECKPOINT, "retention_removed"),
        ({"high": 100, "found_at": None}, CHECKPOINT, "acknowledged_lost"),
        ({"high": 0, "found_at": None}, CHECKPOINT, "acknowledged_lost"),
        ({"found_id": id_bytes(SESSION, 8)}, CHECKPOINT, "acknowledged_lost"),
        ({"found_id": id_bytes(uuid.uuid4(), 7)}, CHECKPOINT, "acknowledged_lost"),
        ({"found_id": None}, CHECKPOINT, "acknowledged_lost"),
        ({"found_at": 120}, CHECKPOINT, "acknowledged_lost"),
        ({"found_at": 120, "compacted": None}, CHECKPOINT, "unknown"),
        ({"found_at": 120, "compacted": True}, CHECKPOINT, "intact"),
        ({"found_id": id_bytes(SESSION, 8), "compacted": True}, CHECKPOINT, "acknowledged_lost"),
        ({"topic_id": "B"}, CHECKPOINT, "topic_recreated"),
        ({"topic_id": "B", "low": 0, "high": 0, "found_at": None}, CHECKPOINT, "topic_recreated"),
        ({"topic_id": None, "low": 0, "high": 0, "found_at": None}, CHECKPOINT, "topic_recreated"),
        ({"exists": False, "low": None, "high": None, "found_at": None}, CHECKPOINT, "topic_recreated"),
        ({"low": None, "high": None, "found_at": None, "problem": "broker down"}, CHECKPOINT, "unknown"),
        ({"found_at": None, "problem": "no permission"}, CHECKPOINT, "unknown"),
    ],
)
def test_each_case_is_proved_by_its_evidence(trigger, view, last, case):
    finding = classify(evidence(trigger, last, **view))

    assert finding.case == case
    assert finding.advice.endswith(".")
    assert finding.text.endswith(".")


def test_a_loss_is_reported_with_numbers():
    finding = classify(evidence(high=61, found_at=None))

    assert "offset 100 was acknowledged at 2026-09-21 14:13:20 UTC" in finding.text
    assert "At least 40 are missing" in finding.text
    assert finding.numbers == {
        "last_acknowledged": 100,
        "acknowledged_at": CHECKPOINT.at,
        "low_watermark": 0,
        "high_watermark": 61,
    }


def test_a_checkpoint_without_a_sequence_matches_any_record_with_an_id():
    assert (
        classify(evidence(last=Checkpoint(100, -1, 1.0), found_id=id_bytes(uuid.uuid4(), 4))).case == "intact"
    )
    assert classify(evidence(last=Checkpoint(100, -1, 1.0), found_id=None)).case == "acknowledged_lost"


def test_a_partition_whose_checkpoint_was_evicted_is_unknown():
    assert classify(replace(evidence(last=None), evicted=True)).case == "unknown"


@pytest.mark.parametrize(
    ("outcome", "case"),
    [("found", "duplicate_confirmed"), ("not_found", "acknowledged_lost"), ("inconclusive", "unknown")],
)
def test_a_success_without_an_offset_is_looked_up_on_the_topic(outcome, case):
    found = ProbeResult(outcome, 3, 99 if outcome == "found" else None, 10, "A text.")

    assert classify(evidence("duplicate", probe=found)).case == case
    assert classify(evidence("duplicate", None, probe=found)).case == case


def test_a_duplicate_that_could_not_be_looked_up_is_unknown():
    assert classify(evidence("duplicate")).case == "unknown"


# checkpoints


def ack(offset, partition=0, topic="orders", seq=None):
    return Acknowledged(topic, partition, offset, 0.01, 10, 1, (offset or 0) + 1000 if seq is None else seq)


def runs(batch):
    acks = Acknowledgements.of(batch)
    return [(acks[first], acks[last]) for first, last in acks.runs()]


def expected_runs(batch):
    """Return the runs for offsets without gaps, computed item by item."""
    found = []
    for item in batch:
        previous = found[-1][1] if found else None
        if (
            previous is not None
            and previous.offset is not None
            and item.offset == previous.offset + 1
            and item[:2] == previous[:2]
        ):
            found[-1] = (found[-1][0], item)
        else:
            found.append((item, item))
    return found


@pytest.mark.parametrize("lengths", [[1], [2], [3, 1, 2], [1000], [257, 1, 700, 64, 5], [1] * 50])
def test_a_batch_is_divided_into_runs_of_one_partition(lengths):
    next_offset, batch = [0, 0], []
    for number, length in enumerate(lengths):
        for _ in range(length):
            batch.append(ack(next_offset[number % 2], number % 2))
            next_offset[number % 2] += 1

    assert runs(batch) == expected_runs(batch)


def test_runs_end_at_a_gap_a_lower_offset_and_a_missing_offset():
    batch = [ack(offset) for offset in [5, 6, 9, 10, 3, 4, None, 5, None, None]]

    assert [(first.offset, last.offset) for first, last in runs(batch)] == [
        (5, 6), (9, 10), (3, 4), (None, None), (5, 5), (None, None), (None, None),
    ]  # fmt: skip
    assert runs([]) == []


def test_checkpoints_are_limited_and_evictions_are_recorded():
    checkpoints = PartitionCheckpoints(limit=10)
    for number in range(25):
        checkpoints.put(f"t{number % 5}", number // 5, Checkpoint(number, number, 1.0))

    assert len(checkpoints) == 10
    assert sum(len(checkpoints.of(topic)) for topic in checkpoints.topics()) == 10
    assert checkpoints.evicted
    assert checkpoints.get("t4", 4) == Checkpoint(24, 24, 1.0)


def test_after_a_loss_the_newest_acknowledgement_becomes_the_checkpoint():
    checkpoints = PartitionCheckpoints(limit=10)
    checkpoints.put("orders", 0, Checkpoint(100, 1, 1.0))
    checkpoints.put("orders", 0, Checkpoint(51, 2, 2.0))
    before = checkpoints.get("orders", 0)
    checkpoints.mark_lost("orders", 0, Checkpoint(100, 1, 1.0))

    assert before == Checkpoint(100, 1, 1.0)
    assert checkpoints.get("orders", 0) == Checkpoint(51, 2, 2.0)
    checkpoints.mark_lost("orders", 0, Checkpoint(51, 2, 2.0))
    assert checkpoints.get("orders", 0) is None


# triggers and notices


class FakeBroker:
    """A broker in memory. Partitions without a view in `views` return the queried record."""

    def __init__(self, session=SESSION):
        self.session = session
        self.views, self.queries, self.ids = {}, [], {"orders": "A"}
        self.gate = threading.Event()
        self.gate.set()

    def topic_ids(self, topics, timeout):
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def query(self, queries, timeout):
        self.gate.wait(timeout)
        self.queries += queries
        return [self.views.get(item.partition) or self.healthy_view(item) for item in queries]

    def healthy_view(self, item):
        if item.offset is None:
            return BrokerView(exists=True, low=0, high=0)
        found = id_bytes(self.session, item.offset + 1000)
        return BrokerView(
            exists=True, topic_id="A", low=0, high=item.offset + 1, found_at=item.offset, found_id=found
        )


class MonitorRig:
    """A monitor with its clock, its broker and the notices it emitted."""

    def __init__(self, **options):
        self.now, self.notices, self.broker = 1_790_000_000.0, [], FakeBroker()
        options = {"confirm_delay": 0.0, "clock": lambda: self.now, "ids": MessageIds(SESSION), **options}
        self.monitor = loss_monitor(self.broker, self.notices.append, **options)
        self.monitor.start()

    def acknowledge(self, *offsets, partition=0):
        self.monitor.acknowledged([ack(offset, partition) for offset in offsets])

    def fail(self, code, topic="orders"):
        self.monitor.attempt_failed(
            AttemptFailed("m", topic, code, "fatal", "an error text", 1, None, True, self.now)
        )

    def advance(self, seconds):
        self.now += seconds
        with self.monitor._changed:
            self.monitor._changed.notify_all()

    def cases(self):
        return [finding.case for finding in self.monitor.findings]

    def kinds(self):
        return [notice.kind for notice in self.notices]


@pytest.fixture
def rig():
    rig = MonitorRig()
    yield rig
    rig.broker.gate.set()
    rig.monitor.stop()


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


def test_callers_wait_for_the_check_of_a_suspected_loss(rig):
    rig.acknowledge(9)
    rig.broker.gate.clear()
    rig.fail("OUT_OF_ORDER_SEQUENCE_NUMBER")
    rig.broker.views[0] = BrokerView(exists=True, low=0, high=4)
    threading.Timer(0.1, rig.broker.gate.set).start()

    assert rig.monitor.lost_on("orders", 10)
    assert not rig.monitor.lost_on("payments", 10)


def test_an_unknown_producer_is_reported_after_the_evidence_is_read(rig):
    rig.acknowledge(9)
    rig.broker.views[0] = BrokerView(exists=True, low=20, high=20)
    rig.fail("UNKNOWN_PRODUCER_ID")

    assert rig.monitor.await_finding("orders", 0, 10).case == "retention_removed"
    assert eventually(rig.kinds) == ["retention_removed"]


def test_a_topic_without_acknowledgements_has_nothing_to_lose(rig):
    rig.fail("UNKNOWN_PRODUCER_ID", topic="new")

    assert rig.monitor.await_finding("new", 0, 10).case == "nothing_to_lose"
    assert eventually(rig.kinds) == ["nothing_to_lose"]
    assert rig.monitor.await_finding("never-used", 3, 10).case == "nothing_to_lose"


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
    assert "does not report" in notice.text
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


def test_a_success_without_an_offset_queries_that_message(rig):
    rig.acknowledge(3)
    rig.monitor.acknowledged([ack(None, seq=77)])

    query = eventually(lambda: rig.broker.queries)[0]
    assert query.message_id == f"{SESSION}-77"


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


def test_checkpoints_of_an_earlier_run_are_checked_when_the_partition_is_written(rig):
    rig.monitor.remember({("orders", 0): 40})
    rig.acknowledge(41)
    rig.advance(1)

    eventually(lambda: rig.broker.queries)
    assert rig.broker.queries[0].offset == 40


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
