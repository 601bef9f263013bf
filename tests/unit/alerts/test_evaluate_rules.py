"""Alerts: their changes, the alert log of a store, and the detection of a dead producer."""

from __future__ import annotations

import string
import time
from dataclasses import replace

import pytest

from producer_core.alerts import (
    END_CONDITIONS,
    RULES,
    AlertEvaluator,
    AlertLog,
    ReportedAlerts,
    after,
    alert,
    follow,
)
from producer_core.events import Notice
from producer_core.store import Batch, ProducerRow


def too_slow(now, value=1500.0):
    return alert("high_latency", "p-1", now, value=value, threshold=1000.0)


def heartbeat(store, seen_at, *, closed_at=None, producer_id="p-1"):
    row = ProducerRow(
        producer_id, "c", "shop", "host-7", 4711, "0", 0.0, seen_at, closed_at, True, None, 12, 0, 0, 0, 0, None,
        True, "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch(producer_id, time.monotonic_ns(), producer=row))


def kinds(changes):
    return [(change.kind, change.alert.rule) for change in changes]


def test_an_alert_fires_once_and_resolves_once():
    firing, observed = {}, []
    for now, found in [(1, [too_slow(1)]), (2, [too_slow(2)]), (3, []), (4, [])]:
        changes = follow(firing, found, now)
        firing = after(firing, changes)
        observed += kinds(changes)

    assert observed == [("fired", "high_latency"), ("resolved", "high_latency")]
    assert firing == {}


def test_text_and_value_are_updated_without_a_second_firing():
    firing = after({}, follow({}, [too_slow(1)], 1))

    (change,) = follow(firing, [too_slow(2, value=2500.0)], 2)

    assert change.kind == "updated"
    assert change.alert.text == "Messages take 2500 ms on average; the limit is 1000 ms"
    assert (change.alert.started_at, change.alert.changed_at) == (1, 2)
    assert change.alert.alert_id == too_slow(1).alert_id


def test_two_subjects_of_one_rule_are_two_alerts():
    one, other = too_slow(1), replace(too_slow(1), subject="p-2")

    changes = follow(after({}, follow({}, [one], 1)), [other], 2)

    assert [(change.kind, change.alert.subject) for change in changes] == [
        ("fired", "p-2"),
        ("resolved", "p-1"),
    ]


def test_the_next_episode_has_another_id():
    assert too_slow(1).alert_id != too_slow(2).alert_id


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_text_and_advice(rule):
    names = {name for _, name, _, _ in string.Formatter().parse(RULES[rule].text) if name}
    details = dict.fromkeys(names - {"value", "threshold"}, "x")

    item = alert(rule, "s", 1.0, value=0.5, threshold=0.1, **details)

    assert "{" not in item.text
    assert item.advice.endswith(".")


def test_the_log_stores_an_episode(store):
    log = AlertLog(store)
    fired = follow({}, [too_slow(1)], 1)

    log.record(fired)
    assert [item.text for item in log.list(state="firing")] == [too_slow(1).text]
    log.record(follow(log.firing(), [], 9))

    (item,) = log.list()
    assert (item.state, item.started_at, item.resolved_at) == ("resolved", 1, 9)


def test_two_watchers_store_one_alert(store):
    AlertLog(store).record(follow({}, [too_slow(1)], 1))
    AlertLog(store).record(follow({}, [too_slow(1.5)], 1.5))

    assert len(AlertLog(store).list()) == 1


def test_the_first_acknowledgement_counts_and_both_are_audited(store):
    log = AlertLog(store, clock=lambda: 50.0)
    log.record(follow({}, [too_slow(1)], 1))
    alert_id = log.list()[0].alert_id

    assert log.acknowledge(alert_id, who="ann", origin="cli")
    assert not log.acknowledge(alert_id, who="bob", origin="dashboard")

    (item,) = log.list()
    assert (item.acknowledged_by, item.acknowledged_at) == ("ann", 50.0)
    assert [row["count"] for row in store.rows("audit_latest", action="acknowledge")] in ([0, 1], [1, 0])


def test_a_silence_covers_its_subject_until_it_ends(store):
    now = [10.0]
    log = AlertLog(store, clock=lambda: now[0])
    log.record(follow({}, [too_slow(1), replace(too_slow(1), subject="p-2")], 1))

    log.silence("high_latency", "p-1", until=20.0, who="ann", why="deploy", origin="cli")

    assert {item.subject: item.silenced for item in log.list()} == {"p-1": True, "p-2": False}
    assert [silence.why for silence in log.silences()] == ["deploy"]
    now[0] = 21.0
    assert not any(item.silenced for item in log.list())


def test_a_silence_for_an_unknown_rule_names_the_rules(store):
    with pytest.raises(ValueError, match="high_latency"):
        AlertLog(store).silence("hi_latency", until=1.0, who="a", why="b", origin="cli")


class Watcher:
    """Runs an evaluator and returns the changes about dead producers. Both of its clocks run together."""

    def __init__(self, store, owner="watcher"):
        self._now = 0.0
        self._evaluator = AlertEvaluator(
            store, owner=owner, clock=lambda: self._now, monotonic=lambda: self._now
        )

    def at(self, now):
        self._now = now
        changes = self._evaluator.tick()
        return [
            (kind, rule) for kind, rule in kinds(changes) if rule == "producer_gone" and kind != "decided"
        ]


def test_another_process_detects_a_dead_producer_once(store):
    heartbeat(store, 1000.0)
    watcher = Watcher(store)

    assert watcher.at(1030.0) == []
    changes = [watcher.at(now) for now in (1041.0, 1042.0, 1100.0)]

    assert changes == [[("fired", "producer_gone")], [], []]
    (item,) = AlertLog(store).list()
    assert "shop (host-7, process 4711)" in item.text
    assert item.severity == "critical"


def test_producer_gone_resolves_with_the_next_heartbeat(store):
    heartbeat(store, 1000.0)
    watcher = Watcher(store)
    watcher.at(1041.0)

    heartbeat(store, 1050.0)

    assert watcher.at(1051.0) == [("resolved", "producer_gone")]


def test_a_closed_producer_is_not_gone(store):
    heartbeat(store, 1000.0, closed_at=1000.0)

    assert Watcher(store).at(2000.0) == []


def test_one_process_evaluates_and_another_takes_over_when_it_dies(store):
    heartbeat(store, 1000.0)
    first, second = Watcher(store, "first"), Watcher(store, "second")
    first.at(1001.0)

    assert second.at(1010.0) == []
    assert second.at(1041.0) == [("fired", "producer_gone")]
    assert first.at(1042.0) == []


# alerts from notices


def notice(kind, at=1.0, **details):
    return Notice(kind, "critical", f"{kind} happened", at, details)


def firing(alerts, now=2.0, **options):
    return [(item.rule, item.subject) for item in alerts.firing("p-1", now, **options)]


def test_every_notice_that_becomes_an_alert_has_a_rule_that_shows_its_text():
    for kind in END_CONDITIONS:
        assert "{text}" in RULES[kind].text, kind
        for other in END_CONDITIONS[kind].by:
            assert other != kind


def test_an_alert_from_a_notice_ends_after_its_time_and_counts_repetitions():
    alerts = ReportedAlerts()
    alerts.notice(notice("fatal_error", 10.0))
    alerts.notice(notice("fatal_error", 300.0))

    (item,) = alerts.firing("p-1", 800.0)
    assert (item.subject, item.value, item.started_at, item.text) == (
        "p-1", 2, 10.0, "fatal_error happened",
    )  # fmt: skip
    assert firing(alerts, 901.0) == []


def test_informational_notices_are_not_alerts():
    alerts = ReportedAlerts()
    for kind in ("connected", "store_available", "nothing_to_lose", "duplicate_confirmed", "dedup_restored"):
        alerts.notice(notice(kind))

    assert firing(alerts) == []


def test_a_suspected_loss_ends_with_its_finding():
    alerts = ReportedAlerts()
    alerts.notice(notice("loss_suspected", subject="orders"))
    before = firing(alerts)
    alerts.notice(notice("producer_desynchronised", subject="orders/3", ends=[("loss_suspected", "orders")]))

    assert before == [("loss_suspected", "orders")]
    assert firing(alerts) == [("producer_desynchronised", "orders/3")]


def test_a_recovery_notice_ends_the_alert_of_its_subject_only():
    alerts = ReportedAlerts()
    alerts.notice(notice("transactions_failing"))
    alerts.notice(notice("standing_unknown", subject="orders/1"))
    alerts.notice(notice("standing_unknown", subject="orders/2"))
    alerts.notice(notice("transactions_recovered"))
    alerts.notice(notice("retention_removed", subject="orders/1"))

    assert firing(alerts) == [("standing_unknown", "orders/2"), ("retention_removed", "orders/1")]


def test_only_lasting_alerts_outlive_their_producer():
    alerts = ReportedAlerts()
    for kind in END_CONDITIONS:
        alerts.notice(notice(kind, subject="s"))

    assert {rule for rule, _ in firing(alerts, closed=True)} == {
        kind for kind in RULES if RULES[kind].lasting
    }
    assert firing(alerts, 10**9, closed=True)


def test_reported_alerts_are_bounded_and_keep_lasting_ones():
    alerts = ReportedAlerts()
    alerts.notice(notice("acknowledged_lost", subject="orders/0"))
    for number in range(3000):
        alerts.notice(notice("retention_removed", subject=f"orders/{number}"))

    assert len(firing(alerts)) == 1000
    assert ("acknowledged_lost", "orders/0") in firing(alerts)


def test_a_lasting_alert_fires_until_it_is_acknowledged(store):
    log = AlertLog(store, clock=lambda: 50.0)
    lost = alert("acknowledged_lost", "orders/3", 1.0, text="gone")
    log.record(follow({}, [lost, too_slow(1)], 1))

    for item in log.list():
        assert log.acknowledge(item.alert_id, who="ann", origin="cli")

    seen = {item.rule: (item.state, item.acknowledged_by, item.resolved_at) for item in log.list()}
    assert seen == {
        "acknowledged_lost": ("resolved", "ann", 50.0),
        "high_latency": ("firing", "ann", None),
    }
    log.record(follow({lost.key: lost}, [], 60))  # the producer reports the end later
    assert log.list()[1].resolved_at == 50.0
