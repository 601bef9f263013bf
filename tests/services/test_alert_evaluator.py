"""Judging a real store: what its tables say under the rules, whatever the clock and other processes do."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import RULES, AlertEvaluator, AlertLog, AlertRule, RuleSet, Threshold
from producer_core.alerts.conditions import BurnRate, WindowPair
from producer_core.dlq import DeadLetters
from producer_core.store import Batch, LatencyRow
from tests.unit.alerting import write
from tests.unit.replaying import dead_letter

NOW = 1_700_000_000.0


class Clock:
    """Two clocks: one that people set, and one that only runs."""

    def __init__(self):
        self.now, self.passed = NOW, 0.0

    def passes(self, seconds):
        self.now += seconds
        self.passed += seconds


@pytest.fixture
def clock():
    return Clock()


def evaluator(store, clock, rules=None, owner="me"):
    book = RuleSet(rules=rules) if rules is not None else RuleSet()
    return AlertEvaluator(
        store, owner=owner, book=book, clock=lambda: clock.now, monotonic=lambda: clock.passed
    )


def kinds(changes, rule=None):
    return [
        (change.kind, change.alert.rule, change.alert.subject)
        for change in changes
        if change.kind in ("fired", "resolved") and rule in (None, change.alert.rule)
    ]


def rule(condition, **changes):
    return {"mine": AlertRule("warning", "{subject} {value}", "Look.", condition=condition, **changes)}


def test_the_same_budgets_are_judged_from_the_stores_rows(store, clock):
    for back, bad in ((2000, 0), (200, 30)):
        write(store, NOW - back, good=970, bad=bad)
    burns = rule(BurnRate(pairs=(WindowPair(3600.0, 300.0, 14.4),)))

    assert kinds(evaluator(store, clock, burns).tick()) == [("fired", "mine", "orders")]
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
def test_every_part_of_a_store_can_be_watched(store, clock, condition, subject):
    write(store, NOW - 10, good=97, bad=3, pending=6, connected=False)
    latency = LatencyRow(int(NOW - 10), "c", "p-1", "orders", 320, 97)
    store.append(Batch("p-1", 10**6, latencies=(latency,)))
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 7000), dead_letter(2, failed_at=NOW - 100)])

    changes = evaluator(store, clock, rule(condition)).tick()

    assert kinds(changes) == [("fired", "mine", subject)]


def test_a_healthy_store_fires_nothing_of_ours(store, clock):
    works = evaluator(store, clock)
    for _ in range(12):
        clock.passes(60)
        write(store, clock.now, good=100, pending=3)
        assert works.tick() == ()


def test_a_clock_that_is_set_back_an_hour_changes_no_time_to_fire_and_wakes_nobody(store, clock):
    works = evaluator(
        store, clock, {**RULES, **rule(Threshold("pending", above=5, by="producer"), for_=60.0)}
    )
    told = []
    for step in range(20):
        clock.passes(5)
        if step == 6:
            clock.now -= 3600
        write(store, clock.now, good=1, pending=6)
        told += [(clock.passed, *change) for change in kinds(works.tick())]

    assert told == [(65.0, "fired", "mine", "p-1")]


def test_a_clock_that_is_set_ahead_an_hour_makes_nobody_dead(store, clock):
    works = evaluator(store, clock)
    told = []
    for step in range(16):
        clock.passes(5)
        if step == 6:
            clock.now += 3600
            told += kinds(works.tick())  # before any producer could give a sign
        write(store, clock.now, good=10)
        told += kinds(works.tick())

    assert told == []


def test_a_dead_producer_is_missed_in_time_although_the_clock_was_set_back(store, clock):
    works = evaluator(store, clock)
    write(store, clock.now, good=1)
    works.tick()
    clock.now -= 3600
    told = []
    for _ in range(12):
        clock.passes(5)
        told += [(clock.passed, *change) for change in kinds(works.tick())]

    assert told == [(45.0, "fired", "producer_gone", "p-1")]


def test_another_process_goes_on_where_the_dead_one_was_and_nothing_fires_twice(store, clock):
    rules = rule(Threshold("pending", above=5, by="producer"), for_=60.0)
    first, second = (evaluator(store, clock, rules, owner) for owner in ("first", "second"))
    told = []
    for step in range(16):
        clock.passes(5)
        write(store, clock.now, pending=6)
        if step < 6:
            told += [("first", clock.passed, *change) for change in kinds(first.tick())]
        told += [("second", clock.passed, *change) for change in kinds(second.tick())]

    assert told == [("second", 65.0, "fired", "mine", "p-1")]
    assert len(AlertLog(store).list()) == 1


def test_a_lease_far_ahead_of_the_clock_holds_nobody_up_for_long(store, clock):
    store.take_lease("alerts", "dead", 3600.0, NOW)
    works, led = evaluator(store, clock), []
    for _ in range(5):
        clock.passes(5)
        works.tick()
        led.append(works.leads)

    assert led == [False, False, False, True, True]


def test_a_process_that_slept_through_its_lease_writes_nothing(store, clock):
    rules = rule(Threshold("pending", above=5, by="producer"))
    first, second = (evaluator(store, clock, rules, owner) for owner in ("first", "second"))
    first.tick()
    write(store, clock.now, pending=6)
    log, taken = first._log, []
    keep = log.take

    def slept(changes, **lease):
        for _ in range(5):
            clock.passes(5)
            write(store, clock.now, pending=6)
            taken.extend(kinds(second.tick()))
        return keep(changes, **lease)

    log.take = slept
    assert first.tick() == ()
    assert not first.leads
    assert taken == [("fired", "mine", "p-1")]
    assert len(AlertLog(store).list()) == 1


def test_the_lease_is_given_back_at_the_end(store, clock):
    first, second = (evaluator(store, clock, owner=owner) for owner in ("first", "second"))
    first.tick()
    first.stop()

    second.tick()

    assert second.leads


def test_mistakes_in_the_file_of_rules_are_an_alert_until_they_are_mended(store, clock, tmp_path):
    path = tmp_path / "alerts.toml"
    works = AlertEvaluator(store, owner="me", clock=lambda: clock.now, monotonic=lambda: clock.passed)
    path.write_text("[rules.mine]\n")
    broken = kinds(works.tick())
    path.write_text("every = '5s'\n")

    assert broken == [("fired", "rules_file_refused", "alerts.toml")]
    assert kinds(works.tick()) == [("resolved", "rules_file_refused", "alerts.toml")]


def test_a_silence_can_be_ended_and_both_are_audited(store):
    log = AlertLog(store)
    log.silence("high_latency", "orders", until=time.time() + 60, who="ann", why="x", origin="cli")

    assert log.unsilence("high_latency", "orders", who="bob", origin="cli") == 1
    assert log.unsilence("high_latency", "orders", who="bob", origin="cli") == 0
    assert log.silences() == []
    assert [row["who"] for row in store.rows("audit_latest", action="unsilence")] == ["bob", "bob"]


def test_a_question_that_takes_long_is_asked_rarely(store, clock, monkeypatch):
    asked, rows = [], store.rows

    def slow(query, /, **parameters):
        if query == "alerts_letters":
            asked.append(clock.passed)
            clock.passes(0.3)
        return rows(query, **parameters)

    monkeypatch.setattr(store, "rows", slow)
    works = evaluator(store, clock, rule(Threshold("dlq_size", above=1)))
    for _ in range(10):
        works.tick()
        clock.passes(5)

    assert [round(at) for at in asked] == [0, 15, 31, 46]
