"""The alerts about decision objectives, and dead letters that no alert counts, evaluated on a store."""

from __future__ import annotations

import pytest

from producer_core.alerts import RULES, AlertRule, Threshold, evaluate
from producer_core.alerts.conditions import ObjectiveBurn, ObjectiveMissed
from producer_core.alerts.rule_parser import read
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.snapshot_reader import SnapshotReader
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.objectives import DecisionObjective, set_objective
from producer_core.dlq.resolve_cause import resolve_cause
from producer_core.store.removed_clusters import mark_removed
from tests.fixtures.dead_letters import NOW, dead_letter

HOUR = 3600.0
DECISIONS = {name: rule for name, rule in RULES.items() if name.startswith("decision_objective")}
SIZE = {"many": AlertRule("warning", "{says}", "Replay.", condition=Threshold("dlq_size", above=0.0))}


@pytest.fixture
def dead(store):
    set_objective(store, "orders", DecisionObjective(95, 4 * HOUR), who="ada", origin="cli")
    return DeadLetters(store, clock=lambda: NOW)


def failed(number, hours_ago, **fields):
    at = NOW - hours_ago * HOUR
    return dead_letter(number, failed_at=at, accepted_at=at - 1, attempts=(), **fields)


def fired(store, rules=DECISIONS):
    snapshot = SnapshotReader(store).read(RuleSet(rules), NOW)
    return {change.alert.rule: change.alert for change in evaluate(rules, snapshot, ())}


def decided(store, dead, count, hours_ago=10):
    """Add dead letters that were archived an hour after they failed."""
    dead.add([failed(1000 + number, hours_ago) for number in range(count)])
    DeadLetters(store, clock=lambda: NOW - (hours_ago - 1) * HOUR).archive(
        DeadLetterFilter(), who="ada", origin="cli"
    )


def test_nothing_fires_while_every_dead_letter_is_decided_in_time(store, dead):
    decided(store, dead, 20)
    dead.add([failed(1, 1)])

    assert fired(store) == {}


def test_a_missed_objective_fires_while_a_dead_letter_is_past_its_deadline(store, dead):
    decided(store, dead, 18)
    dead.add([failed(1, 5)])  # 18 of 19 are below 95%

    alert = fired(store)["decision_objective_missed"]

    assert (alert.severity, alert.subject) == ("critical", "orders")
    assert alert.text == (
        "orders: 94.74% of the dead letters were decided in time, the objective is 95% within 4 h; 1 dead letter past the "
        "deadline"
    )
    dead.archive(DeadLetterFilter(), who="ada", origin="cli")
    assert fired(store) == {}


def test_an_overdue_dead_letter_within_the_budget_does_not_fire(store, dead):
    decided(store, dead, 19)
    dead.add([failed(1, 5)])  # 19 of 20 are exactly 95%

    assert "decision_objective_missed" not in fired(store)


def test_deadlines_within_an_hour_fire_before_they_are_missed(store, dead):
    decided(store, dead, 99)
    dead.add([failed(1, 3.5), failed(2, 3.9)])  # 2 of 101 use 40% of the budget of 5.05

    alert = fired(store)["decision_objective_burn"]

    assert alert.value == pytest.approx(2 / (0.05 * 101))
    assert "2 dead letters must be decided within an hour, the first by 2027-01-15 08:06 UTC" in alert.text


def test_a_small_share_of_the_budget_does_not_fire(store, dead):
    decided(store, dead, 99)
    dead.add([failed(1, 3.5)])  # 20% of the budget

    assert fired(store) == {}


def test_deadlines_missed_in_the_last_hour_count_with_the_next_ones(store, dead):
    decided(store, dead, 99)
    dead.add([failed(1, 3.5), failed(2, 4.5)])

    assert fired(store)["decision_objective_burn"].value == pytest.approx(2 / (0.05 * 101))
    dead.add([failed(3, 5.5)])
    assert fired(store)["decision_objective_burn"].value == pytest.approx(2 / (0.05 * 102))


def test_a_topic_without_an_objective_fires_no_alert(store, dead):
    dead.add([failed(1, 50, topic="refunds")])

    assert fired(store) == {}


def test_no_alert_counts_the_dead_letters_of_a_cluster_that_no_longer_exists(store, dead):
    dead.add([failed(1, 5)])
    assert {*fired(store)} == {"decision_objective_missed"} and {*fired(store, SIZE)} == {"many"}

    mark_removed(store, "c", True, who="ada", origin="cli", now=NOW)

    assert fired(store) == {} and fired(store, SIZE) == {}


def test_a_rules_file_changes_both_rules():
    text = "[rules.decision_objective_burn]\nused = 0.5\n[rules.decision_objective_missed]\nmin_overdue = 10\nsubjects = ['a']"

    rules, problems = read(text)

    assert problems == []
    assert rules.rules["decision_objective_burn"].condition == ObjectiveBurn(used=0.5)
    assert rules.rules["decision_objective_missed"].condition == ObjectiveMissed(min_overdue=10)


RETURNED = {"cause_returned": RULES["cause_returned"]}


def test_a_resolved_cause_that_is_back_fires_with_the_version_while_a_dead_letter_is_pending(store, dead):
    dead.add([failed(1, 5)])
    resolve_cause(store, "f1", who="bob", origin="cli", now=NOW - 4 * HOUR)
    assert fired(store, RETURNED) == {}

    dead.add([failed(2, 2, application_version="4.2.1"), failed(3, 1, application_version="4.2.1")])

    alert = fired(store, RETURNED)["cause_returned"]
    assert (alert.severity, alert.subject) == ("warning", "orders/f1")
    assert alert.text == (
        "orders: MSG_SIZE_TOO_LARGE is back since version 4.2.1, 2 dead letters pending; bob resolved it on 2027-01-15 04:00 UTC"
    )
    dead.archive(DeadLetterFilter(), who="ada", origin="cli")
    assert fired(store, RETURNED) == {}


def test_a_cause_that_is_back_without_a_known_version_has_the_time(store, dead):
    dead.add([failed(1, 5)])
    resolve_cause(store, "f1", who="bob", origin="cli", now=NOW - 4 * HOUR)
    dead.add([failed(2, 2)])

    assert (
        "is back since 2027-01-15 06:00 UTC, 1 dead letter" in fired(store, RETURNED)["cause_returned"].text
    )
