"""Being told again of what still fires, on a virtual clock, and functions of one's own that hang or raise."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.alerts import AlertChange, AlertLog, Callback, RuleSet, alert, load
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.routes import RouteResult, given_routes
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

    def passes(self, seconds):
        self.now += seconds
        self.passed += seconds


class Pager:
    """A route that notes when it was told what; it takes nothing while `down`."""

    name, kind, severities, heartbeat, patience = "pager", "callback", ("critical", "warning"), 0.0, 10.0

    def __init__(self, clock):
        self.clock = clock
        self.down = False
        self.told = []
        self.keys = []

    def tell(self, notification):
        if self.down:
            return RouteResult(False, "HTTP 500")
        self.told.append(
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
    assert AlertLog(store).take(decided, holder="test", lease="alerts")


def lived(works, clock, hours, step=1800.0):
    for _ in range(round(hours * HOUR / step)):
        works.round()
        clock.passes(step)


def sender(store, pager, clock, **book):
    return RouteSender(
        store,
        pager,
        owner="me",
        book=lambda: RuleSet(**book),
        clock=clock,
        monotonic=clock.monotonic,
        lease=1e9,
    )


def test_what_still_fires_is_told_again_every_four_hours(store, pager, clock):
    fire(store, lost())

    lived(sender(store, pager, clock), clock, 12.5)

    assert [(at, status) for at, status, _ in pager.told] == [
        (0, "firing"),
        (4, "firing"),
        (8, "firing"),
        (12, "firing"),
    ]
    assert len(set(pager.keys)) == 4


@pytest.mark.parametrize(("repeat", "moments"), [(1800.0, [0, 0.5, 1, 1.5]), (0.0, [0]), (HOUR, [0, 1])])
def test_how_often_is_a_setting_and_may_be_never(store, pager, clock, repeat, moments):
    fire(store, lost())

    lived(sender(store, pager, clock, repeat=repeat), clock, 2.0)

    assert [at for at, _, _ in pager.told] == moments


def test_who_acknowledges_is_not_told_again(store, pager, clock):
    fire(store, lost())
    works = sender(store, pager, clock)
    lived(works, clock, 5)
    AlertLog(store).acknowledge(lost().alert_id, who="ada", origin="cli")
    lived(works, clock, 12)

    assert [at for at, _, _ in pager.told] == [0, 4]


def test_what_is_silenced_is_not_told_again_until_the_silence_ends(store, pager, clock):
    fire(store, lost())
    works = sender(store, pager, clock)
    lived(works, clock, 1)
    decide(store, lost(), muted_by="silenced by ada")
    lived(works, clock, 9)
    decide(store, lost())
    lived(works, clock, 1)

    assert [at for at, _, _ in pager.told] == [0, 10]


def test_what_is_over_is_told_so_and_never_again(store, pager, clock):
    fire(store, lost())
    works = sender(store, pager, clock)
    lived(works, clock, 4.5)
    AlertLog(store).record([AlertChange("resolved", resolved(lost(), clock.now))])
    decide(store, lost(), telling_end=True)
    lived(works, clock, 9)

    assert [(at, status) for at, status, _ in pager.told] == [(0, "firing"), (4, "firing"), (4.5, "resolved")]


def test_alerts_of_one_rule_are_told_again_together(store, pager, clock):
    fire(store, lost(), lost("p-2"))

    lived(sender(store, pager, clock), clock, 5)

    assert pager.told == [(0, "firing", 2), (4, "firing", 2)]


def test_an_episode_that_carried_another_on_is_told_again_too(store, pager, clock):
    fire(store, lost(), telling="joined")

    lived(sender(store, pager, clock), clock, 5)

    assert [at for at, _, _ in pager.told] == [4]


def test_what_could_not_be_told_again_in_time_is_dropped_when_somebody_acknowledges(store, pager, clock):
    fire(store, lost())
    works = sender(store, pager, clock)
    lived(works, clock, 4)
    pager.down = True
    lived(works, clock, 0.5)
    assert store.rows("alert_routes")[0]["waiting"] == 1

    AlertLog(store).acknowledge(lost().alert_id, who="ada", origin="cli")
    pager.down = False
    lived(works, clock, 5)

    assert [at for at, _, _ in pager.told] == [0]
    assert store.rows("alert_routes")[0]["waiting"] == 0


def test_the_next_process_goes_on_with_the_hours_of_the_last(store, pager, clock):
    fire(store, lost())
    first = sender(store, pager, clock)
    lived(first, clock, 3)
    first.stop()
    lived(sender(store, pager, clock), clock, 3)

    assert [at for at, _, _ in pager.told] == [0, 4]


def test_a_clock_that_is_set_back_a_day_tells_once_too_often_at_most(store, pager, clock):
    fire(store, lost())
    works = sender(store, pager, clock)
    works.round()
    clock.now -= 24 * HOUR
    lived(works, clock, 8.5)

    assert len(pager.told) == 4


def test_the_setting_stands_in_the_file(tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text('repeat = "90m"')
    assert load(path).repeat == 5400.0
    path.write_text('repeat = "0s"')
    assert load(path).repeat == 0.0
    assert RuleSet().repeat == REPEAT == 4 * HOUR

    _, (problem,) = read("repeat = 4")
    assert problem.line == 1 and "is not a duration" in problem.text


# functions of one's own


def told(payload, seconds=0.0):
    from producer_core.alerts.payload import notification

    return notification([lost()], "firing", receiver="mine", book=RuleSet(), store="s")


def test_a_function_gets_the_payload():
    heard = []

    assert Callback("mine", heard.append).tell(told(None)).taken
    assert heard[0]["alerts"][0]["labels"]["alertname"] == "connection_lost"


def test_a_function_that_raises_is_a_failure_in_words():
    answer = Callback("mine", lambda payload: 1 / 0).tell(told(None))

    assert (answer.taken, answer.refused, answer.text) == (False, True, "it raised ZeroDivisionError")


def test_a_function_that_ends_its_thread_is_one_too():
    def leaves(payload):
        raise SystemExit

    assert not Callback("mine", leaves).tell(told(None)).taken


def test_a_function_that_hangs_is_called_once_and_given_back_to_the_pauses():
    hanging, calls = threading.Event(), []

    def hangs(payload):
        calls.append(payload)
        hanging.wait(60)

    route = Callback("mine", hangs, patience=0.05)
    first, second = route.tell(told(None)), route.tell(told(None))
    hanging.set()

    assert first.text == "it did not come back within 0.05 s" and not first.refused
    assert second.text == "the call before has not come back yet"
    assert len(calls) == 1
    eventually(lambda: route.tell(told(None)).taken)


def pager_of_mine(payload):
    """A function with a name."""


def test_a_function_is_a_route_by_its_name():
    (route,) = given_routes([pager_of_mine])

    assert (route.name, route.kind, route.severities) == (
        "pager_of_mine",
        "callback",
        ("critical", "warning", "info"),
    )
    assert given_routes([Callback("a", pager_of_mine), route])[0].name == "a"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([lambda payload: None], "Callback"),
        ([3], "function with a name"),
        ([pager_of_mine, pager_of_mine], "Two alert routes"),
    ],
)
def test_what_has_no_name_of_its_own_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        given_routes(given)


def test_alert_routes_need_a_store():
    with pytest.raises(ConfigError, match="alert_routes needs a store"):
        ReliableKafkaProducer(store=None, transport=InMemoryTransport, alert_routes=[pager_of_mine])


def producing(tmp_path, *routes):
    return ReliableKafkaProducer(
        transport=InMemoryTransport, store=tmp_path / "store.duckdb", alert_routes=routes, cluster_id="test"
    )


def test_a_producer_tells_its_own_functions(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.producer.alert_reporter._FIRST_CHECK_S", 0.0)
    heard = []

    def mine(payload):
        heard.append(payload["groupLabels"]["alertname"])

    (tmp_path / "alerts.toml").write_text('every = "0.1s"')
    with producing(tmp_path, mine) as producer:
        producer._engine.notice(_notice())
        eventually(lambda: "fatal_error" in heard)


def test_functions_that_hang_and_raise_slow_neither_producing_nor_closing(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.producer.alert_reporter._FIRST_CHECK_S", 0.0)
    hanging, called = threading.Event(), []

    def hangs(payload):
        called.append("hangs")
        hanging.wait()

    def raises(payload):
        called.append("raises")
        raise ValueError

    (tmp_path / "alerts.toml").write_text('every = "0.1s"')
    producer = producing(tmp_path, hangs, raises)
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
