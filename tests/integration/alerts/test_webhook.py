"""Notifications: the payload, the webhook with faulty receivers, and the outbox, which sends each one once."""

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
from producer_core.alerts.outbox import GIVEN_UP_AFTER, MAX_RETRY_DELAY, retry_delay
from producer_core.alerts.payload import notification
from producer_core.alerts.sender import RouteSender
from producer_core.alerts.webhook import Webhook
from tests.fixtures.alerts import TwoClocks, receiver, write
from tests.support import eventually

SECRETS = ("s3cr3t", "t0ken-77", "b34rer")


@pytest.fixture
def hook():
    with receiver() as found:
        yield found


def lost(now=1000.0, subject="p-1"):
    return alert("connection_lost", subject, now, reason="refused")


def message(item, status="firing", rule_set=None):
    return notification([item], status, receiver="pager", rule_set=rule_set or RuleSet(), store="shop")


def webhook(hook, **changes):
    return Webhook("pager", url=hook.url, token="b34rer", **{"timeout": 5.0, **changes})


# the payload


def test_the_payload_has_version_4_of_the_alertmanager_format():
    rule_set = RuleSet(labels={"env": "prod"}, link="https://monitor.example/")
    payload = message(lost(), rule_set=rule_set).payload

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


def test_the_resolved_notification_identifies_the_same_alert():
    begun, ended = message(lost()), message(resolved(lost(), 1100.0), "resolved")

    (first,), (last,) = begun.payload["alerts"], ended.payload["alerts"]
    assert last["fingerprint"] == first["fingerprint"]
    assert begun.payload["groupKey"] == ended.payload["groupKey"]
    assert (last["status"], last["endsAt"], ended.payload["status"]) == (
        "resolved", "1970-01-01T00:18:20.000Z", "resolved",
    )  # fmt: skip
    assert begun.key != ended.key


def test_the_key_is_stable_per_notification_and_the_fingerprint_per_subject():
    again = dataclasses.replace(lost(), text="other words", severity="warning")

    assert message(lost()).key == message(again).key
    assert (
        message(lost()).payload["alerts"][0]["fingerprint"]
        == message(lost(2000.0)).payload["alerts"][0]["fingerprint"]
    )
    assert (
        message(lost()).payload["alerts"][0]["fingerprint"]
        != message(lost(subject="p-2")).payload["alerts"][0]["fingerprint"]
    )


def test_common_labels_contain_only_labels_of_all_alerts():
    both = notification(
        [lost(), lost(subject="p-2")], "firing", receiver="r", rule_set=RuleSet(), store="shop"
    )

    assert "subject" not in both.payload["commonLabels"]
    assert both.payload["commonLabels"]["severity"] == "critical"


def test_secrets_in_the_text_of_an_alert_are_masked():
    item = alert("connection_lost", "p-1", 1.0, reason="Authorization: Bearer abcdef0123456789")

    assert "abcdef0123456789" not in str(message(item).payload)


# the webhook


def test_a_webhook_posts_json_with_its_token_and_a_stable_key(hook):
    answer = webhook(hook).send(message(lost()))

    assert answer.accepted
    assert answer.text.startswith("HTTP 200 OK in ")
    assert hook.payloads == [message(lost()).payload]
    assert hook.headers[0]["Idempotency-Key"] == message(lost()).key
    assert hook.headers[0]["Authorization"] == "Bearer b34rer"
    assert hook.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "refused"), [(500, False), (503, False), (429, False), (408, False), (400, True), (404, True)]
)
def test_the_status_code_distinguishes_a_refused_notification_from_a_failing_receiver(hook, status, refused):
    hook.status = status

    answer = webhook(hook).send(message(lost()))

    assert (answer.accepted, answer.refused) == (False, refused)
    assert answer.text.startswith(f"HTTP {status} ")


def test_retry_after_sets_the_time_of_the_next_attempt(hook):
    hook.status, hook.extra = 429, {"Retry-After": "17"}

    assert webhook(hook).send(message(lost())).retry_after == 17.0


def test_a_redirect_is_not_followed(hook):
    hook.status, hook.extra = 302, {"Location": "http://elsewhere.example/"}

    assert "redirects are not followed" in webhook(hook).send(message(lost())).text


@pytest.mark.parametrize("fault", ["hanging", "drip"])
def test_a_response_that_never_ends_fails_at_the_timeout(hook, fault):
    setattr(hook, fault, True)

    answer = webhook(hook, timeout=0.3).send(message(lost()))

    assert answer == RouteResult(False, "no response within 0.3 s")


@pytest.mark.timeout(60)  # without the time limit it would take a day
def test_a_success_status_counts_although_the_body_never_ends(hook):
    hook.drip_body = True

    assert webhook(hook, timeout=3.0).send(message(lost())).accepted


def test_a_refused_connection_is_reported_without_the_address():
    with receiver() as found:
        url = found.url

    answer = Webhook("pager", url=url).send(message(lost()))

    assert answer == RouteResult(False, "connection refused")


def test_a_response_that_repeats_the_address_and_the_token_is_redacted(hook, caplog):
    hook.status = 500
    hook.body = f"no route to {hook.url} for Bearer b34rer; s3cr3t-path-91 t0ken-77".encode()

    route = webhook(hook)
    answer = route.send(message(lost()))

    for text in (answer.text, answer.body, repr(route), str(route), caplog.text):
        assert not any(secret in text for secret in SECRETS), text


# the outbox


@pytest.fixture
def clock():
    return TwoClocks(1000.0)


def make_sender(store, route, clock, owner="me"):
    return RouteSender(store, route, owner=owner, clock=clock, monotonic=clock.monotonic)


def fire(store, *items):
    """Store firing alerts whose notification is decided."""
    log = AlertLog(store)
    log.record([AlertChange("fired", item) for item in items], told_by="p-1")
    _decide(store, *(dataclasses.replace(item, telling="begin") for item in items))


def end(store, *items):
    AlertLog(store).record([AlertChange("resolved", resolved(item, item.started_at + 60)) for item in items])
    _decide(store, *(dataclasses.replace(item, telling="begin", telling_end=True) for item in items))


def _decide(store, *items):
    store.take_lease("alerts", "test", 1e9, 0.0)
    assert AlertLog(store).apply(
        [AlertChange("decided", item) for item in items], holder="test", lease="alerts"
    )


def outbox(store):
    return [
        (row["status"], row["outcome"], row["attempts"])
        for row in store.rows("alerts_of_outbox", alert_id=lost().alert_id)
    ]


def test_the_beginning_and_the_end_of_an_alert_are_sent_once(store, hook, clock):
    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())

    sent = [sender.run_once() for _ in range(3)]
    end(store, lost())
    sent += [sender.run_once() for _ in range(3)]

    assert sent == [1, 0, 0, 1, 0, 0]
    assert hook.received == [("connection_lost", "p-1", "firing"), ("connection_lost", "p-1", "resolved")]
    assert outbox(store) == [("firing", "told", 1), ("resolved", "told", 1)]


def test_a_muted_alert_is_not_sent(store, hook, clock):
    AlertLog(store).record([AlertChange("fired", lost())])

    assert make_sender(store, webhook(hook), clock).run_once() == 0


def test_an_alert_of_severity_info_is_not_sent_by_default(store, hook, clock):
    fire(store, alert("epoch_rose", "p-1", 1.0, text="x"))

    assert make_sender(store, webhook(hook), clock).run_once() == 0


def test_alerts_of_one_rule_are_sent_in_one_notification(store, hook, clock):
    fire(store, lost(), lost(subject="p-2"), alert("dedup_degraded", "p-1", 1000.0, reason="x"))

    make_sender(store, webhook(hook), clock).run_once()

    assert [len(payload["alerts"]) for payload in hook.payloads] == [2, 1]


@pytest.mark.parametrize("status", [500, 404])
def test_a_failing_receiver_is_retried_with_increasing_delays(store, hook, clock, status):
    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = status
    attempts = []
    for _ in range(70):
        before = hook.requests
        sender.run_once()
        if hook.requests > before:
            attempts.append(clock.passed)
        clock.advance(5.0)

    assert [after - before for before, after in pairwise(attempts)] == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0]
    assert [retry_delay(failures) for failures in (6, 7, 1000)] == [300.0, 300.0, 300.0]
    (row,) = store.rows("alert_routes")
    assert (row["failing_since"], row["waiting"]) == (1000.0, 1)
    assert row["answer"].startswith(f"HTTP {status}")

    hook.status = 200
    clock.advance(MAX_RETRY_DELAY)
    assert sender.run_once() == 1
    assert store.rows("alert_routes")[0]["failing_since"] is None
    assert hook.received == [("connection_lost", "p-1", "firing")]


def test_the_beginning_and_the_end_during_an_outage_are_sent_in_order(store, hook, clock):
    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = 500
    sender.run_once()
    end(store, lost())
    clock.advance(6)
    sender.run_once()

    hook.status = 200
    for _ in range(3):
        clock.advance(20)
        sender.run_once()

    assert hook.received == [("connection_lost", "p-1", "firing"), ("connection_lost", "p-1", "resolved")]


def test_a_refused_notification_does_not_delay_others(store, clock):
    accepted = []

    def selective(payload):
        if payload["groupLabels"]["alertname"] == "connection_lost":
            raise ValueError("refused")
        accepted.append(payload["groupLabels"]["alertname"])

    fire(store, lost(), alert("fatal_error", "p-1", 1000.0, text="x"))

    make_sender(store, Callback("mine", selective), clock).run_once()

    assert accepted == ["fatal_error"]
    assert outbox(store) == [("firing", None, 1)]


def test_a_notification_is_abandoned_after_a_day_and_logged(store, hook, clock, caplog):
    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = 500
    sender.run_once()
    clock.advance(GIVEN_UP_AFTER + 10)

    with caplog.at_level(logging.ERROR):
        sender.run_once()

    assert outbox(store) == [("firing", "given up", 2)]
    assert "notification abandoned" in caplog.text
    assert store.rows("alert_routes")[0]["given_up"] == 1


def test_no_address_or_secret_is_in_the_store_or_the_log(store, hook, clock, caplog, tmp_path):
    hook.status, hook.body = 500, hook.url.encode()
    caplog.set_level(logging.DEBUG)
    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())
    sender.run_once()
    hook.status = 200
    clock.advance(10)
    sender.run_once()

    with store.borrow() as connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        kept = "".join(str(connection.execute(f"SELECT * FROM {name}").fetchall()) for name in tables)
    logged = "".join(str(vars(record)) for record in caplog.records)
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for secret in (*SECRETS, str(hook.server.server_port)):
        assert secret not in kept + logged
        assert secret.encode() not in files or secret.isdigit()


def test_a_clock_that_is_set_back_an_hour_delays_no_retry(store, hook, clock):
    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())
    hook.status = 500
    sender.run_once()

    clock.now -= 3600
    hook.status = 200
    clock.advance(10)

    assert sender.run_once() == 1


def test_one_of_two_processes_sends_and_the_other_takes_over_when_it_dies(store, hook, clock):
    first, second = (make_sender(store, webhook(hook), clock, owner) for owner in ("first", "second"))
    fire(store, lost())
    assert (first.run_once(), second.run_once()) == (1, 0)

    end(store, lost())
    sent = []
    for _ in range(20):  # the first process is dead
        clock.advance(5)
        sent.append(second.run_once())

    assert sum(sent) == 1
    assert hook.received == [("connection_lost", "p-1", "firing"), ("connection_lost", "p-1", "resolved")]


def test_a_sent_notification_is_not_repeated_when_the_store_failed_to_record_it(
    store, hook, clock, monkeypatch
):
    from producer_core.errors import StoreLocked

    sender = make_sender(store, webhook(hook), clock)
    fire(store, lost())
    mark_sent = sender._outbox.mark_sent

    def busy(*_):
        raise StoreLocked

    monkeypatch.setattr(sender._outbox, "mark_sent", busy)
    with pytest.raises(StoreLocked):
        sender.run_once()
    monkeypatch.setattr(sender._outbox, "mark_sent", mark_sent)
    sender.run_once()

    assert hook.received == [("connection_lost", "p-1", "firing")]
    assert outbox(store)[0][1] == "told"


def test_an_alert_that_ended_before_a_route_was_added_is_not_sent_to_it(store, hook, clock):
    fire(store, lost(100.0))
    end(store, lost(100.0))

    assert make_sender(store, webhook(hook), clock).run_once() == 0


def test_a_heartbeat_is_sent_while_alerts_are_evaluated(store, hook, clock):
    sender = make_sender(store, webhook(hook, heartbeat=300.0), clock)
    counts = []
    for _ in range(5):
        sender.run_once()
        counts.append(hook.received.count(("Watchdog", "producer_core", "firing")))
        store.take_lease("alerts", "evaluator", 200.0, clock.now)
        clock.advance(150)

    assert counts == [0, 1, 1, 2, 2]


# the watcher


def test_a_receiver_that_hangs_delays_neither_the_evaluation_nor_other_routes(store, hook):
    hook.hanging = True
    payloads, now = [], time.time()
    write(store, now - 100, pending=3)
    other = Callback("other", payloads.append)
    with AlertWatcher(store, routes=(webhook(hook), other), rule_set=RuleSet(every=0.05)) as watcher:
        eventually(lambda: payloads)
        eventually(lambda: hook.requests)
        write(store, time.time())
        eventually(lambda: len(payloads) > 1)
        assert watcher.leads

    assert [payload["status"] for payload in payloads] == ["firing", "resolved"]
    assert hook.received == []


def test_the_unavailability_of_the_store_is_sent_from_memory(store, hook, tmp_path):
    clock = TwoClocks(time.time())
    watcher = AlertWatcher(
        store, routes=(webhook(hook),), rule_set=RuleSet(every=0.05), clock=clock, monotonic=clock.monotonic
    )
    assert not watcher.run_once()
    aside, path = tmp_path / "aside", store.path
    path.rename(aside)
    path.mkdir()
    watcher.run_once()
    clock.advance(61)
    for sender in watcher._senders:
        sender.start()
    watcher.run_once()

    eventually(lambda: hook.received)
    path.rmdir()
    aside.rename(path)
    watcher.run_once()
    eventually(lambda: len(hook.received) == 2)
    watcher.stop()

    assert hook.received == [
        ("store_unavailable", str(path), "firing"),
        ("store_unavailable", str(path), "resolved"),
    ]


def test_a_watcher_stops_at_once_and_leaves_no_thread(store):
    before = set(threading.enumerate())
    watcher = AlertWatcher(store, routes=(Callback("mine", print),))
    watcher.start(after=1000.0)

    watcher.stop()

    assert set(threading.enumerate()) <= before
