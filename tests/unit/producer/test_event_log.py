"""The event log: one line per cause, a count per minute, and no delay by logging handlers."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from producer_core.events import Notice
from producer_core.producer.event_log import EventLog
from tests.fixtures.replays import dead_letter
from tests.support import eventually


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines, self.free = [], threading.Event()
        self.free.set()

    def emit(self, record):
        self.free.wait(60)
        self.lines.append(record.getMessage())


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def log(lines):
    logger = logging.Logger("events")
    logger.addHandler(lines)
    made = EventLog(log=logger)
    yield made
    lines.free.set()
    made.stop(10)


def dead(number, code="_MSG_TIMED_OUT", topic="orders"):
    return replace(
        dead_letter(number), topic=topic, code=code, fingerprint=code, error_text=f"{code}: no answer"
    )


def test_an_unreachable_broker_is_logged_once_with_its_address(log, lines):
    for _ in range(100):
        log.connection_failed("b1:9092/bootstrap: Connection refused")
    log.connection_failed("b2:9092/bootstrap: Connection refused")

    eventually(lambda: len(lines.lines) == 2)
    assert lines.lines[0] == "broker connection failed: reason=b1:9092/bootstrap: Connection refused"


def test_a_recovery_is_logged_but_not_the_first_connection(log, lines):
    log.notice(Notice("connected", "info", "Connected.", 0.0))
    log.notice(Notice("connection_lost", "critical", "No broker is connected: refused", 0.0))
    log.notice(Notice("connected", "info", "Connected.", 0.0))

    eventually(lambda: len(lines.lines) == 2)
    assert lines.lines[1] == "broker connection restored"


def test_damage_of_the_journal_is_logged_with_the_text_of_its_notice(log, lines):
    log.notice(Notice("journal_damaged", "critical", "17 bytes of j/1.journal cannot be decoded.", 0.0))
    log.notice(Notice("journal_torn", "warning", "A crash interrupted the last write.", 0.0))

    eventually(lambda: len(lines.lines) == 2)
    assert lines.lines == [
        "journal damaged: reason=17 bytes of j/1.journal cannot be decoded.",
        "journal write interrupted: reason=A crash interrupted the last write.",
    ]


def test_lost_records_are_logged_with_the_text_of_their_notice(log, lines):
    log.notice(
        Notice("topic_recreated", "warning", "The topic orders was deleted and recreated: 7 lost.", 0.0)
    )
    log.notice(Notice("acknowledged_lost", "critical", "3 acknowledged records of orders are gone.", 0.0))

    eventually(lambda: len(lines.lines) == 2)
    assert lines.lines == [
        "topic deleted or recreated: reason=The topic orders was deleted and recreated: 7 lost.",
        "acknowledged records lost: reason=3 acknowledged records of orders are gone.",
    ]


def test_a_full_journal_is_logged_once_per_minute(lines):
    now = [0.0]
    logger = logging.Logger("events")
    logger.addHandler(lines)
    log = EventLog(log=logger, clock=lambda: now[0])
    full = Notice("journal_full", "critical", "New messages are only in memory.", 0.0)
    for now[0] in (0.0, 1.0, 59.0, 61.0):
        log.notice(full)
        log.notice(replace(full, text="Deliveries cannot be recorded in the journal."))
    log.stop(60)

    assert lines.lines[:2] == [
        "journal full: reason=New messages are only in memory.",
        "journal full: reason=Deliveries cannot be recorded in the journal.",
    ]
    assert lines.lines[2:] == lines.lines[:2]


def test_two_hundred_dead_letters_are_logged_as_one_line_per_cause_with_a_count(log, lines):
    for number in range(200):
        log.died(dead(number))
    log.died(dead(200, code="MSG_SIZE_TOO_LARGE"))
    log.stop(60)

    assert len(lines.lines) == 3
    assert lines.lines[0].startswith("dead letter: topic=orders, code=_MSG_TIMED_OUT, error=")
    assert lines.lines[2].startswith("more dead letters: topic=orders, code=_MSG_TIMED_OUT")
    assert lines.lines[2].endswith("count=199")


def test_a_cause_is_counted_once_per_minute(lines):
    now = [0.0]
    logger = logging.Logger("events")
    logger.addHandler(lines)
    log = EventLog(log=logger, clock=lambda: now[0])
    log.died(dead(1))
    log.died(dead(2))
    eventually(lambda: len(lines.lines) == 1)
    with log._changed:  # the thread must not see the new time before the line
        now[0] = 61.0
        log.connection_failed("wakes the thread")
    eventually(lambda: len(lines.lines) == 3)
    log.stop(60)

    assert [line.split(":")[0] for line in lines.lines] == [
        "dead letter", "broker connection failed", "more dead letters",
    ]  # fmt: skip


def test_a_blocking_handler_delays_no_caller(log, lines):
    lines.free.clear()
    for number in range(50):
        log.died(dead(number, code=f"CODE_{number}"))
    log.notice(Notice("connection_lost", "critical", "No broker is connected", 0.0))
    log.stop(0.0)

    assert lines.lines == []  # the callers have returned


def test_secrets_in_addresses_are_not_logged(log, lines):
    log.connection_failed("sasl_ssl://user:hunter2@b1:9092: refused, password=hunter2")

    eventually(lambda: lines.lines)
    assert "password=hunter2" not in lines.lines[0]
