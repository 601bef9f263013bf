"""Alerts across processes: one judges, one tells, whoever is killed or paused; and producing never waits for it."""

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
from tests.support import eventually
from tests.unit.alerting import receiver, write

GONE = ("producer_gone", "p-1")


@pytest.fixture
def hook(monkeypatch):
    with receiver() as found:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", found.url)
        yield found


@contextlib.contextmanager
def watching(store, count):
    """So many processes that judge and tell."""
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
    """The process that judges, once there is one among them."""

    def found():
        owners = [row["owner"] for row in store.rows("lease_holder", name="alerts")]
        return next((p for p in running if owners and owners[0].startswith(f"{p.pid}@")), None)

    return eventually(found)


def pause(process, store):
    """Stops it while it does not hold the store's file, for then it would hold up everybody."""

    def stopped():
        process.send_signal(signal.SIGSTOP)
        try:
            with store.borrow(write=True, timeout=1.0):
                return True
        except StoreLocked:
            process.send_signal(signal.SIGCONT)
            return False

    eventually(stopped, every=0.2)


def settled(store):
    """What was told, as far as the store knows."""
    with store.borrow() as connection:
        return connection.execute("SELECT count(*) FROM alert_outbox WHERE outcome = 'told'").fetchone()[0]


def alerts(store):
    return [(item.rule, item.state) for item in AlertLog(store).list()]


def test_kill_the_process_that_judges_and_another_goes_on_and_nothing_fires_twice(store, hook):
    write(store, time.time() - 100)
    with watching(store, 2) as running:
        first = leader(store, running)
        eventually(
            lambda: settled(store)
        )  # killed between the answer and this, it would be told again, with its key
        first.send_signal(signal.SIGKILL)
        first.wait(30)
        (other,) = [process for process in running if process is not first]

        assert leader(store, [other]) is other
        write(store, time.time(), closed_at=time.time())
        eventually(lambda: len(hook.said) > 1, timeout=120)

    assert hook.said == [(*GONE, "firing"), (*GONE, "resolved")]
    assert alerts(store) == [("producer_gone", "resolved")]


def test_pause_the_process_that_judges_past_its_lease_and_it_wakes_as_a_bystander(store, hook):
    with watching(store, 2) as running:
        first = leader(store, running)
        pause(first, store)
        (other,) = [process for process in running if process is not first]
        leader(store, [other])
        write(store, time.time() - 100)
        eventually(lambda: alerts(store) == [("producer_gone", "firing")])
        first.send_signal(signal.SIGCONT)
        write(store, time.time(), closed_at=time.time())
        eventually(lambda: len(hook.said) > 1, timeout=120)

    assert hook.said == [(*GONE, "firing"), (*GONE, "resolved")]
    assert alerts(store) == [("producer_gone", "resolved")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watching_process_ends_at_once_and_leaves_its_work_to_others(store, hook, number):
    with watching(store, 1) as (process,):
        leader(store, [process])
        process.send_signal(number)

        assert process.wait(60) == 0
        assert store.rows("lease_holder", name="alerts") == []


def test_a_receiver_that_hangs_slows_no_producer_and_its_alert_is_told_later(store, hook):
    hook.hanging = True
    item = alert("connection_lost", "elsewhere", time.time(), reason="refused")
    AlertLog(store).record([AlertChange("fired", item)], told_by="elsewhere")
    with embedded.start(topics={"orders": 1}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, store=store.path)
        eventually(lambda: hook.asked)
        for number in range(1000):
            producer.send_message("orders", {"n": number})
        producer.flush(60)
        acknowledged = eventually(lambda: store.rows("totals")[0]["acknowledged"] == 1000)
        report = producer.close(60)

    assert (acknowledged, report.acknowledged, report.lost) == (True, 1000, 0)
    assert hook.said == []
    hook.hanging = False
    hook.hang.set()
    with AlertWatcher(store):
        eventually(lambda: hook.said, timeout=120)
    assert hook.said == [("connection_lost", "elsewhere", "firing")]


def test_a_producer_judges_the_alerts_of_its_store(store, hook):
    write(store, time.time() - 100, producer="dead")
    with embedded.start(topics={"orders": 1}) as broker:
        with ReliableKafkaProducer(broker.bootstrap_servers, store=store.path) as producer:
            eventually(lambda: hook.said)
            (holder,) = store.rows("lease_holder", name="alerts")
            assert holder["owner"] == producer.identity

    assert hook.said[0] == ("producer_gone", "dead", "firing")
    assert store.rows("lease_holder", name="alerts") == []
