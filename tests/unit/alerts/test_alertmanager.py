"""The Alertmanager route on a receiver with faults: the request, the renewal, and the settings."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import datetime
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from producer_core.alerts import AlertChange, AlertLog, RuleSet, alert
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.alertmanager import RENEWAL, Alertmanager
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.payload import notification
from producer_core.alerts.routes import routes_of
from producer_core.alerts.rule_parser import read
from producer_core.alerts.send_test import send_test_alert
from producer_core.alerts.sender import RouteSender
from tests.fixtures.alerts import TwoClocks
from tests.support import ROOT

STARTED = 1000.0


class Recorded(Alertmanager):
    """Records each request as (rule, subject, whether it is resolved), and answers with `result`."""

    result = RouteResult(True, "HTTP 200 OK")

    def send(self, message):
        received.append(
            [
                (item["labels"]["alertname"], item["labels"]["subject"], "endsAt" in item)
                for item in json.loads(self._body(message))
            ]
        )
        return Recorded.result


received = []


@pytest.fixture
def clock():
    received.clear()
    Recorded.result = RouteResult(True, "HTTP 200 OK")
    return TwoClocks(STARTED)


@pytest.fixture
def sender(store, clock):
    route = Recorded("alertmanager", url="http://127.0.0.1:9093")
    return RouteSender(store, route, owner="me", clock=clock, monotonic=clock.monotonic)


def lost(subject="p-1"):
    return alert("connection_lost", subject, STARTED, reason="refused")


def fire(store, *items, **decision):
    AlertLog(store).record([AlertChange("fired", item) for item in items], told_by="p-1")
    decide(store, *(dataclasses.replace(item, telling="begin", **decision) for item in items))


def decide(store, *items):
    store.take_lease("alerts", "test", 1e9, 0.0)
    AlertLog(store).apply([AlertChange("decided", item) for item in items], holder="test", lease="alerts")


def end(store, item):
    AlertLog(store).record([AlertChange("resolved", resolved(item, STARTED + 60))])
    decide(store, dataclasses.replace(item, telling="begin", telling_end=True))


def body(item, status="firing", rule_set=None):
    message = notification([item], status, receiver="am", rule_set=rule_set or RuleSet(), store="shop")
    return json.loads(Alertmanager("am", url="http://127.0.0.1:9093")._body(message))


# the request


def test_a_firing_alert_has_a_start_and_no_end():
    (sent,) = body(lost(), rule_set=RuleSet(labels={"env": "prod"}, link="https://dash.example"))

    assert sent["labels"] == {
        "alertname": "connection_lost", "severity": "critical", "subject": "p-1", "store": "shop", "env": "prod",
    }  # fmt: skip
    assert sent["startsAt"] == "1970-01-01T00:16:40.000Z"
    assert "endsAt" not in sent
    assert sent["annotations"]["summary"] == "No connection to the brokers: refused"
    assert sent["generatorURL"] == f"https://dash.example/alerts?alert={lost().alert_id}"


def test_a_resolved_alert_has_the_same_labels_and_its_end():
    (begun,), (ended,) = body(lost()), body(resolved(lost(), STARTED + 60), "resolved")

    assert ended["labels"] == begun["labels"]
    assert ended["endsAt"] == "1970-01-01T00:17:40.000Z"
    assert "generatorURL" not in ended  # the API refuses an empty one


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h:9093", "/api/v2/alerts"),
        ("http://h:9093/", "/api/v2/alerts"),
        ("https://h/alertmanager/", "/alertmanager/api/v2/alerts"),
        ("http://h:9093/api/v2/alerts", "/api/v2/alerts"),
        ("http://h/am?tenant=a", "/am/api/v2/alerts?tenant=a"),
    ],
)
def test_the_url_is_that_of_the_page_or_of_the_api(url, target):
    assert Alertmanager("am", url=url)._target(urlsplit(url)) == target


# the renewal


def test_a_firing_alert_is_sent_again_until_it_ends(store, sender, clock):
    fire(store, lost())
    for _ in range(4):
        sender.run_once()
        clock.advance(RENEWAL)
    end(store, lost())
    for _ in range(3):
        sender.run_once()
        clock.advance(RENEWAL)

    firing, ended = [("connection_lost", "p-1", False)], [("connection_lost", "p-1", True)]
    assert received == [firing] * 4 + [ended]


def test_nothing_is_sent_between_two_renewals(store, sender, clock):
    fire(store, lost())
    sender.run_once()
    received.clear()
    for _ in range(9):
        clock.advance(RENEWAL / 10)
        sender.run_once()

    assert received == []


@pytest.mark.parametrize("change", [{"acknowledged_by": "ann"}, {"muted_by": "silenced by ann"}])
def test_an_acknowledged_or_silenced_alert_is_renewed_because_it_still_fires(store, sender, clock, change):
    fire(store, lost())
    sender.run_once()
    received.clear()
    with store.borrow(write=True) as connection:
        for name, value in change.items():
            connection.execute(f"UPDATE alerts SET {name} = ?", [value])
    clock.advance(RENEWAL)
    sender.run_once()

    assert received == [[("connection_lost", "p-1", False)]]


def test_an_alert_that_was_never_sent_is_not_renewed(store, sender, clock):
    AlertLog(store).record([AlertChange("fired", lost())])
    sender.run_once()

    assert received == []


def test_a_new_process_renews_at_once(store, sender, clock):
    fire(store, lost())
    sender.run_once()
    received.clear()
    sender.stop()
    successor = RouteSender(store, sender.route, owner="next", clock=clock, monotonic=clock.monotonic)
    successor.run_once()

    assert received == [[("connection_lost", "p-1", False)]]


def test_a_renewed_alert_is_not_repeated_too(store, sender, clock):
    fire(store, lost())
    sender.run_once()
    clock.advance(5 * 3600.0)  # longer than the repetition of the rule set
    received.clear()
    sender.run_once()

    assert received == [[("connection_lost", "p-1", False)]]


def test_a_failed_renewal_is_recorded_and_retried_no_later_than_the_next_renewal(store, sender, clock):
    fire(store, lost())
    sender.run_once()
    clock.advance(RENEWAL)
    Recorded.result = RouteResult(False, "connection refused")
    received.clear()
    attempts = []
    for _ in range(50):
        before = len(received)
        sender.run_once()
        attempts += [clock.passed] * (len(received) - before)
        clock.advance(5.0)
    assert [after - before for before, after in pairwise(attempts)] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert store.rows("alert_routes")[0]["failing_since"] is not None

    Recorded.result = RouteResult(True, "HTTP 200 OK")
    clock.advance(RENEWAL)
    sender.run_once()
    assert len(received) == len(attempts) + 1
    assert store.rows("alert_routes")[0]["failing_since"] is None


def test_a_refused_renewal_is_not_repeated_at_once_and_does_not_hold_others_up(store, sender, clock):
    fire(store, lost(), alert("fatal_error", "p-1", STARTED, text="x"))
    sender.run_once()
    clock.advance(RENEWAL)
    Recorded.result = RouteResult(False, "HTTP 400 Bad Request", refused=True)
    received.clear()
    for _ in range(3):
        sender.run_once()
        clock.advance(2.0)

    assert [request[0][0] for request in received] == ["connection_lost", "fatal_error"]


def test_many_alerts_of_a_rule_are_renewed_in_several_requests(store, sender, clock, monkeypatch):
    monkeypatch.setattr("producer_core.alerts.sender.BATCH_SIZE", 2)
    fire(store, *(lost(f"p-{number}") for number in range(5)))
    sender.run_once()
    received.clear()
    clock.advance(RENEWAL)
    sender.run_once()

    assert [len(request) for request in received] == [2, 2, 1]


# the settings


def test_a_route_of_the_rules_file_or_the_environment_is_an_alertmanager(monkeypatch):
    monkeypatch.setenv("AM_URL", "http://one.example:9093")
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER", "http://two.example:9093")
    rule_set, problems = read('[routes.am]\nkind = "alertmanager"\nurl_env = "AM_URL"\n')

    found = routes_of(rule_set)

    assert problems == []
    assert [(route.name, route.kind, route.renewal) for route in found] == [
        ("am", "alertmanager", RENEWAL),
        ("alertmanager", "alertmanager", RENEWAL),
    ]
    assert "example" not in repr(found)


def test_an_unknown_kind_of_route_is_reported():
    _, problems = read('[routes.am]\nkind = "alertmanger"\nurl_env = "AM_URL"\n')

    assert "Did you mean 'alertmanager'?" in str(problems[0])


def test_a_test_alert_fires_long_enough_to_be_sent_on():
    sent = []

    class Keeping(Alertmanager):
        def send(self, message):
            sent.append(message.payload["alerts"][0])
            return RouteResult(True, "HTTP 200 OK")

    send_test_alert(Keeping("am", url="http://127.0.0.1:9093"), RuleSet(), store="shop", who="ann")

    begun, ended = sent
    assert (begun["status"], ended["status"]) == ("firing", "resolved")
    length = datetime.fromisoformat(ended["endsAt"]) - datetime.fromisoformat(begun["startsAt"])
    assert length.total_seconds() == pytest.approx(120, abs=0.01)


def test_the_documented_route_is_valid():
    documented = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/how-to/alerts.md").read_text(), re.DOTALL)

    (route,) = [route for text in documented for route in read(text)[0].routes]
    assert (route.name, route.kind, route.severities) == (
        "team",
        "alertmanager",
        ("critical", "warning", "info"),
    )
    assert [problem for text in documented for problem in read(text)[1]] == []
