"""Alerts across processes: one evaluates and one sends, despite kills and pauses, and sending messages never waits."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.alerts import AlertChange, AlertLog, AlertWatcher, alert
from producer_core.brokers import embedded
from producer_core.errors import StoreLocked
from tests.fixtures.alerts import receiver, write
from tests.support import eventually

pytestmark = pytest.mark.slow

GONE = ("producer_gone", "p-1")


@pytest.fixture
def hook(monkeypatch):
    with receiver() as found:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", found.url)
        yield found


@contextlib.contextmanager
def watching(store, count):
    """Run `count` processes that evaluate alerts and send notifications."""
    command = [sys.executable, "-m", "producer_core.cli", "alerts", "run", "--store", str(store.path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.stdout.close()
            process.wait(30)


def leader(store, running):
    """Return the process that evaluates, once one of them holds the lease."""

    def found():
        owners = [row["owner"] for row in store.rows("lease_holder", name="alerts")]
        return next((p for p in running if owners and owners[0].startswith(f"{p.pid}@")), None)

    return eventually(found)


def pause(process, store):
    """Stop the process at a moment when it does not hold the lock of the store's file."""

    def stopped():
        process.send_signal(signal.SIGSTOP)
        try:
            with store.borrow(write=True, timeout=1.0):
                return True
        except StoreLocked:
            process.send_signal(signal.SIGCONT)
            return False

    eventually(stopped, every=0.2)


def recorded(store):
    """Return the number of notifications that the store records as sent."""
    with store.borrow() as connection:
        return connection.execute("SELECT count(*) FROM alert_outbox WHERE outcome = 'told'").fetchone()[0]


def alerts(store):
    return [(item.rule, item.state) for item in AlertLog(store).list()]


def test_another_process_takes_over_from_a_killed_evaluator_and_no_alert_fires_twice(store, hook):
    write(store, time.time() - 100)
    with watching(store, 2) as running:
        first = leader(store, running)
        # a kill between the response and its record would repeat the notification with the same key
        eventually(lambda: recorded(store))
        first.send_signal(signal.SIGKILL)
        first.wait(30)
        (other,) = [process for process in running if process is not first]

        assert leader(store, [other]) is other
        write(store, time.time(), closed_at=time.time())
        eventually(lambda: len(hook.received) > 1, timeout=120)

    assert hook.received == [(*GONE, "firing"), (*GONE, "resolved")]
    assert alerts(store) == [("producer_gone", "resolved")]


def test_an_evaluator_that_was_paused_beyond_its_lease_no_longer_evaluates(store, hook):
    with watching(store, 2) as running:
        first = leader(store, running)
        pause(first, store)
        (other,) = [process for process in running if process is not first]
        leader(store, [other])
        write(store, time.time() - 100)
        eventually(lambda: alerts(store) == [("producer_gone", "firing")])
        first.send_signal(signal.SIGCONT)
        write(store, time.time(), closed_at=time.time())
        eventually(lambda: len(hook.received) > 1, timeout=120)

    assert hook.received == [(*GONE, "firing"), (*GONE, "resolved")]
    assert alerts(store) == [("producer_gone", "resolved")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_alerts_run_ends_at_once_and_releases_its_lease(store, hook, number):
    with watching(store, 1) as (process,):
        leader(store, [process])
        process.send_signal(number)

        assert process.wait(60) == 0
        assert store.rows("lease_holder", name="alerts") == []


def test_a_receiver_that_hangs_does_not_delay_a_producer_and_gets_its_alert_later(store, hook):
    hook.hanging = True
    item = alert("connection_lost", "elsewhere", time.time(), reason="refused")
    AlertLog(store).record([AlertChange("fired", item)], told_by="elsewhere")
    with embedded.start(topics={"orders": 1}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, store=store.path)
        eventually(lambda: hook.requests)
        for number in range(1000):
            producer.send_message("orders", {"n": number})
        producer.flush(60)
        acknowledged = eventually(lambda: store.rows("totals")[0]["acknowledged"] == 1000)
        report = producer.close(60)

    assert (acknowledged, report.acknowledged, report.lost) == (True, 1000, 0)
    assert hook.received == []
    hook.hanging = False
    hook.hang.set()
    with AlertWatcher(store):
        eventually(lambda: hook.received, timeout=120)
    assert hook.received == [("connection_lost", "elsewhere", "firing")]


def test_a_producer_evaluates_the_alerts_of_its_store(store, hook):
    write(store, time.time() - 100, producer="dead")
    with embedded.start(topics={"orders": 1}) as broker:
        with ReliableKafkaProducer(broker.bootstrap_servers, store=store.path) as producer:
            eventually(lambda: hook.received)
            (holder,) = store.rows("lease_holder", name="alerts")
            assert holder["owner"] == producer.identity

    assert hook.received[0] == ("producer_gone", "dead", "firing")
    assert store.rows("lease_holder", name="alerts") == []
