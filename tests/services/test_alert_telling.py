"""Telling people: the payload, a webhook that behaves badly, and an outbox that loses nothing and says nothing twice."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from itertools import pairwise

import pytest

from producer_core.alerts import AlertChange, AlertLog, AlertWatcher, Callback, RuleSet, alert
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.outbox import GIVEN_UP_AFTER, LONGEST_PAUSE, pause
from producer_core.alerts.payload import notification
from producer_core.alerts.sender import RouteSender
from producer_core.alerts.webhook import Webhook
from tests.support import eventually
from tests.unit.alerting import receiver, write

SECRETS = ("s3cr3t", "t0ken-77", "b34rer")


@pytest.fixture
def hook():
    with receiver() as found:
        yield found


def lost(now=1000.0, subject="p-1"):
    return alert("connection_lost", subject, now, reason="refused")


def said(item, status="firing", book=None):
    return notification([item], status, receiver="pager", book=book or RuleSet(), store="shop")


def webhook(hook, **changes):
    return Webhook("pager", url=hook.url, token="b34rer", **{"patience": 5.0, **changes})


# the payload


def test_the_payload_is_alertmanagers_fourth():
    book = RuleSet(labels={"env": "prod"}, link="https://monitor.example/")
    payload = said(lost(), book=book).payload

    assert payload.keys() == {
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
        "commonAnnotations", "externalURL", "alerts",
    }  # fmt: skip
    (item,) = payload["alerts"]
    assert item.keys() == {
        "status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint",
    }  # fmt: skip
    assert (payload["version"], payload["status"], payload["receiver"]) == ("4", "firing", "pager")
    assert payload["groupKey"] == '{}:{alertname="connection_lost"}'
    assert payload["groupLabels"] == {"alertname": "connection_lost"}
    assert item["labels"] == payload["commonLabels"] == {
        "alertname": "connection_lost", "severity": "critical", "subject": "p-1", "store": "shop", "env": "prod",
    }  # fmt: skip
    assert item["annotations"]["summary"] == "No connection to the brokers: refused"
    assert item["annotations"]["description"].startswith("Check the address")
    assert (item["startsAt"], item["endsAt"]) == ("1970-01-01T00:16:40.000Z", "0001-01-01T00:00:00Z")
    assert item["generatorURL"] == f"https://monitor.example/alerts?alert={lost().alert_id}"


def test_the_end_of_an_alert_is_about_the_same_alert():
    begun, ended = said(lost()), said(resolved(lost(), 1100.0), "resolved")

    (first,), (last,) = begun.payload["alerts"], ended.payload["alerts"]
    assert last["fingerprint"] == first["fingerprint"]
    assert begun.payload["groupKey"] == ended.payload["groupKey"]
    assert (last["status"], last["endsAt"], ended.payload["status"]) == (
        "resolved", "1970-01-01T00:18:20.000Z", "resolved",
    )  # fmt: skip
    assert begun.key != ended.key


def test_a_key_is_the_same_whenever_the_same_is_said_and_a_fingerprint_in_every_episode():
    again = dataclasses.replace(lost(), text="other words", severity="warning")

    assert said(lost()).key == said(again).key
    assert (
        said(lost()).payload["alerts"][0]["fingerprint"]
        == said(lost(2000.0)).payload["alerts"][0]["fingerprint"]
    )
    assert (
        said(lost()).payload["alerts"][0]["fingerprint"]
        != said(lost(subject="p-2")).payload["alerts"][0]["fingerprint"]
    )


def test_what_alerts_have_in_common_is_said_once_for_all():
    both = notification([lost(), lost(subject="p-2")], "firing", receiver="r", book=RuleSet(), store="shop")

    assert "subject" not in both.payload["commonLabels"]
    assert both.payload["commonLabels"]["severity"] == "critical"


def test_secrets_in_the_words_of_an_alert_are_masked():
    item = alert("connection_lost", "p-1", 1.0, reason="Authorization: Bearer abcdef0123456789")

    assert "abcdef0123456789" not in str(said(item).payload)


# the webhook


def test_a_webhook_posts_json_with_its_token_and_a_stable_key(hook):
    answer = webhook(hook).tell(said(lost()))

    assert answer.taken
    assert answer.text.startswith("HTTP 200 OK in ")
    assert hook.payloads == [said(lost()).payload]
    assert hook.headers[0]["Idempotency-Key"] == said(lost()).key
    assert hook.headers[0]["Authorization"] == "Bearer b34rer"
    assert hook.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "refused"), [(500, False), (503, False), (429, False), (408, False), (400, True), (404, True)]
)
def test_a_code_says_whether_it_is_worth_trying_the_rest(hook, status, refused):
    hook.status = status

    answer = webhook(hook).tell(said(lost()))

    assert (answer.taken, answer.refused) == (False, refused)
    assert answer.text.startswith(f"HTTP {status} ")


def test_a_receiver_says_when_to_come_again(hook):
    hook.status, hook.extra = 429, {"Retry-After": "17"}

    assert webhook(hook).tell(said(lost())).later == 17.0


def test_a_redirect_is_not_followed(hook):
    hook.status, hook.extra = 302, {"Location": "http://elsewhere.example/"}

    assert "we do not follow" in webhook(hook).tell(said(lost())).text


@pytest.mark.parametrize("badly", ["hanging", "drip"])
def test_a_receiver_that_never_ends_its_answer_costs_its_patience_and_no_more(hook, badly):
    setattr(hook, badly, True)

    answer = webhook(hook, patience=0.3).tell(said(lost()))

    assert answer == RouteResult(False, "no answer within 0.3 s")


@pytest.mark.timeout(60)  # it would go on for a day
def test_a_receiver_that_has_said_yes_and_never_ends_its_body_has_taken_it(hook):
    hook.drip_body = True

    assert webhook(hook, patience=3.0).tell(said(lost())).taken


def test_nobody_at_the_address_is_said_without_it():
    with receiver() as found:
        url = found.url

    answer = Webhook("pager", url=url).tell(said(lost()))

    assert answer == RouteResult(False, "nobody listens at the address")


def test_an_answer_that_repeats_the_address_and_the_token_is_shown_without_them(hook, caplog):
    hook.status = 500
    hook.body = f"no route to {hook.url} for Bearer b34rer; s3cr3t-path-91 t0ken-77".encode()

    route = webhook(hook)
    answer = route.tell(said(lost()))

    for text in (answer.text, answer.body, repr(route), str(route), caplog.text):
        assert not any(secret in text for secret in SECRETS), text


# the outbox


class Clock:
    def __init__(self, now=1000.0):
        self.now = now
        self.passed = 0.0

    def __call__(self):
        return self.now

    def monotonic(self):
        return self.passed

    def passes(self, seconds):
        self.now += seconds
        self.passed += seconds


@pytest.fixture
def clock():
    return Clock()


def sender(store, route, clock, owner="me"):
    return RouteSender(store, route, owner=owner, clock=clock, monotonic=clock.monotonic)


def fire(store, *items):
    """Alerts that an evaluation decided to tell."""
    log = AlertLog(store)
    log.record([AlertChange("fired", item) for item in items], told_by="p-1")
    _decide(store, *(dataclasses.replace(item, telling="begin") for item in items))


def end(store, *items):
    AlertLog(store).record([AlertChange("resolved", resolved(item, item.started_at + 60)) for item in items])
    _decide(store, *(dataclasses.replace(item, telling="begin", telling_end=True) for item in items))


def _decide(store, *items):
    store.take_lease("alerts", "test", 1e9, 0.0)
    assert AlertLog(store).take(
        [AlertChange("decided", item) for item in items], holder="test", lease="alerts"
    )


def outbox(store):
    return [
        (row["status"], row["outcome"], row["attempts"])
        for row in store.rows("alerts_of_outbox", alert_id=lost().alert_id)
    ]


def test_what_fires_is_told_once_and_so_is_its_end(store, hook, clock):
    works = sender(store, webhook(hook), clock)
    fire(store, lost())

    rounds = [works.round() for _ in range(3)]
    end(store, lost())
    rounds += [works.round() for _ in range(3)]

    assert rounds == [1, 0, 0, 1, 0, 0]
    assert hook.said == [("connection_lost", "p-1", "firing"), ("connection_lost", "p-1", "resolved")]
    assert outbox(store) == [("firing", "told", 1), ("resolved", "told", 1)]


def test_what_is_muted_is_not_told(store, hook, clock):
    AlertLog(store).record([AlertChange("fired", lost())])

    assert sender(store, webhook(hook), clock).round() == 0


def test_info_is_not_told_over_a_pager(store, hook, clock):
    fire(store, alert("epoch_rose", "p-1", 1.0, text="x"))

    assert sender(store, webhook(hook), clock).round() == 0


def test_alerts_of_one_rule_come_in_one_notification(store, hook, clock):
    fire(store, lost(), lost(subject="p-2"), alert("dedup_degraded", "p-1", 1000.0, reason="x"))

    sender(store, webhook(hook), clock).round()

    assert [len(payload["alerts"]) for payload in hook.payloads] == [2, 1]


@pytest.mark.parametrize("status", [500, 404])
def test_a_receiver_that_fails_is_tried_again_after_longer_and_longer_pauses(store, hook, clock, status):
    works = sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = status
    tried = []
    for _ in range(70):
        before = hook.asked
        works.round()
        if hook.asked > before:
            tried.append(clock.passed)
        clock.passes(5.0)

    assert [after - before for before, after in pairwise(tried)] == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0]
    assert [pause(attempts) for attempts in (6, 7, 1000)] == [300.0, 300.0, 300.0]
    (row,) = store.rows("alert_routes")
    assert (row["failing_since"], row["waiting"]) == (1000.0, 1)
    assert row["answer"].startswith(f"HTTP {status}")

    hook.status = 200
    clock.passes(LONGEST_PAUSE)
    assert works.round() == 1
    assert store.rows("alert_routes")[0]["failing_since"] is None
    assert hook.said == [("connection_lost", "p-1", "firing")]


def test_what_began_and_ended_while_nobody_could_be_told_is_told_in_its_order(store, hook, clock):
    works = sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = 500
    works.round()
    end(store, lost())
    clock.passes(6)
    works.round()

    hook.status = 200
    for _ in range(3):
        clock.passes(20)
        works.round()

    assert hook.said == [("connection_lost", "p-1", "firing"), ("connection_lost", "p-1", "resolved")]


def test_what_one_receiver_refuses_does_not_keep_the_others_back(store, clock):
    taken = []

    def picky(payload):
        if payload["groupLabels"]["alertname"] == "connection_lost":
            raise ValueError("I do not like it")
        taken.append(payload["groupLabels"]["alertname"])

    fire(store, lost(), alert("fatal_error", "p-1", 1000.0, text="x"))

    sender(store, Callback("mine", picky), clock).round()

    assert taken == ["fatal_error"]
    assert outbox(store) == [("firing", None, 1)]


def test_after_a_day_it_is_given_up_and_that_is_said(store, hook, clock, caplog):
    works = sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = 500
    works.round()
    clock.passes(GIVEN_UP_AFTER + 10)

    with caplog.at_level(logging.ERROR):
        works.round()

    assert outbox(store) == [("firing", "given up", 2)]
    assert "an alert was told to nobody" in caplog.text
    assert store.rows("alert_routes")[0]["given_up"] == 1


def test_nothing_of_an_address_or_a_secret_is_in_the_store_or_the_log(store, hook, clock, caplog, tmp_path):
    hook.status, hook.body = 500, hook.url.encode()
    caplog.set_level(logging.DEBUG)
    works = sender(store, webhook(hook), clock)
    fire(store, lost())
    works.round()
    hook.status = 200
    clock.passes(10)
    works.round()

    with store.borrow() as connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        kept = "".join(str(connection.execute(f"SELECT * FROM {name}").fetchall()) for name in tables)
    logged = "".join(str(vars(record)) for record in caplog.records)
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for secret in (*SECRETS, str(hook.server.server_port)):
        assert secret not in kept + logged
        assert secret.encode() not in files or secret.isdigit()


def test_a_clock_that_is_set_back_an_hour_delays_nothing(store, hook, clock):
    works = sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = 500
    works.round()

    clock.now -= 3600
    hook.status = 200
    clock.passes(10)

    assert works.round() == 1


def test_of_two_processes_one_tells_and_the_other_goes_on_when_it_died(store, hook, clock):
    first, second = (sender(store, webhook(hook), clock, owner) for owner in ("first", "second"))
    fire(store, lost())
    assert (first.round(), second.round()) == (1, 0)

    end(store, lost())
    told = []
    for _ in range(20):  # the first one is dead
        clock.passes(5)
        told.append(second.round())

    assert sum(told) == 1
    assert hook.said == [("connection_lost", "p-1", "firing"), ("connection_lost", "p-1", "resolved")]


def test_what_was_told_is_not_told_again_when_the_store_could_not_hear_of_it(store, hook, clock, monkeypatch):
    from producer_core.errors import StoreLocked

    works = sender(store, webhook(hook), clock)
    fire(store, lost())
    keep = works._outbox.said

    def busy(*_):
        raise StoreLocked

    monkeypatch.setattr(works._outbox, "said", busy)
    with pytest.raises(StoreLocked):
        works.round()
    monkeypatch.setattr(works._outbox, "said", keep)
    works.round()

    assert hook.said == [("connection_lost", "p-1", "firing")]
    assert outbox(store)[0][1] == "told"


def test_an_old_end_is_not_told_to_a_new_route(store, hook, clock):
    fire(store, lost(100.0))
    end(store, lost(100.0))

    assert sender(store, webhook(hook), clock).round() == 0


def test_a_heartbeat_goes_out_while_alerts_are_judged(store, hook, clock):
    works = sender(store, webhook(hook, heartbeat=300.0), clock)
    counts = []
    for _ in range(5):
        works.round()
        counts.append(hook.said.count(("Watchdog", "producer_core", "firing")))
        store.take_lease("alerts", "somebody", 200.0, clock.now)
        clock.passes(150)

    assert counts == [0, 1, 1, 2, 2]


# all of it


def test_a_receiver_that_hangs_holds_up_neither_judging_nor_other_routes(store, hook):
    hook.hanging = True
    heard, now = [], time.time()
    write(store, now - 100, pending=3)
    other = Callback("other", heard.append)
    with AlertWatcher(store, routes=(webhook(hook), other), book=RuleSet(every=0.05)) as watcher:
        eventually(lambda: heard)
        eventually(lambda: hook.asked)
        write(store, time.time())
        eventually(lambda: len(heard) > 1)
        assert watcher.leads

    assert [payload["status"] for payload in heard] == ["firing", "resolved"]
    assert hook.said == []


def test_without_the_store_people_are_told_past_it(store, hook, tmp_path):
    clock = Clock(time.time())
    watcher = AlertWatcher(
        store, routes=(webhook(hook),), book=RuleSet(every=0.05), clock=clock, monotonic=clock.monotonic
    )
    assert not watcher.look()
    aside, path = tmp_path / "aside", store.path
    path.rename(aside)
    path.mkdir()
    watcher.look()
    clock.passes(61)
    for each in watcher._senders:
        each.start()
    watcher.look()

    eventually(lambda: hook.said)
    path.rmdir()
    aside.rename(path)
    watcher.look()
    eventually(lambda: len(hook.said) == 2)
    watcher.stop()

    assert hook.said == [
        ("store_unavailable", str(path), "firing"),
        ("store_unavailable", str(path), "resolved"),
    ]


def test_a_watcher_stops_at_once_and_leaves_no_thread(store):
    before = set(threading.enumerate())
    watcher = AlertWatcher(store, routes=(Callback("mine", print),))
    watcher.start(after=1000.0)

    watcher.stop()

    assert set(threading.enumerate()) <= before
