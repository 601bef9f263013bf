"""The evaluation of a real store, despite changes of the clock and other processes."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import RULES, AlertEvaluator, AlertLog, AlertRule, RuleSet, Threshold
from producer_core.alerts.conditions import BurnRate, WindowPair
from producer_core.dlq import DeadLetters
from producer_core.store import Batch, LatencyRow
from tests.fixtures.alerts import TwoClocks, write
from tests.fixtures.replays import dead_letter

NOW = 1_700_000_000.0


@pytest.fixture
def clock():
    return TwoClocks(NOW)


def make_evaluator(store, clock, rules=None, owner="me"):
    rule_set = RuleSet(rules=rules) if rules is not None else RuleSet()
    return AlertEvaluator(
        store, owner=owner, rule_set=rule_set, clock=lambda: clock.now, monotonic=lambda: clock.passed
    )


def kinds(changes, rule=None):
    return [
        (change.kind, change.alert.rule, change.alert.subject)
        for change in changes
        if change.kind in ("fired", "resolved") and rule in (None, change.alert.rule)
    ]


def rule(condition, **changes):
    return {"mine": AlertRule("warning", "{subject} {value}", "Investigate.", condition=condition, **changes)}


def test_a_burn_rate_is_evaluated_from_the_rows_of_the_store(store, clock):
    for seconds_ago, bad in ((2000, 0), (200, 30)):
        write(store, NOW - seconds_ago, good=970, bad=bad)
    burn_rate = rule(BurnRate(pairs=(WindowPair(3600.0, 300.0, 14.4),)))

    assert kinds(make_evaluator(store, clock, burn_rate).tick()) == [("fired", "mine", "orders")]
    (item,) = AlertLog(store).list(state="firing")
    assert item.value == pytest.approx(30 / 1970)


@pytest.mark.parametrize(
    ("condition", "subject"),
    [
        (Threshold("error_rate", above=0.02), "orders"),
        (Threshold("error_rate", above=0.02, by="producer"), "p-1"),
        (Threshold("throughput", below=10.0, by="store"), "all topics"),
        (Threshold("latency_p99", above=0.5), "orders"),
        (Threshold("pending", above=5, by="producer"), "p-1"),
        (Threshold("disconnected", above=0.5, by="producer"), "p-1"),
        (Threshold("dlq_size", above=1), "orders"),
        (Threshold("dlq_size", above=1, by="store"), "all topics"),
        (Threshold("dlq_age", above=3600.0), "orders"),
        (Threshold("dlq_growth", above=1, window=7200.0), "orders"),
    ],
)
def test_every_section_of_a_store_can_be_evaluated(store, clock, condition, subject):
    write(store, NOW - 10, good=97, bad=3, pending=6, connected=False)
    latency = LatencyRow(int(NOW - 10), "c", "p-1", "orders", 320, 97)
    store.append(Batch("p-1", 10**6, latencies=(latency,)))
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 7000), dead_letter(2, failed_at=NOW - 100)])

    changes = make_evaluator(store, clock, rule(condition)).tick()

    assert kinds(changes) == [("fired", "mine", subject)]


def test_a_healthy_store_fires_no_built_in_rule(store, clock):
    evaluator = make_evaluator(store, clock)
    for _ in range(12):
        clock.advance(60)
        write(store, clock.now, good=100, pending=3)
        assert evaluator.tick() == ()


def test_a_clock_that_is_set_back_an_hour_does_not_change_when_an_alert_fires(store, clock):
    evaluator = make_evaluator(
        store, clock, {**RULES, **rule(Threshold("pending", above=5, by="producer"), for_=60.0)}
    )
    changes = []
    for step in range(20):
        clock.advance(5)
        if step == 6:
            clock.now -= 3600
        write(store, clock.now, good=1, pending=6)
        changes += [(clock.passed, *change) for change in kinds(evaluator.tick())]

    assert changes == [(65.0, "fired", "mine", "p-1")]


def test_a_clock_that_is_set_ahead_an_hour_marks_no_producer_as_gone(store, clock):
    evaluator = make_evaluator(store, clock)
    changes = []
    for step in range(16):
        clock.advance(5)
        if step == 6:
            clock.now += 3600
            changes += kinds(evaluator.tick())  # before any producer sends a heartbeat
        write(store, clock.now, good=10)
        changes += kinds(evaluator.tick())

    assert changes == []


def test_a_dead_producer_is_detected_in_time_after_the_clock_was_set_back(store, clock):
    evaluator = make_evaluator(store, clock)
    write(store, clock.now, good=1)
    evaluator.tick()
    clock.now -= 3600
    changes = []
    for _ in range(12):
        clock.advance(5)
        changes += [(clock.passed, *change) for change in kinds(evaluator.tick())]

    assert changes == [(45.0, "fired", "producer_gone", "p-1")]


def test_another_process_takes_over_from_a_dead_one_and_no_alert_fires_twice(store, clock):
    rules = rule(Threshold("pending", above=5, by="producer"), for_=60.0)
    first, second = (make_evaluator(store, clock, rules, owner) for owner in ("first", "second"))
    changes = []
    for step in range(16):
        clock.advance(5)
        write(store, clock.now, pending=6)
        if step < 6:
            changes += [("first", clock.passed, *change) for change in kinds(first.tick())]
        changes += [("second", clock.passed, *change) for change in kinds(second.tick())]

    assert changes == [("second", 65.0, "fired", "mine", "p-1")]
    assert len(AlertLog(store).list()) == 1


def test_a_lease_far_ahead_of_the_clock_expires_after_its_length(store, clock):
    store.take_lease("alerts", "dead", 3600.0, NOW)
    evaluator, led = make_evaluator(store, clock), []
    for _ in range(5):
        clock.advance(5)
        evaluator.tick()
        led.append(evaluator.leads)

    assert led == [False, False, False, True, True]


def test_a_process_that_was_paused_beyond_its_lease_stores_nothing(store, clock):
    rules = rule(Threshold("pending", above=5, by="producer"))
    first, second = (make_evaluator(store, clock, rules, owner) for owner in ("first", "second"))
    first.tick()
    write(store, clock.now, pending=6)
    log, stored = first._log, []
    apply = log.apply

    def paused(changes, **lease):
        for _ in range(5):
            clock.advance(5)
            write(store, clock.now, pending=6)
            stored.extend(kinds(second.tick()))
        return apply(changes, **lease)

    log.apply = paused
    assert first.tick() == ()
    assert not first.leads
    assert stored == [("fired", "mine", "p-1")]
    assert len(AlertLog(store).list()) == 1


def test_stop_releases_the_lease(store, clock):
    first, second = (make_evaluator(store, clock, owner=owner) for owner in ("first", "second"))
    first.tick()
    first.stop()

    second.tick()

    assert second.leads


def test_mistakes_in_the_rules_file_are_an_alert_until_they_are_corrected(store, clock, tmp_path):
    path = tmp_path / "alerts.toml"
    evaluator = AlertEvaluator(store, owner="me", clock=lambda: clock.now, monotonic=lambda: clock.passed)
    path.write_text("[rules.mine]\n")
    broken = kinds(evaluator.tick())
    path.write_text("every = '5s'\n")

    assert broken == [("fired", "rules_file_refused", "alerts.toml")]
    assert kinds(evaluator.tick()) == [("resolved", "rules_file_refused", "alerts.toml")]


def test_the_end_of_a_silence_is_audited(store):
    log = AlertLog(store)
    log.silence("high_latency", "orders", until=time.time() + 60, who="ann", why="x", origin="cli")

    assert log.unsilence("high_latency", "orders", who="bob", origin="cli") == 1
    assert log.unsilence("high_latency", "orders", who="bob", origin="cli") == 0
    assert log.silences() == []
    assert [row["who"] for row in store.rows("audit_latest", action="unsilence")] == ["bob", "bob"]


def test_a_slow_query_runs_less_often(store, clock, monkeypatch):
    queried, rows = [], store.rows

    def slow(query, /, **parameters):
        if query == "alerts_letters":
            queried.append(clock.passed)
            clock.advance(0.3)
        return rows(query, **parameters)

    monkeypatch.setattr(store, "rows", slow)
    evaluator = make_evaluator(store, clock, rule(Threshold("dlq_size", above=1)))
    for _ in range(10):
        evaluator.tick()
        clock.advance(5)

    assert [round(at) for at in queried] == [0, 15, 31, 46]
