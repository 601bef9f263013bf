"""The payload of a notification in the format of Alertmanager's webhooks."""

from __future__ import annotations

import dataclasses

from producer_core.alerts import RuleSet, alert
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.payload import fingerprint, notification

RULES = RuleSet(labels={"env": "prod"}, link="https://dashboard.example/")


def item(subject="p-1", at=1000.0):
    return alert("high_latency", subject, at, value=1500.0, threshold=1000.0)


def notified(*alerts, status="firing", receiver="pager", **options):
    return notification(alerts, status, receiver=receiver, rule_set=RULES, store="shop", **options)


def test_a_firing_alert_has_its_labels_values_and_no_end():
    found = notified(item()).payload
    (entry,) = found["alerts"]

    assert (found["version"], found["status"], found["receiver"]) == ("4", "firing", "pager")
    assert found["groupLabels"] == {"alertname": "high_latency"}
    assert entry["labels"] == {
        "env": "prod", "alertname": "high_latency", "severity": "warning", "subject": "p-1", "store": "shop",
    }  # fmt: skip
    assert (entry["annotations"]["value"], entry["annotations"]["threshold"]) == ("1500", "1000")
    assert entry["startsAt"] == "1970-01-01T00:16:40.000Z"
    assert entry["endsAt"] == "0001-01-01T00:00:00Z"
    assert entry["generatorURL"] == f"https://dashboard.example/alerts?alert={item().alert_id}"


def test_a_resolved_alert_has_its_end():
    (entry,) = notified(resolved(item(), 2000.0), status="resolved").payload["alerts"]

    assert (entry["status"], entry["endsAt"]) == ("resolved", "1970-01-01T00:33:20.000Z")


def test_labels_that_all_alerts_share_are_common():
    found = notified(item(), item("p-2")).payload

    assert "subject" not in found["commonLabels"]
    assert found["commonLabels"]["alertname"] == "high_latency"


def test_the_key_is_the_same_for_a_second_attempt_and_new_for_a_repetition():
    first = notified(item(), item("p-2"))

    assert notified(item("p-2"), item()).key == first.key
    keys = {first.key, notified(item(), item("p-2"), again=5.0).key, notified(item()).key}
    keys |= {notified(item(), receiver="chat").key, notified(item(), status="resolved").key}
    assert len(keys) == 5


def test_the_fingerprint_is_the_same_for_every_episode_regardless_of_severity():
    later = dataclasses.replace(item(at=9000.0), severity="critical")
    (one,), (other,) = notified(item()).payload["alerts"], notified(later).payload["alerts"]

    assert one["fingerprint"] == other["fingerprint"] == fingerprint(one["labels"])
    assert fingerprint({**one["labels"], "subject": "p-2"}) != one["fingerprint"]


def test_a_secret_in_the_text_is_masked():
    text = dataclasses.replace(item(), text="sasl.password=hunter2 was refused")

    assert "hunter2" not in str(notified(text).payload)
