"""Repeated notifications on a virtual clock, and user callbacks that hang or raise."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.alerts import AlertChange, AlertLog, Callback, RuleSet, alert, load
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.routes import given_routes
from producer_core.alerts.rule_parser import read
from producer_core.alerts.rule_set import REPEAT
from producer_core.alerts.sender import RouteSender
from producer_core.errors import ConfigError
from producer_core.testing import InMemoryTransport
from tests.support import eventually

HOUR = 3600.0
START = 1_000_000.0


class Clock:
    def __init__(self):
        self.now = START
        self.passed = 0.0

    def __call__(self):
        return self.now

    def monotonic(self):
        return self.passed

    def advance(self, seconds):
        self.now += seconds
        self.passed += seconds


class Pager:
    """A route that records its notifications. It accepts none while `down`."""

    name, kind, severities, heartbeat, timeout = "pager", "callback", ("critical", "warning"), 0.0, 10.0

    def __init__(self, clock):
        self.clock = clock
        self.down = False
        self.received = []
        self.keys = []

    def send(self, notification):
        if self.down:
            return RouteResult(False, "HTTP 500")
        self.received.append(
            ((self.clock.now - START) / HOUR, notification.status, len(notification.payload["alerts"]))
        )
        self.keys.append(notification.key)
        return RouteResult(True, "ok")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pager(clock):
    return Pager(clock)


def lost(subject="p-1"):
    return alert("connection_lost", subject, START, reason="refused")


def fire(store, *items, **changes):
    AlertLog(store).record([AlertChange("fired", item) for item in items], told_by="p-1")
    decide(store, *items, **changes)


def decide(store, *items, **changes):
    store.take_lease("alerts", "test", 1e12, 0.0)
    decided = [
        AlertChange("decided", dataclasses.replace(item, **{"telling": "begin", **changes})) for item in items
    ]
    assert AlertLog(store).apply(decided, holder="test", lease="alerts")


def run(sender, clock, hours, step=1800.0):
    """Run the sender every `step` seconds for a number of hours."""
    for _ in range(round(hours * HOUR / step)):
        sender.run_once()
        clock.advance(step)


def make_sender(store, pager, clock, **rule_set):
    return RouteSender(
        store,
        pager,
        owner="me",
        rule_set=lambda: RuleSet(**rule_set),
        clock=clock,
        monotonic=clock.monotonic,
        lease=1e9,
    )


def test_the_notification_of_a_firing_alert_is_repeated_every_four_hours(store, pager, clock):
    fire(store, lost())

    run(make_sender(store, pager, clock), clock, 12.5)

    assert [(at, status) for at, status, _ in pager.received] == [
        (0, "firing"),
        (4, "firing"),
        (8, "firing"),
        (12, "firing"),
    ]
    assert len(set(pager.keys)) == 4


@pytest.mark.parametrize(("repeat", "times"), [(1800.0, [0, 0.5, 1, 1.5]), (0.0, [0]), (HOUR, [0, 1])])
def test_the_repeat_interval_is_a_setting_and_zero_disables_it(store, pager, clock, repeat, times):
    fire(store, lost())

    run(make_sender(store, pager, clock, repeat=repeat), clock, 2.0)

    assert [at for at, _, _ in pager.received] == times


def test_an_acknowledged_alert_is_not_repeated(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 5)
    AlertLog(store).acknowledge(lost().alert_id, who="ada", origin="cli")
    run(sender, clock, 12)

    assert [at for at, _, _ in pager.received] == [0, 4]


def test_a_silenced_alert_is_not_repeated_until_the_silence_ends(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 1)
    decide(store, lost(), muted_by="silenced by ada")
    run(sender, clock, 9)
    decide(store, lost())
    run(sender, clock, 1)

    assert [at for at, _, _ in pager.received] == [0, 10]


def test_a_resolved_alert_is_notified_as_resolved_and_not_repeated(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 4.5)
    AlertLog(store).record([AlertChange("resolved", resolved(lost(), clock.now))])
    decide(store, lost(), telling_end=True)
    run(sender, clock, 9)

    assert [(at, status) for at, status, _ in pager.received] == [
        (0, "firing"),
        (4, "firing"),
        (4.5, "resolved"),
    ]


def test_alerts_of_one_rule_are_repeated_in_one_notification(store, pager, clock):
    fire(store, lost(), lost("p-2"))

    run(make_sender(store, pager, clock), clock, 5)

    assert pager.received == [(0, "firing", 2), (4, "firing", 2)]


def test_an_episode_that_continues_another_is_repeated(store, pager, clock):
    fire(store, lost(), telling="joined")

    run(make_sender(store, pager, clock), clock, 5)

    assert [at for at, _, _ in pager.received] == [4]


def test_an_unsent_repetition_is_dropped_when_the_alert_is_acknowledged(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 4)
    pager.down = True
    run(sender, clock, 0.5)
    assert store.rows("alert_routes")[0]["waiting"] == 1

    AlertLog(store).acknowledge(lost().alert_id, who="ada", origin="cli")
    pager.down = False
    run(sender, clock, 5)

    assert [at for at, _, _ in pager.received] == [0]
    assert store.rows("alert_routes")[0]["waiting"] == 0


def test_the_next_process_continues_the_repeat_interval_of_the_last(store, pager, clock):
    fire(store, lost())
    first = make_sender(store, pager, clock)
    run(first, clock, 3)
    first.stop()
    run(make_sender(store, pager, clock), clock, 3)

    assert [at for at, _, _ in pager.received] == [0, 4]


def test_a_clock_that_is_set_back_a_day_causes_at_most_one_extra_notification(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    sender.run_once()
    clock.now -= 24 * HOUR
    run(sender, clock, 8.5)

    assert len(pager.received) == 4


def test_the_repeat_interval_is_read_from_the_rules_file(tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text('repeat = "90m"')
    assert load(path).repeat == 5400.0
    path.write_text('repeat = "0s"')
    assert load(path).repeat == 0.0
    assert RuleSet().repeat == REPEAT == 4 * HOUR

    _, (problem,) = read("repeat = 4")
    assert problem.line == 1 and "is not a duration" in problem.text


# user callbacks


def message():
    from producer_core.alerts.payload import notification

    return notification([lost()], "firing", receiver="mine", rule_set=RuleSet(), store="s")


def test_a_callback_gets_the_payload():
    payloads = []

    assert Callback("mine", payloads.append).send(message()).accepted
    assert payloads[0]["alerts"][0]["labels"]["alertname"] == "connection_lost"


def test_a_callback_that_raises_is_a_failure_with_the_exception_name():
    answer = Callback("mine", lambda payload: 1 / 0).send(message())

    assert (answer.accepted, answer.refused, answer.text) == (False, True, "it raised ZeroDivisionError")


def test_a_callback_that_raises_system_exit_is_a_failure():
    def leaves(payload):
        raise SystemExit

    assert not Callback("mine", leaves).send(message()).accepted


def test_a_callback_that_hangs_is_called_once_and_retried_after_it_returns():
    hanging, calls = threading.Event(), []

    def hangs(payload):
        calls.append(payload)
        hanging.wait(60)

    route = Callback("mine", hangs, timeout=0.05)
    first, second = route.send(message()), route.send(message())
    hanging.set()

    assert first.text == "it did not return within 0.05 s" and not first.refused
    assert second.text == "the previous call has not returned yet"
    assert len(calls) == 1
    eventually(lambda: route.send(message()).accepted)


def named_function(payload):
    """A function that can be a route because it has a name."""


def test_a_named_function_is_a_route():
    (route,) = given_routes([named_function])

    assert (route.name, route.kind, route.severities) == (
        "named_function",
        "callback",
        ("critical", "warning", "info"),
    )
    assert given_routes([Callback("a", named_function), route])[0].name == "a"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([lambda payload: None], "Callback"),
        ([3], "named function"),
        ([named_function, named_function], "Two alert routes"),
    ],
)
def test_a_route_without_a_unique_name_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        given_routes(given)


def test_alert_routes_require_a_store():
    with pytest.raises(ConfigError, match="alert_routes needs a store"):
        ReliableKafkaProducer(store=None, transport=InMemoryTransport, alert_routes=[named_function])


def open_producer(tmp_path, *routes):
    return ReliableKafkaProducer(
        transport=InMemoryTransport, store=tmp_path / "store.duckdb", alert_routes=routes, cluster_id="test"
    )


def test_a_producer_notifies_its_callbacks(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.producer.alert_reporter._FIRST_CHECK_S", 0.0)
    names = []

    def mine(payload):
        names.append(payload["groupLabels"]["alertname"])

    (tmp_path / "alerts.toml").write_text('every = "0.1s"')
    with open_producer(tmp_path, mine) as producer:
        producer._engine.notice(_notice())
        eventually(lambda: "fatal_error" in names)


def test_callbacks_that_hang_or_raise_delay_neither_sending_nor_closing(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.producer.alert_reporter._FIRST_CHECK_S", 0.0)
    hanging, called = threading.Event(), []

    def hangs(payload):
        called.append("hangs")
        hanging.wait()

    def raises(payload):
        called.append("raises")
        raise ValueError

    (tmp_path / "alerts.toml").write_text('every = "0.1s"')
    producer = open_producer(tmp_path, hangs, raises)
    try:
        producer._engine.notice(_notice())
        eventually(lambda: {"hangs", "raises"} <= set(called))
        for number in range(500):
            producer.send_message("orders", {"n": number})
        producer.flush(30)
        producer.close(10)  # returns although one function hangs until it is released below
        assert not hanging.is_set()
    finally:
        hanging.set()


def _notice():
    from producer_core.events import Notice

    return Notice("fatal_error", "critical", "The client broke.", time.time())
