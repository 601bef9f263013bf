"""Our standing with the broker: what the evidence proves, when it is asked for, and what is told of it."""

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
LAST = Checkpoint(100, 7, 1_790_000_000.0)
HEALTHY = BrokerView(
    exists=True, topic_id="A", low=0, high=150, found_at=100, found_id=id_bytes(SESSION, 7), compacted=False
)


def evidence(trigger="idle", last=LAST, **look):
    return Evidence("orders", 3, trigger, last, replace(HEALTHY, **look), session=SESSION.bytes, topic_id="A")


# what the evidence proves


@pytest.mark.parametrize("trigger", ["out_of_order", "unknown_producer"])
def test_our_record_in_its_place_means_that_the_client_lost_step(trigger):
    finding = classify(evidence(trigger))

    assert (finding.case, finding.kind, finding.severity) == (
        "desynchronised",
        "producer_desynchronised",
        "warning",
    )
    assert "nothing acknowledged is missing" in finding.text
    assert "the log goes from 0 to 150" in finding.text


@pytest.mark.parametrize("trigger", ["idle", "epoch_rose", "not_rising", "asked"])
def test_without_a_code_our_record_in_its_place_is_no_news(trigger):
    assert classify(evidence(trigger)).case == "intact"


@pytest.mark.parametrize("trigger", ["out_of_order", "unknown_producer", "idle", "epoch_rose", "not_rising"])
@pytest.mark.parametrize(
    ("look", "last", "case"),
    [
        ({}, None, "nothing_to_lose"),
        ({"low": 101, "found_at": None}, LAST, "retention_removed"),
        ({"low": 150, "found_at": None}, LAST, "retention_removed"),
        ({"high": 100, "found_at": None}, LAST, "acknowledged_lost"),
        ({"high": 0, "found_at": None}, LAST, "acknowledged_lost"),
        ({"found_id": id_bytes(SESSION, 8)}, LAST, "acknowledged_lost"),
        ({"found_id": id_bytes(uuid.uuid4(), 7)}, LAST, "acknowledged_lost"),
        ({"found_id": None}, LAST, "acknowledged_lost"),
        ({"found_at": 120}, LAST, "acknowledged_lost"),
        ({"found_at": 120, "compacted": None}, LAST, "unknown"),
        ({"found_at": 120, "compacted": True}, LAST, "intact"),
        ({"found_id": id_bytes(SESSION, 8), "compacted": True}, LAST, "acknowledged_lost"),
        ({"topic_id": "B"}, LAST, "topic_recreated"),
        ({"topic_id": "B", "low": 0, "high": 0, "found_at": None}, LAST, "topic_recreated"),
        ({"topic_id": None, "low": 0, "high": 0, "found_at": None}, LAST, "topic_recreated"),
        ({"exists": False, "low": None, "high": None, "found_at": None}, LAST, "topic_recreated"),
        ({"low": None, "high": None, "found_at": None, "trouble": "broker down"}, LAST, "unknown"),
        ({"found_at": None, "trouble": "no permission"}, LAST, "unknown"),
    ],
)
def test_each_case_has_its_proof(trigger, look, last, case):
    finding = classify(evidence(trigger, last, **look))

    assert finding.case == case
    assert finding.advice.endswith(".")
    assert finding.text.endswith(".")


def test_what_is_missing_is_said_in_numbers():
    finding = classify(evidence(high=61, found_at=None))

    assert "offset 100 was acknowledged at 2026-09-21 14:13:20 UTC" in finding.text
    assert "at least 40 are missing" in finding.text
    assert finding.numbers == {
        "last_acknowledged": 100,
        "acknowledged_at": LAST.at,
        "low_watermark": 0,
        "high_watermark": 61,
    }


def test_a_record_whose_sequence_is_not_known_needs_an_id_of_ours_only():
    assert (
        classify(evidence(last=Checkpoint(100, -1, 1.0), found_id=id_bytes(uuid.uuid4(), 4))).case == "intact"
    )
    assert classify(evidence(last=Checkpoint(100, -1, 1.0), found_id=None)).case == "acknowledged_lost"


def test_a_partition_that_was_forgotten_is_not_one_that_has_nothing_to_lose():
    assert classify(replace(evidence(last=None), forgotten=True)).case == "unknown"


@pytest.mark.parametrize(
    ("outcome", "case"),
    [("found", "duplicate_confirmed"), ("not_found", "acknowledged_lost"), ("inconclusive", "unknown")],
)
def test_a_success_without_an_offset_is_looked_for_on_the_topic(outcome, case):
    seen = ProbeResult(outcome, 3, 99 if outcome == "found" else None, 10, "It says so.")

    assert classify(evidence("duplicate", landing=seen)).case == case
    assert classify(evidence("duplicate", None, landing=seen)).case == case


def test_a_duplicate_that_nobody_could_look_for_stays_open():
    assert classify(evidence("duplicate")).case == "unknown"


# what is remembered


def ack(offset, partition=0, topic="orders", seq=None):
    return Acknowledged(topic, partition, offset, 0.01, 10, 1, (offset or 0) + 1000 if seq is None else seq)


def runs(batch):
    told = Acknowledgements.of(batch)
    return [(told[first], told[last]) for first, last in told.runs()]


def plain_runs(batch):
    """What `runs` must give where offsets have no gaps, told item by item."""
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
def test_a_batch_falls_into_runs_of_one_partition(lengths):
    next_offset, batch = [0, 0], []
    for number, length in enumerate(lengths):
        for _ in range(length):
            batch.append(ack(next_offset[number % 2], number % 2))
            next_offset[number % 2] += 1

    assert runs(batch) == plain_runs(batch)


def test_runs_end_at_a_gap_a_step_back_and_a_missing_offset():
    batch = [ack(offset) for offset in [5, 6, 9, 10, 3, 4, None, 5, None, None]]

    assert [(first.offset, last.offset) for first, last in runs(batch)] == [
        (5, 6), (9, 10), (3, 4), (None, None), (5, 5), (None, None), (None, None),
    ]  # fmt: skip
    assert runs([]) == []


def test_memory_is_bounded_and_what_was_forgotten_is_known():
    marks = PartitionCheckpoints(limit=10)
    for number in range(25):
        marks.put(f"t{number % 5}", number // 5, Checkpoint(number, number, 1.0))

    assert len(marks) == 10
    assert sum(len(marks.of(topic)) for topic in marks.topics()) == 10
    assert marks.forgotten
    assert marks.get("t4", 4) == Checkpoint(24, 24, 1.0)


def test_after_a_loss_what_was_acknowledged_since_is_the_mark():
    marks = PartitionCheckpoints(limit=10)
    marks.put("orders", 0, Checkpoint(100, 1, 1.0))
    marks.put("orders", 0, Checkpoint(51, 2, 2.0))
    before = marks.get("orders", 0)
    marks.lost("orders", 0, Checkpoint(100, 1, 1.0))

    assert before == Checkpoint(100, 1, 1.0)
    assert marks.get("orders", 0) == Checkpoint(51, 2, 2.0)
    marks.lost("orders", 0, Checkpoint(51, 2, 2.0))
    assert marks.get("orders", 0) is None


# when the broker is asked


class FakeAsker:
    """A broker in a dict: partitions to looks; what is not there is healthy as asked."""

    def __init__(self, session=SESSION):
        self.session = session
        self.looks, self.asked, self.ids = {}, [], {"orders": "A"}
        self.gate = threading.Event()
        self.gate.set()

    def topic_ids(self, topics, timeout):
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def look(self, wanted, timeout):
        self.gate.wait(timeout)
        self.asked += wanted
        return [self.looks.get(item.partition) or self.healthy(item) for item in wanted]

    def healthy(self, item):
        if item.offset is None:
            return BrokerView(exists=True, low=0, high=0)
        found = id_bytes(self.session, item.offset + 1000)
        return BrokerView(
            exists=True, topic_id="A", low=0, high=item.offset + 1, found_at=item.offset, found_id=found
        )


class Watched:
    """A watch with its clock, its broker and what it told."""

    def __init__(self, **options):
        self.now, self.told, self.broker = 1_790_000_000.0, [], FakeAsker()
        options = {"confirm": 0.0, "clock": lambda: self.now, "ids": MessageIds(SESSION), **options}
        self.watch = loss_monitor(self.broker, self.told.append, **options)
        self.watch.start()

    def acks(self, *offsets, partition=0):
        self.watch.acknowledged([ack(offset, partition) for offset in offsets])

    def fails(self, code, topic="orders"):
        self.watch.attempt_failed(
            AttemptFailed("m", topic, code, "fatal", "the library's words", 1, None, True, self.now)
        )

    def later(self, seconds):
        self.now += seconds
        with self.watch._changed:
            self.watch._changed.notify_all()

    def cases(self):
        return [finding.case for finding in self.watch.findings]

    def kinds(self):
        return [notice.kind for notice in self.told]


@pytest.fixture
def watched():
    made = Watched()
    yield made
    made.broker.gate.set()
    made.watch.stop()


def test_acknowledgements_alone_ask_nothing(watched):
    for start in range(0, 1000, 100):
        watched.acks(*range(start, start + 100))
        watched.later(5)

    assert (watched.broker.asked, watched.told) == ([], [])


def test_an_idle_partition_that_is_written_again_is_looked_at_where_it_was(watched):
    watched.acks(5)
    watched.later(61)
    watched.acks(6)
    watched.later(1)

    assert eventually(watched.cases) == ["intact"]
    assert [item.offset for item in watched.broker.asked] == [5]
    assert watched.told == []


def test_what_retention_took_from_an_idle_partition_is_noted(watched):
    watched.acks(5)
    watched.broker.looks[0] = BrokerView(exists=True, low=6, high=7)
    watched.later(61)
    watched.acks(6)
    watched.later(1)

    (notice,) = eventually(lambda: watched.told)
    assert (notice.kind, notice.severity) == ("retention_removed", "info")
    assert notice.details["subject"] == "orders/0"
    assert (notice.details["low_watermark"], notice.details["last_acknowledged"]) == (6, 5)


def test_an_offset_that_does_not_rise_is_loss_when_the_old_record_is_gone(watched):
    watched.acks(*range(100, 150))
    watched.broker.looks[0] = BrokerView(exists=True, topic_id="A", low=0, high=132)
    watched.acks(*range(130, 132))
    watched.later(1)

    (notice,) = eventually(lambda: watched.told)
    assert (notice.kind, notice.severity) == ("acknowledged_lost", "critical")
    assert "at least 18 are missing" in notice.text
    assert set(watched.watch.lost) == {("orders", 0)}


def test_a_topic_goes_on_after_a_loss_once_somebody_decided(watched):
    watched.acks(*range(100, 150))
    watched.broker.looks[0] = BrokerView(exists=True, topic_id="A", low=0, high=132)
    watched.acks(*range(130, 132))
    watched.later(1)
    eventually(lambda: watched.kinds() == ["acknowledged_lost"])
    assert watched.watch.lost_on("orders", 0)

    assert watched.watch.resume_topic("payments") == 0
    assert watched.watch.resume_topic("orders") == 1
    assert watched.watch.resume_topic("orders") == 0

    assert not watched.watch.lost_on("orders", 0)
    eventually(lambda: watched.kinds() == ["acknowledged_lost", "loss_decided"])
    assert watched.told[-1].details["ends"] == [("acknowledged_lost", watched.told[0].details["subject"])]


def test_a_batch_that_runs_past_the_old_end_is_looked_at_too(watched):
    watched.acks(*range(100, 150))
    watched.acks(*range(130, 200))
    watched.later(1)

    eventually(lambda: watched.broker.asked)
    assert watched.broker.asked[0].offset == 149


def test_the_same_partition_is_not_looked_at_time_and_again(watched):
    watched.acks(100)
    for offset in range(50, 90):
        watched.acks(offset)
        watched.later(1)
    eventually(watched.cases)

    assert len(watched.broker.asked) == 1


def test_a_loss_is_said_only_when_two_looks_show_it(watched):
    watched.watch._inquiry._confirm = 5.0
    watched.acks(100)
    watched.broker.looks[0] = BrokerView(exists=True, low=0, high=50)
    watched.acks(60)
    watched.later(1)
    eventually(lambda: len(watched.broker.asked) == 1)
    eventually(
        lambda: [
            question for question in watched.watch._inquiry.questions._open.values() if question.seen_gone
        ]
    )
    watched.broker.looks.clear()  # the new leader has caught up
    watched.later(5)

    assert eventually(watched.cases) == ["intact"]
    assert watched.told == []


def test_out_of_order_counts_as_loss_until_the_evidence_is_read(watched):
    watched.acks(9)
    watched.broker.gate.clear()
    watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")

    (suspicion,) = eventually(lambda: watched.told)
    assert (suspicion.kind, suspicion.severity) == ("loss_suspected", "critical")
    assert watched.watch.await_finding("orders", 0, 0.05) is None
    watched.broker.gate.set()
    finding = watched.watch.await_finding("orders", 0, 10)

    assert finding.case == "desynchronised"
    _, answer = eventually(lambda: watched.told[1:] and watched.told)
    assert (answer.kind, answer.severity) == ("producer_desynchronised", "warning")
    assert answer.details["ends"] == [("loss_suspected", "orders")]


def test_out_of_order_with_a_record_missing_is_confirmed_as_loss(watched):
    watched.acks(9)
    watched.broker.looks[0] = BrokerView(exists=True, low=0, high=4)
    watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")

    assert watched.watch.await_finding("orders", 0, 10).case == "acknowledged_lost"
    eventually(lambda: watched.kinds() == ["loss_suspected", "acknowledged_lost"])
    assert watched.told[1].details["ends"] == [("loss_suspected", "orders")]


def test_many_partitions_under_one_suspicion_are_told_as_one_but_each_loss_by_itself(watched):
    for partition in range(12):
        watched.acks(9, partition=partition)
    watched.broker.looks[4] = watched.broker.looks[7] = BrokerView(exists=True, low=0, high=4)
    for _ in range(50):
        watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")

    eventually(lambda: len(watched.cases()) == 12)
    eventually(lambda: watched.told[-1].details.get("ends"))
    lost = [notice.details["subject"] for notice in watched.told if notice.kind == "acknowledged_lost"]
    assert watched.kinds()[0] == "loss_suspected"
    assert lost == ["orders/4", "orders/7"]
    assert len(watched.told) <= 4


def test_what_follows_an_answer_closely_is_looked_at_again_but_cried_out_only_if_true(watched):
    watched.acks(9)
    watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")
    eventually(lambda: len(watched.told) == 2)
    for _ in range(100):
        watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")

    assert watched.watch.await_finding("orders", 0, 10).case == "desynchronised"
    assert not watched.watch.lost_on("orders", 10)
    assert len(watched.broker.asked) == 1
    watched.later(10)
    eventually(lambda: len(watched.cases()) == 2)
    watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")
    watched.broker.looks[0] = BrokerView(exists=True, low=0, high=4)
    watched.later(10)
    eventually(lambda: len(watched.cases()) == 3)

    assert watched.kinds() == ["loss_suspected", "producer_desynchronised", "acknowledged_lost"]
    assert watched.watch.lost_on("orders", 0)


def test_a_loss_suspected_is_waited_for_before_anything_is_sent_again(watched):
    watched.acks(9)
    watched.broker.gate.clear()
    watched.fails("OUT_OF_ORDER_SEQUENCE_NUMBER")
    watched.broker.looks[0] = BrokerView(exists=True, low=0, high=4)
    threading.Timer(0.1, watched.broker.gate.set).start()

    assert watched.watch.lost_on("orders", 10)
    assert not watched.watch.lost_on("payments", 10)


def test_an_unknown_producer_is_told_once_the_evidence_is_read(watched):
    watched.acks(9)
    watched.broker.looks[0] = BrokerView(exists=True, low=20, high=20)
    watched.fails("UNKNOWN_PRODUCER_ID")

    assert watched.watch.await_finding("orders", 0, 10).case == "retention_removed"
    assert eventually(watched.kinds) == ["retention_removed"]


def test_nothing_acknowledged_means_nothing_to_lose(watched):
    watched.fails("UNKNOWN_PRODUCER_ID", topic="new")

    assert watched.watch.await_finding("new", 0, 10).case == "nothing_to_lose"
    assert eventually(watched.kinds) == ["nothing_to_lose"]
    assert watched.watch.await_finding("never-heard-of", 3, 10).case == "nothing_to_lose"


def test_a_fatal_error_names_its_partition(watched):
    watched.acks(9, partition=0)
    watched.acks(9, partition=1)
    text = (
        "The Kafka client failed and was re-created: ProduceRequest for orders [1] with 1 message(s) failed"
    )
    code = {"code": "OUT_OF_ORDER_SEQUENCE_NUMBER"}
    watched.watch.notice(Notice("fatal_error", "critical", text, watched.now, code))

    assert watched.watch.await_finding("orders", 1, 10).case == "desynchronised"
    assert [item.partition for item in watched.broker.asked] == [1]


def test_a_fatal_error_without_a_partition_is_about_all_of_them(watched):
    for partition in range(3):
        watched.acks(9, partition=partition)
    code = {"code": "OUT_OF_ORDER_SEQUENCE_NUMBER"}
    watched.watch.notice(Notice("fatal_error", "critical", "It failed.", watched.now, code))
    watched.watch.notice(Notice("fatal_error", "critical", "It failed.", watched.now, {"code": "_FENCED"}))
    watched.watch.notice(Notice("connected", "info", "Connected.", watched.now))

    eventually(lambda: watched.cases() == ["desynchronised"] * 3)


def statistics(epoch, producer_id=5):
    return {"eos": {"producer_id": producer_id, "producer_epoch": epoch}}


def test_a_rise_of_the_epoch_is_recorded_and_every_partition_looked_at(watched):
    watched.acks(3, partition=0)
    watched.acks(4, partition=1)
    watched.watch.client_statistics(statistics(0))
    watched.watch.client_statistics(statistics(1))

    (notice,) = eventually(lambda: watched.told)
    assert (notice.kind, notice.severity) == ("epoch_rose", "info")
    assert (notice.details["old"], notice.details["new"]) == (0, 1)
    assert "does not tell" in notice.text
    eventually(lambda: len(watched.watch._inquiry.questions) == 2)
    watched.later(1)
    eventually(lambda: watched.cases() == ["intact", "intact"])


def test_many_rises_are_told_together_with_what_explains_them(watched):
    watched.watch.client_statistics(statistics(0))
    watched.watch.client_statistics(statistics(1))
    for epoch in range(2, 30):
        watched.fails("POLICY_VIOLATION")
        watched.watch.client_statistics(statistics(epoch))
        watched.later(1)
    watched.later(60)
    watched.watch.client_statistics(statistics(30))

    eventually(lambda: len(watched.told) == 2)
    assert [(item.details["old"], item.details["new"]) for item in watched.told] == [(0, 1), (1, 30)]
    assert "POLICY_VIOLATION on orders" in watched.told[1].text


def test_a_new_client_begins_its_epoch_anew(watched):
    watched.watch.client_statistics(statistics(-1, -1))
    watched.watch.client_statistics(statistics(4))
    watched.watch.client_statistics(statistics(0, 6))
    watched.watch.client_statistics({})
    watched.watch.client_statistics(statistics(2, 7))

    watched.watch.check("orders", 0)
    watched.watch.await_finding("orders", 0, 10)
    assert watched.told == []


def test_a_success_without_an_offset_asks_for_that_very_message(watched):
    watched.acks(3)
    watched.watch.acknowledged([ack(None, seq=77)])

    wanted = eventually(lambda: watched.broker.asked)[0]
    assert wanted.message_id == f"{SESSION}-77"


def test_what_nobody_can_say_is_asked_again_later_and_then_said_once(watched):
    watched.acks(9)
    watched.broker.looks[0] = BrokerView(trouble="the broker is down")
    watched.fails("UNKNOWN_PRODUCER_ID")
    for tries in range(1, 9):
        eventually(lambda tries=tries: len(watched.broker.asked) >= tries)
        eventually(lambda: not watched.watch._inquiry.questions.due(watched.now, 10))
        watched.later(61)

    eventually(lambda: watched.kinds() == ["standing_unknown"])
    assert watched.watch.await_finding("orders", 0, 10).case == "unknown"
    watched.broker.looks.clear()
    watched.later(61)
    assert eventually(lambda: watched.kinds()[1:]) == ["producer_desynchronised"]


def test_a_missing_permission_is_said_once_for_a_topic(watched):
    watched.broker.looks[0] = watched.broker.looks[1] = BrokerView(trouble="no READ", refused=True)
    for round_ in range(3):
        for partition in (0, 1):
            watched.acks(round_, partition=partition)
        watched.later(100)
        eventually(lambda: not watched.watch._inquiry.questions.due(watched.now, 10))

    eventually(lambda: watched.kinds() == ["standing_unknown"])


def test_a_topic_that_was_made_again_is_told_once_and_its_marks_go(watched):
    for partition in range(3):
        watched.acks(9, partition=partition)
    eventually(lambda: watched.watch._inquiry.ids or watched.later(1))
    for partition in range(3):
        watched.broker.looks[partition] = BrokerView(exists=True, topic_id="B", low=0, high=1)
        watched.acks(0, partition=partition)
    watched.later(1)

    eventually(lambda: watched.kinds() == ["topic_recreated"])
    assert watched.told[0].details["subject"] == "orders"
    assert len(watched.watch._inquiry.marks) == 0
    assert watched.watch._inquiry.ids == {"orders": "B"}


def test_marks_of_an_earlier_run_are_checked_when_the_partition_is_written(watched):
    watched.watch.remember({("orders", 0): 40})
    watched.acks(41)
    watched.later(1)

    eventually(lambda: watched.broker.asked)
    assert watched.broker.asked[0].offset == 40


def test_questions_and_findings_are_bounded():
    watched = Watched(max_questions=20)
    for partition in range(2000):
        watched.acks(1, partition=partition)
    watched.later(61)
    watched.broker.gate.clear()
    for partition in range(2000):
        watched.acks(2, partition=partition)

    assert len(watched.watch._inquiry.questions) == 20
    assert watched.watch._inquiry.questions.skipped == 1980
    watched.broker.gate.set()
    watched.watch.stop()


def test_a_suspicion_is_asked_once_more_at_the_end():
    watched = Watched()
    watched.acks(9)
    watched.fails("UNKNOWN_PRODUCER_ID")
    watched.watch.stop()

    assert watched.cases() == ["desynchronised"]


def test_without_somebody_to_ask_it_only_remembers():
    told = []
    watch = AckedLogMonitor(None, told.append)
    watch.start()
    watch.acknowledged([ack(5), ack(None)])
    watch.acknowledged([ack(1)])
    watch.attempt_failed(AttemptFailed("m", "orders", "UNKNOWN_PRODUCER_ID", "fatal", "", 1, None, True, 1.0))
    watch.check("orders", 0)

    assert len(watch._inquiry.questions) == 0
    assert watch.await_finding("orders", 0, 1) is None
    watch.stop()
    assert told == []
