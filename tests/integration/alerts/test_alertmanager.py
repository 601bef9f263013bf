"""The Alertmanager route against a real Alertmanager, which also notifies a webhook."""

from __future__ import annotations

import dataclasses
import signal
import time

import pytest
from click.testing import CliRunner

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.alerts import AlertChange, AlertLog, Callback, RuleSet, alert
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.alertmanager import Alertmanager
from producer_core.alerts.payload import notification
from producer_core.alerts.sender import RouteSender
from producer_core.brokers import embedded
from producer_core.cli import main
from tests.fixtures.alerts import receiver
from tests.fixtures.monitoring import alertmanager
from tests.support import eventually

pytestmark = pytest.mark.alertmanager


@pytest.fixture
def hook():
    with receiver() as found:
        yield found


@pytest.fixture
def manager(tmp_path, hook):
    with alertmanager(tmp_path / "alertmanager", receiver=hook.url) as found:
        yield found


def lost(subject="p-1"):
    return alert("connection_lost", subject, time.time(), reason="refused")


def fire(store, *items):
    AlertLog(store).record([AlertChange("fired", item) for item in items], told_by="p-1")
    decide(store, *(dataclasses.replace(item, telling="begin") for item in items))


def end(store, item):
    AlertLog(store).record([AlertChange("resolved", resolved(item, time.time()))])
    decide(store, dataclasses.replace(item, telling="begin", telling_end=True))


def decide(store, *items):
    """Decide as the evaluator does, which is not part of these tests."""
    store.take_lease("alerts", "test", 1e9, 0.0)
    AlertLog(store).apply([AlertChange("decided", item) for item in items], holder="test", lease="alerts")


def sender(store, url, **options):
    return RouteSender(store, Alertmanager("am", url=url, **options), owner="me")


def test_a_firing_alert_appears_and_a_resolved_one_disappears(store, manager, hook):
    item, route = lost(), sender(store, manager.url)
    fire(store, item)
    assert route.run_once() == 1

    (shown,) = manager.alerts()
    assert shown["labels"] == {
        "alertname": "connection_lost", "severity": "critical", "subject": "p-1", "store": str(store.path),
    }  # fmt: skip
    assert shown["annotations"]["summary"] == "No connection to the brokers: refused"
    assert shown["status"]["state"] == "active"
    eventually(lambda: ("connection_lost", "p-1", "firing") in hook.received)

    end(store, item)
    assert route.run_once() == 1
    assert manager.alerts() == []
    eventually(lambda: ("connection_lost", "p-1", "resolved") in hook.received)


def test_the_same_alert_sent_again_is_one_alert(store, manager):
    fire(store, lost())
    first = sender(store, manager.url, renewal=0.001)
    first.run_once()
    (before,) = manager.alerts()

    first.run_once()
    first.stop()
    sender(store, manager.url).run_once()  # a new process

    (after,) = manager.alerts()
    assert (after["fingerprint"], after["startsAt"]) == (before["fingerprint"], before["startsAt"])
    assert after["updatedAt"] > before["updatedAt"]


def test_alertmanager_resolves_an_alert_that_is_not_renewed_and_keeps_one_that_is(tmp_path, store):
    with alertmanager(tmp_path / "alertmanager", resolve_timeout="4s") as manager:
        fire(store, lost())
        route = sender(store, manager.url, renewal=0.001)
        route.run_once()
        (before,) = manager.alerts()

        def renewed():
            route.run_once()
            (shown,) = manager.alerts()
            return shown["updatedAt"] > before["endsAt"] and shown

        kept = eventually(renewed, every=0.2)
        assert kept["startsAt"] == before["startsAt"]
        eventually(lambda: manager.alerts() == [])


def test_a_restarted_alertmanager_gets_the_firing_alerts_back(tmp_path, store):
    with alertmanager(tmp_path / "alertmanager") as manager:
        port = int(manager.url.rpartition(":")[2])
        fire(store, lost())
        route = sender(store, manager.url, renewal=0.001)
        route.run_once()
        assert manager.names() == ["connection_lost"]

    with alertmanager(tmp_path / "alertmanager", port=port) as manager:
        assert manager.names() == []  # it keeps alerts in memory only
        eventually(lambda: route.run_once() or manager.names() == ["connection_lost"])


def test_a_hanging_alertmanager_delays_neither_sending_nor_another_route(store, manager):
    calls = []
    routes = [Alertmanager("am", url=manager.url, timeout=0.5), Callback("mine", calls.append)]
    manager.process.send_signal(signal.SIGSTOP)
    with (
        embedded.start(brokers=1, topics={"orders": 1}) as broker,
        ReliableKafkaProducer(broker.bootstrap_servers, store=store.path, alert_routes=routes) as producer,
    ):
        item = alert("fatal_error", "p-1", time.time(), text="for the test")
        AlertLog(store).record([AlertChange("fired", item)])
        eventually(lambda: calls)
        eventually(lambda: [row for row in store.rows("alert_routes") if row["failing_since"]])
        for number in range(1000):
            producer.send_message("orders", {"n": number})
        producer.flush(timeout=30)
        assert producer.get_stats()["messages_sent"] == 1000

        manager.process.send_signal(signal.SIGCONT)
        eventually(lambda: manager.names() == ["fatal_error"])
        assert len(calls) == 1


def test_a_restart_of_the_producer_does_not_duplicate_an_alert(tmp_path, manager, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER", manager.url)
    path = tmp_path / "store.duckdb"
    options = {"store": path, "retry_config": RetryConfig(max_retries=0)}
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        broker.reject("orders")
        with ReliableKafkaProducer(broker.bootstrap_servers, **options) as producer:
            for number in range(40):
                producer.send_message("orders", {"n": number})
            producer.flush()
            (before,) = eventually(lambda: burning(manager))
        with ReliableKafkaProducer(broker.bootstrap_servers, **options):
            (after,) = eventually(
                lambda: [found for found in burning(manager) if found["updatedAt"] > before["updatedAt"]]
            )

    assert (after["fingerprint"], after["startsAt"]) == (before["fingerprint"], before["startsAt"])
    assert after["labels"]["subject"] == "orders"


def burning(manager):
    return [found for found in manager.alerts() if found["labels"]["alertname"] == "error_budget_fast"]


def test_alerts_test_shows_a_test_alert_in_alertmanager(store, manager, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER", manager.url)

    result = CliRunner().invoke(main, ["alerts", "test", "--store", str(store.path)])

    assert result.exit_code == 0
    assert "alertmanager: accepted. HTTP 200 OK" in result.output
    assert manager.names() == ["TestAlert"]


def test_a_request_that_alertmanager_refuses_is_recorded_as_refused(store, manager):
    fire(store, lost())
    route = Alertmanager("am", url=manager.url)
    invalid = RuleSet(labels={"not valid": "x"})  # a rules file with this name would be refused
    RouteSender(store, route, owner="me", rule_set=lambda: invalid).run_once()

    (row,) = store.rows("alert_routes")
    assert row["answer"].startswith("HTTP 400")
    assert manager.alerts() == []


def test_an_end_before_the_start_is_accepted(store, manager):
    begun = resolved(dataclasses.replace(lost(), fired_at=time.time() + 3600), time.time())

    answer = Alertmanager("am", url=manager.url).send(
        notification([begun], "resolved", receiver="am", rule_set=RuleSet(), store="shop")
    )

    assert answer.accepted, answer.text
