"""The time from a failure to the decision on its dead letter, and the objectives for it."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from producer_core._internal.decision_objective import EVERY_TOPIC, SETTING, DecisionObjective
from producer_core.alerts import decision_rows
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.objectives import decisions, objectives, set_objective
from producer_core.errors import ConfigError
from producer_core.events import Attempt
from producer_core.store import Store
from tests.fixtures.dead_letters import NOW, dead_letter
from tests.fixtures.edits import edit, fields
from tests.fixtures.replays import message_id

HOUR = 3600.0
FOUR_HOURS = DecisionObjective(95, 4 * HOUR)


@pytest.fixture
def store(dead_letters):
    return dead_letters._store


def set_for(store, topic="orders", objective=FOUR_HOURS):
    set_objective(store, topic, objective, who="ada", origin="cli")


def failed(number, hours_ago, **fields):
    """Return a dead letter that failed this long before NOW."""
    at = NOW - hours_ago * HOUR
    return dead_letter(number, failed_at=at, accepted_at=at - 1, attempts=(), **fields)


def archive(dead_letters, now, number, at):
    now[0] = at
    dead_letters.archive(DeadLetterFilter(message_id=f"m-{number}"), who="ada", origin="cli")


def only(found):
    (one,) = found
    return one


def test_a_dead_letter_is_evaluated_once_when_it_is_decided_or_at_its_deadline(store, dead_letters, now):
    set_for(store)
    dead_letters.add([failed(1, 10), failed(2, 10), failed(3, 5), failed(4, 3)])
    archive(dead_letters, now, 1, NOW - 9 * HOUR)  # in time
    archive(dead_letters, now, 2, NOW - 5 * HOUR)  # an hour late

    one = only(decisions(store, NOW))

    assert (one.evaluated, one.missed) == (3, 2)  # 3 is pending past its deadline, 4 has an hour left
    assert (one.pending, one.overdue, one.due, one.next_at) == (2, 1, 1, NOW + HOUR)
    assert one.met == pytest.approx(1 / 3) and one.is_missed


def test_a_decision_exactly_at_the_deadline_is_in_time(store, dead_letters, now):
    set_for(store)
    dead_letters.add([failed(1, 4)])
    archive(dead_letters, now, 1, NOW)

    assert (only(decisions(store, NOW)).evaluated, only(decisions(store, NOW)).missed) == (1, 0)


def test_the_quantiles_are_those_of_the_decisions_in_the_range(store, dead_letters, now):
    dead_letters.add([failed(number, 200) for number in range(1, 101)])
    for number in range(1, 101):
        archive(dead_letters, now, number, NOW - 200 * HOUR + number * HOUR)

    whole = only(decisions(store, NOW))
    assert (whole.decided, whole.p50, whole.p95) == (100, 50 * HOUR, 95 * HOUR)
    assert whole.objective is None and whole.evaluated == 0 and whole.met is None
    first = only(decisions(store, NOW, since=NOW - 200 * HOUR, until=NOW - 190 * HOUR))
    assert (first.decided, first.p50, first.p95) == (10, 5 * HOUR, 10 * HOUR)


def test_a_replay_that_fails_is_no_decision_and_does_not_restart_the_clock(store, dead_letters, now):
    set_for(store)
    dead_letters.add([failed(1, 6)])
    now[0] = NOW - HOUR
    for hours_ago in (2, 1):
        dead_letters.add([failed(1, hours_ago, code=f"AGAIN_{hours_ago}")])
    assert only(decisions(store, NOW)).overdue == 1

    archive(dead_letters, now, 1, NOW)

    assert only(decisions(store, NOW)).p50 == 6 * HOUR


def test_restoring_takes_the_decision_back_and_purging_keeps_it(store, dead_letters, now):
    set_for(store)
    dead_letters.add([failed(1, 40), failed(2, 40)])
    archive(dead_letters, now, 1, NOW - 39 * HOUR)
    archive(dead_letters, now, 2, NOW - 39 * HOUR)
    now[0] = NOW
    dead_letters.restore(DeadLetterFilter(message_id="m-1", state="archived"), who="ada", origin="cli")
    where = DeadLetterFilter(message_id="m-2", state="archived")
    dead_letters.purge(where, who="ada", origin="cli", confirmation="purge 1", min_age=HOUR)

    one = only(decisions(store, NOW + 1))

    assert (one.evaluated, one.missed, one.overdue) == (2, 1, 1)
    assert (one.decided, one.p50) == (1, pytest.approx(HOUR))


def test_a_decision_of_another_store_is_not_counted(store, dead_letters, now):
    set_for(store)
    dead_letters.add([failed(1, 40), failed(2, 40)])
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET state = 'archived', state_at = ?", [NOW])
        connection.execute("INSERT INTO letter_events VALUES ('m-1', ?, 'imported', 'ada', 'cli', '')", [NOW])

    assert (only(decisions(store, NOW)).decided, only(decisions(store, NOW)).missed) == (1, 1)


def test_a_report_scans_the_decided_dead_letters_once(store, dead_letters, now):
    """It scanned them twice, and put the ids of all of them into a hash table: 2 s for 6 million."""
    dead_letters.add([dead_letter(number) for number in range(100)])
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")
    dead_letters.add([dead_letter(100)])

    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO letter_events VALUES ('m-1', ?, 'replayed', 'ada', 'cli', '')", [NOW])
    with store.borrow() as connection:
        (_, plan) = connection.execute(
            "EXPLAIN (ANALYZE, FORMAT json) SELECT count(decided_at) FROM dead_letter_decisions"
        ).fetchone()

    scanned = sum(
        one["intermediate_rows"]
        for one in operators(orjson.loads(plan)["operator"])
        if one["extra_info"].get("Table") == "store.main.dead_letters"
    )
    assert scanned == 101


def operators(found):
    for one in found:
        yield one
        yield from operators(one.get("children", ()))


def test_an_alert_reads_the_same_numbers_without_the_quantiles(store, dead_letters, now):
    set_for(store, objective=DecisionObjective(95, 60))
    dead_letters.add([dead_letter(number) for number in range(5)])
    dead_letters.archive(DeadLetterFilter(ids=("m-1", "m-2")), who="ada", origin="cli")

    (row,) = store.rows("decision_report", **decision_rows.parameters(objectives(store), now[0] + 1, ()))

    (report,) = decisions(store, now[0] + 1)
    assert (row["p50"], row["p95"]) == (None, None) and report.p50 is not None
    names = ("evaluated", "missed", "missed_lately", "decided", "pending", "overdue", "due", "next_at")
    assert [row[name] for name in names] == [getattr(report, name) for name in names]
    assert row["decided"] == 2


def test_only_dead_letters_that_may_be_on_their_topic_need_a_probe(store, dead_letters):
    dead_letters.add(
        [failed(1, 9, verdict="rejected"), failed(2, 5, verdict="possibly_persisted", cluster_id="d")]
    )

    one = only(decisions(store, NOW))

    assert (one.doubtful_at, one.clusters) == (NOW - 5 * HOUR - 1, ("d",))


def test_an_objective_of_every_topic_applies_where_a_topic_has_none(store, dead_letters):
    set_for(store, EVERY_TOPIC, DecisionObjective(50, HOUR))
    set_for(store)
    dead_letters.add([failed(1, 2), failed(2, 2, topic="refunds")])

    orders, refunds = decisions(store, NOW)

    assert (orders.objective, orders.overdue) == (FOUR_HOURS, 0)
    assert (str(refunds.objective), refunds.overdue) == ("50% within 1 h", 1)


def test_a_topic_with_an_objective_and_without_dead_letters_is_listed(store):
    set_for(store, "payments")

    assert [(one.topic, one.pending, one.met) for one in decisions(store, NOW)] == [("payments", 0, None)]


def test_objectives_are_stored_audited_and_removed(store):
    set_for(store)
    set_for(store, "refunds", DecisionObjective(99.9, 60))
    set_for(Store.open(store.path), "orders", None)

    assert objectives(store) == {"refunds": DecisionObjective(99.9, 60)}
    assert [row["who"] for row in store.rows("audit_latest")] == ["ada"] * 3
    set_for(store, "refunds", None)
    assert store.settings() == {}


@pytest.mark.parametrize(
    ("topic", "objective", "message"),
    [
        ("or ders", FOUR_HOURS, "is not a topic name"),
        ("refunds", None, "has no objective of its own"),
        (EVERY_TOPIC, None, "no objective for all other topics"),
    ],
)
def test_an_invalid_change_is_refused(store, topic, objective, message):
    with pytest.raises(ConfigError, match=message):
        set_for(store, topic, objective)
    assert store.settings() == {} and store.rows("audit_latest") == []


@pytest.mark.parametrize(
    ("percent", "within"),
    [(0, 60), (100, 60), (float("nan"), 60), (True, 60), ("95", 60), (95, 0), (95, 1e12), (95, None)],
)
def test_an_impossible_objective_is_refused(percent, within):
    with pytest.raises(ConfigError):
        DecisionObjective(percent, within)


@pytest.mark.parametrize("value", [{"orders": 95}, {"": {"percent": 95, "within": 60}}, {"orders": {}}, "x"])
def test_the_setting_has_no_other_form(store, value):
    with pytest.raises(ConfigError):
        store.change_settings({SETTING: value}, who="ada", origin="cli")


def test_an_edit_that_replaces_its_original_is_no_decision_and_keeps_the_clock(store, dead_letters, now):
    set_for(store)
    first = failed(1, 10, message_id=message_id(1), verdict="possibly_persisted", value=b'{"amount": 1}')
    dead_letters.add([first])
    dead_letters.add([replace(first, failed_at=NOW - HOUR, attempts=(Attempt(NOW - HOUR, "CODE", "again"),))])
    assert (only(decisions(store, NOW)).evaluated, only(decisions(store, NOW)).overdue) == (1, 1)

    assert edit(store, fields({"amount": 2}), clock=lambda: now[0]).replacements

    one = only(decisions(store, NOW))
    assert (one.evaluated, one.missed, one.decided, one.pending, one.overdue) == (1, 1, 0, 1, 1)
