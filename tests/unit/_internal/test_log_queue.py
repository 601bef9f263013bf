"""The log queue: a thread writes the lines, the same cause at most once a minute, and a full queue counts its drops."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref

import pytest

from producer_core._internal import log_queue
from producer_core._internal.log_queue import Line, LogQueue
from producer_core._internal.queued_logger import QueuedLogger
from producer_core.testing import FakeClock
from tests.fixtures.log_lines import Lines
from tests.support import eventually


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def logger(lines):
    made = logging.Logger("queued", logging.DEBUG)
    made.addHandler(lines)
    return made


@pytest.fixture
def clock():
    return FakeClock(0.0)


@pytest.fixture
def queue(lines, clock):
    made = LogQueue(clock=clock)
    yield made
    lines.free.set()
    assert made.drain(10)


@pytest.fixture
def log(logger, queue):
    return QueuedLogger(logger, queue=queue)


def a_minute_later(queue, clock, seconds=60.0):
    with queue._changed:
        clock.advance(seconds)
        queue._changed.notify_all()


def test_a_line_has_the_time_thread_and_place_of_its_call(log, queue, lines):
    lines.free.clear()
    log.warning("disk", extra={"used": 7})
    lines.free.set()
    queue.drain(10)

    (record,) = lines.records
    assert (record.levelname, record.name, record.getMessage(), record.used) == (
        "WARNING",
        "queued",
        "disk",
        7,
    )
    assert record.threadName == threading.current_thread().name
    assert record.thread == threading.get_ident()
    assert record.filename == "test_log_queue.py"
    assert record.funcName == "test_a_line_has_the_time_thread_and_place_of_its_call"


def test_a_handler_that_blocks_delays_no_caller_and_no_close_for_longer_than_its_limit(log, queue, lines):
    lines.free.clear()
    for number in range(50):
        log.warning("disk", extra={"path": str(number)})

    assert queue.drain(0.01) is False
    assert lines.records == []


def test_the_level_is_checked_before_a_line_is_queued(logger, log, queue, lines):
    logger.setLevel(logging.ERROR)
    log.warning("disk")
    queue.drain(10)
    assert lines.records == []


def test_the_same_cause_is_written_once_a_minute_with_a_count(log, queue, lines, clock):
    for number in range(20):
        log.error("disk full", extra={"path": "a", "size": number})
    log.error("disk full", extra={"path": "b", "size": 1})
    eventually(lambda: len(lines.texts) == 2)

    a_minute_later(queue, clock)

    eventually(lambda: len(lines.texts) == 3)
    assert lines.texts == ["disk full", "disk full", "disk full: repeated=19"]
    assert (lines.records[2].path, lines.records[2].repeated) == ("a", 19)


def test_a_cause_that_continues_is_written_every_minute(log, queue, lines, clock):
    log.error("disk full")
    for minute in range(1, 4):
        for _ in range(minute):
            log.error("disk full")
        a_minute_later(queue, clock)
        eventually(lambda minute=minute: len(lines.texts) == minute + 1)

    assert lines.texts == [
        "disk full",
        "disk full: repeated=1",
        "disk full: repeated=2",
        "disk full: repeated=3",
    ]


def test_causes_differ_by_name_but_not_by_the_numbers_in_an_error(log, queue, lines):
    for number in range(5):
        log.error("read failed", extra={"topic": f"orders-{number}", "error": "no answer"})
        log.error("write failed", extra={"topic": "orders", "error": f"timed out after {number} ms"})
    queue.drain(10)
    assert sorted(lines.texts) == ["read failed"] * 5 + ["write failed"]


def test_the_type_of_an_exception_belongs_to_the_cause(log, queue, lines):
    for error in (ValueError(1), ValueError(2), KeyError(3)):
        try:
            raise error
        except Exception:
            log.exception("callback failed")
    queue.drain(10)
    assert [record.exc_info[0] for record in lines.records] == [ValueError, KeyError]


class Held:
    pass


def test_exceptions_of_one_type_are_one_cause_whatever_their_text(log, queue, lines):
    for text in ("the order is too old", "no such customer", "the order is too old"):
        try:
            raise ValueError(text)
        except ValueError:
            log.exception("callback failed", extra={"topic": "orders"})
    queue.drain(10)
    assert lines.texts == ["callback failed"]


def test_a_logged_exception_keeps_no_object_of_its_caller_in_memory(log, queue, lines):
    def call():
        held = Held()
        try:
            raise ValueError
        except ValueError:
            log.exception("callback failed")
        return weakref.ref(held)

    held = [call(), call()]
    eventually(lambda: lines.records)
    lines.records.clear()
    gc.collect()
    eventually(lambda: [one() for one in held] == [None, None], 10)


def test_messages_of_the_same_error_are_one_cause(log, queue, lines):
    for number in range(5):
        log.warning("dead letter", extra={"message_id": f"id-{number}", "topic": "orders"})
    queue.drain(10)
    assert lines.texts == ["dead letter"]


def test_texts_without_fields_are_compared_without_their_numbers(log, queue, lines):
    for text in ("RESOLVED: latency", "RESOLVED: errors", "ALERT errors: 0.5 > 0.1", "ALERT errors: 1 > 0.1"):
        log.warning(text)
    queue.drain(10)
    assert lines.texts == ["RESOLVED: latency", "RESOLVED: errors", "ALERT errors: 0.5 > 0.1"]


def test_a_newer_state_replaces_the_count_of_the_older_one(log, queue, lines, clock):
    for state in ("down", "up", "down", "up", "down"):
        log.warning(state, group="connection")
    eventually(lambda: lines.texts == ["down", "up"])

    a_minute_later(queue, clock)

    eventually(lambda: len(lines.texts) == 3)
    queue.drain(10)
    assert lines.texts == ["down", "up", "down: repeated=2"]


def test_a_full_queue_drops_new_lines_and_writes_their_number(monkeypatch, logger, queue, lines):
    monkeypatch.setattr(log_queue, "_MAX_LINES", 3)
    monkeypatch.setattr(log_queue, "_LOGGER", logger)
    lines.free.clear()
    for number in range(10):
        queue.put(Line(logger, logging.WARNING, f"line {number}"))
        if number == 0:
            eventually(lambda: not queue._lines)  # the thread writes it now, and blocks
    lines.free.set()
    queue.drain(10)
    eventually(lambda: len(lines.texts) == 5)

    assert lines.texts == ["line 0", "line 1", "line 2", "line 3", "log records dropped: count=6"]
    assert lines.records[-1].count == 6


def test_causes_beyond_the_limit_are_dropped_and_counted(monkeypatch, logger, log, queue, lines, clock):
    monkeypatch.setattr(log_queue, "_MAX_CAUSES", 2)
    monkeypatch.setattr(log_queue, "_LOGGER", logger)
    all_logged = threading.Event()
    logger.addFilter(lambda record: all_logged.wait(60))  # so that both drops are counted in one line
    for topic in "abcd":
        log.error("failed", extra={"topic": topic})
    all_logged.set()
    eventually(lambda: lines.texts == ["failed", "failed", "log records dropped: count=2"])

    a_minute_later(queue, clock)
    log.error("failed", extra={"topic": "e"})

    eventually(lambda: len(lines.texts) == 4)
    assert lines.records[3].topic == "e"


def test_lines_that_a_handler_causes_are_not_written(logger, log, queue, lines):
    class Echo(logging.Handler):
        def emit(self, record):
            log.warning(f"about {record.getMessage()}")
            queue.drain(10)  # a wait for itself returns at once

    logger.addHandler(Echo())
    log.warning("disk")
    queue.drain(10)
    assert lines.texts == ["disk"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_a_handler_that_raises_is_reported_and_the_next_line_is_written(
    logger, log, queue, lines, capsys, error
):
    class Broken(logging.Handler):
        def emit(self, record):
            raise error

    logger.addHandler(Broken())
    log.warning("first")
    log.warning("second")
    queue.drain(10)
    assert lines.texts == ["first", "second"]
    assert type(error).__name__ in capsys.readouterr().err


def test_the_thread_ends_when_nothing_is_left_to_write(log, queue):
    log.warning("disk")
    queue.drain(10)
    eventually(lambda: queue._thread is None)


def test_finish_writes_counts_whose_minute_has_not_passed(log, queue, lines):
    for _ in range(3):
        log.warning("disk")
    queue.finish(10)
    assert lines.texts == ["disk", "disk: repeated=2"]


def test_without_a_thread_the_lines_are_written_by_the_one_that_drains(monkeypatch, log, queue, lines):
    def start(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    log.warning("disk")
    assert queue.drain(10)
    assert lines.texts == ["disk"]


SCRIPT = """
import logging, os, sys
from producer_core._internal.queued_logger import queued_logger
logging.basicConfig(format="%(message)s", stream=sys.stdout)
log = queued_logger("producer_core.example")
"""


def run(script):
    code = SCRIPT + script
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_the_interpreter_writes_all_lines_and_counts_at_its_exit():
    ran = run("for _ in range(3): log.warning('disk')")
    assert (ran.stdout.split("\n"), ran.returncode) == (["disk", "disk: repeated=2", ""], 0)


@pytest.mark.slow
def test_a_handler_that_blocks_does_not_delay_the_exit():
    ran = run(
        "import threading\n"
        "class Blocked(logging.Handler):\n"
        "    def handle(self, record): threading.Event().wait()  # no lock: logging.shutdown() waits for it\n"
        "logging.getLogger().handlers = [Blocked()]\n"
        "log.warning('disk')\n"
        "print('end')"
    )
    assert (ran.stdout, ran.returncode) == ("end\n", 0)


@pytest.mark.slow
def test_a_child_process_writes_its_own_lines_only():
    ran = run(
        "import threading, time, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "free, entered = threading.Event(), threading.Event()\n"
        "class Blocked(logging.StreamHandler):\n"
        "    def emit(self, record): entered.set(); free.wait(); super().emit(record)\n"
        "logging.getLogger().handlers = [Blocked(sys.stdout)]\n"
        "log.warning('parent'); log.warning('parent two'); entered.wait()\n"
        "if os.fork() == 0:\n"
        "    logging.getLogger().handlers = [logging.StreamHandler(sys.stdout)]\n"
        "    log.warning('child')\n"
        "    sys.exit()\n"
        "os.wait(); free.set()"
    )
    assert (ran.stdout, ran.returncode) == ("child\nparent\nparent two\n", 0), ran.stderr


def test_code_that_a_producer_runs_logs_through_the_queue():
    from tests.support import ROOT

    packages = ("_internal", "alerts", "delivery", "dlq", "kafka", "metrics", "producer", "replay", "store")
    direct = {
        str(file.relative_to(ROOT / "producer_core"))
        for package in packages
        for file in (ROOT / "producer_core" / package).rglob("*.py")
        if "logging.getLogger(" in file.read_text()
    }
    assert direct == {
        "_internal/librdkafka.py",
        "_internal/log_queue.py",
        "_internal/queued_logger.py",
        "producer/event_log.py",
    }
