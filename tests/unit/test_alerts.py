"""Alerts: the life of one, the log of a store, and who notices a dead producer."""

from __future__ import annotations

import string
import time
from dataclasses import replace

import pytest

from producer_core.alerts import RULES, AlertLog, after, alert, evaluate_store, follow
from producer_core.store import Batch, ProducerRow, Store


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


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
    firing, told = {}, []
    for now, found in [(1, [too_slow(1)]), (2, [too_slow(2)]), (3, []), (4, [])]:
        changes = follow(firing, found, now)
        firing = after(firing, changes)
        told += kinds(changes)

    assert told == [("fired", "high_latency"), ("resolved", "high_latency")]
    assert firing == {}


def test_words_and_numbers_follow_without_a_second_firing():
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


def test_the_next_episode_has_its_own_id():
    assert too_slow(1).alert_id != too_slow(2).alert_id


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_words_and_advice(rule):
    names = {name for _, name, _, _ in string.Formatter().parse(RULES[rule].text) if name}
    details = dict.fromkeys(names - {"value", "threshold"}, "x")

    written = alert(rule, "s", 1.0, value=0.5, threshold=0.1, **details)

    assert "{" not in written.text
    assert written.advice.endswith(".")


def test_the_log_remembers_an_episode(store):
    log = AlertLog(store)
    fired = follow({}, [too_slow(1)], 1)

    log.record(fired)
    assert [item.text for item in log.list(state="firing")] == [too_slow(1).text]
    log.record(follow(log.firing(), [], 9))

    (item,) = log.list()
    assert (item.state, item.started_at, item.resolved_at) == ("resolved", 1, 9)


def test_two_watchers_make_one_alert(store):
    AlertLog(store).record(follow({}, [too_slow(1)], 1))
    AlertLog(store).record(follow({}, [too_slow(1.5)], 1.5))

    assert len(AlertLog(store).list()) == 1


def test_the_first_to_acknowledge_stays_and_both_are_audited(store):
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
    assert [quiet.why for quiet in log.silences()] == ["deploy"]
    now[0] = 21.0
    assert not any(item.silenced for item in log.list())


def test_a_silence_for_an_unknown_rule_names_the_rules(store):
    with pytest.raises(ValueError, match="high_latency"):
        AlertLog(store).silence("hi_latency", until=1.0, who="a", why="b", origin="cli")


def test_a_dead_producer_is_noticed_by_another_process_once(store):
    heartbeat(store, 1000.0)

    assert evaluate_store(store, 1030.0, owner="watcher") == []
    told = [kinds(evaluate_store(store, now, owner="watcher")) for now in (1041.0, 1042.0, 1100.0)]

    assert told == [[("fired", "producer_gone")], [], []]
    (item,) = AlertLog(store).list()
    assert "shop (host-7, process 4711)" in item.text
    assert item.severity == "critical"


def test_a_producer_that_comes_back_or_is_closed_resolves_it(store):
    heartbeat(store, 1000.0)
    evaluate_store(store, 1041.0, owner="watcher")

    heartbeat(store, 1050.0)

    assert kinds(evaluate_store(store, 1051.0, owner="watcher")) == [("resolved", "producer_gone")]


def test_a_closed_producer_is_not_gone(store):
    heartbeat(store, 1000.0, closed_at=1000.0)

    assert evaluate_store(store, 2000.0, owner="watcher") == []


def test_one_process_evaluates_and_another_follows_when_it_dies(store):
    heartbeat(store, 1000.0)
    evaluate_store(store, 1001.0, owner="first")

    assert evaluate_store(store, 1010.0, owner="second") == []
    assert kinds(evaluate_store(store, 1041.0, owner="second")) == [("fired", "producer_gone")]
    assert evaluate_store(store, 1042.0, owner="first") == []
