"""The event log: what happens to a producer as lines with fields, one per cause and minute."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from producer_core._internal.log_queue import LogQueue
from producer_core.delivery.dispatch import order_break
from producer_core.delivery.reports import CloseReport
from producer_core.events import Notice
from producer_core.producer.event_log import EventLog
from producer_core.testing import FakeClock
from tests.fixtures.log_lines import Lines
from tests.fixtures.replays import dead_letter

B1, B2 = "b1:9092/bootstrap: Connection refused", "b2:9092/2: Connection refused"


class Rig:
    """An event log with a clock of its own; `texts` waits for the log thread."""

    def __init__(self):
        self.clock, self.lines = FakeClock(0.0), Lines()
        self.queue = LogQueue(clock=self.clock)
        self.logger = logging.Logger("events")
        self.logger.addHandler(self.lines)
        self.log = self.another()

    def another(self, brokers="b1:9092"):
        return EventLog(brokers, log=self.logger, queue=self.queue, clock=self.clock)

    def later(self, seconds):
        assert self.queue.drain(10)
        with self.queue._changed:
            self.clock.advance(seconds)
            self.queue._queue_counts()
            self.queue._wake_thread()

    def texts(self):
        assert self.queue.drain(10)
        texts = self.lines.texts
        self.lines.records.clear()
        return texts


@pytest.fixture
def rig():
    return Rig()


@pytest.fixture
def log(rig):
    return rig.log


def dead(number, code="_MSG_TIMED_OUT", topic="orders"):
    return replace(
        dead_letter(number), topic=topic, code=code, fingerprint=code, error_text=f"{code}: no answer"
    )


def notice(kind, severity="critical", text="", **details):
    return Notice(kind, severity, text, 0.0, details)


LOST = notice("connection_lost", text="No broker is connected: b2:9092/2: Connection refused")
CONNECTED = notice("connected", "info", "Connected to the brokers.")


def connect(rig, log):
    log.notice(CONNECTED)
    rig.texts()


# connection


def test_an_unreachable_broker_is_logged_once_with_its_address(rig, log):
    for _ in range(100):
        log.connection_failed(B1)
    log.connection_failed("b1:9092/1: Connection refused")  # the same broker, after its id is known
    log.connection_failed(B2)

    assert rig.texts() == [
        f"broker connection failed: broker=b1:9092, reason={B1}",
        f"broker connection failed: broker=b2:9092, reason={B2}",
    ]


def test_an_outage_is_logged_with_the_reason_and_its_end_with_the_duration(rig, log):
    connect(rig, log)
    log.notice(LOST)
    rig.later(7.25)
    log.notice(CONNECTED)

    assert rig.texts() == [
        "no broker is connected: reason=b2:9092/2: Connection refused",
        "broker connection restored: down_s=7.2",
    ]
    assert all(record.levelno == logging.WARNING for record in rig.lines.records)


def test_a_first_connection_after_failures_is_logged_with_the_duration(rig, log):
    log.connection_failed(B1)
    rig.later(3)
    log.notice(LOST)
    rig.later(2)
    log.notice(CONNECTED)
    assert rig.texts()[-1] == "broker connection restored: down_s=5.0"


@pytest.mark.parametrize(
    ("level", "texts"), [("INFO", ["broker connected: brokers=b1:9092"]), ("WARNING", [])]
)
def test_a_first_connection_without_failures_is_no_warning(rig, log, level, texts):
    rig.logger.setLevel(level)
    log.notice(CONNECTED)
    assert rig.texts() == texts


def test_one_broker_that_fails_and_responds_again_is_logged_while_others_are_connected(rig, log):
    connect(rig, log)
    log.connection_failed(B2)
    log.client_statistics({"brokers": {"b2:9092/2": {"nodename": "b2:9092", "state": "TRY_CONNECT"}}})
    rig.later(12)
    for _ in range(2):
        log.client_statistics({"brokers": {"b2:9092/2": {"nodename": "b2:9092", "state": "UP"}}})

    assert rig.texts() == [
        f"broker connection failed: broker=b2:9092, reason={B2}",
        "broker connection restored: broker=b2:9092, down_s=12.0",
    ]


def test_a_broker_that_stays_unreachable_is_logged_every_minute_until_it_responds(rig, log):
    connect(rig, log)
    for _ in range(3):
        for _ in range(20):
            log.connection_failed(B2)
        rig.later(61)
    assert [text.partition("refused")[2] for text in rig.texts()] == [
        "", ", repeated=19", ", repeated=20", ", repeated=20",
    ]  # fmt: skip

    log.connection_failed(B2)
    log.client_statistics({"brokers": {"b2:9092/2": {"nodename": "b2:9092", "state": "UP"}}})
    rig.later(120)
    assert rig.texts() == ["broker connection restored: broker=b2:9092, down_s=183.0"]


def test_an_unstable_connection_is_logged_once_a_minute_and_the_last_line_is_its_state(rig, log):
    connect(rig, log)
    for _ in range(10):
        log.notice(LOST)
        rig.later(1)
        log.notice(CONNECTED)
        rig.later(1)
    log.notice(LOST)
    assert len(rig.texts()) == 2

    rig.later(120)
    (line,) = rig.texts()
    assert line.startswith("no broker is connected") and line.endswith("repeated=10")


def test_producers_of_the_same_brokers_share_a_line(rig):
    for log in (rig.another(), rig.another(), rig.another("b9:9092")):
        log.notice(LOST)
    assert len(rig.texts()) == 2


def test_secrets_in_addresses_are_not_logged(rig, log):
    log.connection_failed("sasl_ssl://user:hunter2@b1:9092: refused, password=hunter2")
    (line,) = rig.texts()
    assert "hunter2" not in line


# dead letters


def test_two_hundred_dead_letters_are_logged_as_one_line_per_cause_with_a_count(rig, log):
    for number in range(200):
        log.died(dead(number))
    log.died(dead(200, code="MSG_SIZE_TOO_LARGE"))
    assert [text.partition(", error")[0] for text in rig.texts()] == [
        "dead letter: topic=orders, code=_MSG_TIMED_OUT",
        "dead letter: topic=orders, code=MSG_SIZE_TOO_LARGE",
    ]

    rig.later(61)
    (line,) = rig.texts()
    assert line == (
        "dead letter: topic=orders, code=_MSG_TIMED_OUT, error=_MSG_TIMED_OUT: no answer, repeated=199"
    )


def test_the_fields_of_a_line_are_also_extra_fields(rig, log):
    log.died(dead(1))
    rig.queue.drain(10)
    (record,) = rig.lines.records
    assert (record.topic, record.code, record.error) == (
        "orders", "_MSG_TIMED_OUT", "_MSG_TIMED_OUT: no answer",
    )  # fmt: skip


# notices


@pytest.mark.parametrize(
    ("given", "level", "line"),
    [
        (
            notice("journal_full", text="New messages are only in memory."),
            "ERROR",
            "journal full: reason=New messages are only in memory.",
        ),
        (
            notice("journal_available", "info", "The journal accepts messages again."),
            "WARNING",
            "journal has room again: reason=The journal accepts messages again.",
        ),
        (
            notice("journal_damaged", text="17 bytes of j/1.journal cannot be decoded."),
            "ERROR",
            "journal damaged: reason=17 bytes of j/1.journal cannot be decoded.",
        ),
        (
            notice("journal_torn", "warning", "A crash interrupted the last write."),
            "WARNING",
            "journal write interrupted: reason=A crash interrupted the last write.",
        ),
        (
            notice("fenced", text="Another process uses the id 'shop'."),
            "ERROR",
            "producer fenced: reason=Another process uses the id 'shop'.",
        ),
        (
            notice(
                "acknowledged_lost", text="Gone.", subject="orders/0", topic="orders", partition=0, lost=3,
                case="acknowledged_lost", ends=[("a", "b")],
            ),
            "ERROR",
            "acknowledged records lost: reason=Gone., topic=orders, partition=0, lost=3",
        ),
        (
            notice("topic_recreated", "warning", "Deleted.", topic="orders"),
            "WARNING",
            "topic deleted or recreated: reason=Deleted., topic=orders",
        ),
        (
            notice("circuit_opened", "warning", "5 of 5 failed.", topic="orders"),
            "WARNING",
            "circuit opened: reason=5 of 5 failed., topic=orders",
        ),
        (notice("read_back_done", "info", "Complete.", name="shop"), "INFO", "read back done: reason=Complete."),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)  # fmt: skip
def test_a_notice_is_logged_at_its_severity_with_its_numbers_and_names(rig, log, given, level, line):
    log.notice(given)
    log.notice(given)
    rig.queue.drain(10)
    assert [(record.levelname, record.getMessage()) for record in rig.lines.records] == [(level, line)]


def test_a_journal_at_its_limit_logs_two_lines_a_minute_and_last_its_present_state(rig, log):
    full = notice("journal_full", text="The limit of 600 bytes.")
    room = notice("journal_available", "info", "The journal accepts messages again.")
    for _ in range(50):
        log.notice(full)
        log.notice(room)
    texts = rig.texts()
    assert [text.partition(":")[0] for text in texts] == ["journal full", "journal has room again"]

    rig.later(61)
    (line,) = rig.texts()
    assert line == "journal has room again: reason=The journal accepts messages again., repeated=49"


@pytest.mark.parametrize("kind", ["connection_refused", "dedup_degraded"])
def test_an_event_with_a_line_of_its_own_is_not_logged_twice(rig, log, kind):
    log.notice(notice(kind, text="SASL failed"))
    assert rig.texts() == []


# start and close


def test_start_and_close_are_logged_with_the_options_and_the_report(rig, log):
    log.started(delivery="at_least_once")
    log.closed(CloseReport(5, 2, journaled=1), producer="p")
    assert rig.texts() == [
        "producer started: brokers=b1:9092, delivery=at_least_once",
        "producer closed: acknowledged=5, dead=2, journaled=1, lost=0, producer=p",
    ]


def test_a_close_that_loses_messages_is_an_error(rig, log):
    log.closed(CloseReport(5, 2, lost=2))
    rig.queue.drain(10)
    assert rig.lines.records[0].levelname == "ERROR"


# many topics

TOPICS = [f"{name}-{number:03}" for number in range(100) for name in ("orders", "refunds")]


def test_dead_letters_on_many_topics_are_few_lines_that_name_the_count_and_the_first_topics(rig, log):
    """Regression: it was a line for each topic, and no line at all after the first 500."""
    for number, topic in enumerate(TOPICS):
        log.died(dead(number, topic=topic))
    for number, topic in enumerate(TOPICS):
        log.died(dead(number, topic=topic))

    named = [text for text in rig.texts() if text.startswith("dead letter: ")]
    assert [text.split(",")[0] for text in named] == [f"dead letter: topic={topic}" for topic in TOPICS[:5]]
    rig.later(61)
    counts = rig.texts()
    assert len(counts) == 6 and counts[-1] == (
        "dead letters on more topics: code=_MSG_TIMED_OUT, error=_MSG_TIMED_OUT: no answer, topics=195, "
        "names=refunds-002, orders-003, refunds-003, orders-004, refunds-004 and 190 more, repeated=389"
    )


def test_the_first_topic_without_a_line_of_its_own_is_named_at_once(rig, log):
    for number in range(6):
        log.died(dead(number, topic=f"t{number}"))

    assert rig.texts()[-1].endswith("topics=1, names=t5")


def test_a_minute_without_dead_letters_begins_a_new_list_of_topics(rig, log):
    for number in range(20):
        log.died(dead(number, topic=f"t{number}"))
    rig.later(61)
    rig.texts()
    rig.later(61)

    log.died(dead(1, topic="t19"))

    assert rig.texts() == ["dead letter: topic=t19, code=_MSG_TIMED_OUT, error=_MSG_TIMED_OUT: no answer"]


def test_each_code_has_its_own_list_of_topics(rig, log):
    for number in range(5):
        log.died(dead(number, topic=f"t{number}"))
    log.died(dead(6, topic="t6", code="MSG_SIZE_TOO_LARGE"))

    assert rig.texts()[-1].startswith("dead letter: topic=t6, code=MSG_SIZE_TOO_LARGE")


def test_broken_order_on_many_topics_is_few_lines(rig, log):
    for topic in TOPICS:
        log.notice(order_break(topic, 0.0))

    texts = rig.texts()
    assert [text.rpartition("topic=")[2] for text in texts[:5]] == TOPICS[:5]
    assert len(texts) == 6 and texts[5].startswith("order breaks on more topics: topics=1, names=refunds-002")
    rig.later(61)
    (line,) = rig.texts()
    assert "topics=195, names=refunds-002, orders-003" in line and line.endswith("repeated=194")
