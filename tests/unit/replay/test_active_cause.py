"""Whether the cause of the dead letters is over."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.active_cause import is_over
from producer_core.replay.dry_run import dry_run
from producer_core.store import Batch, StatisticsRow
from tests.fixtures.replays import ALL, add_dead_letters, dead_letter


def test_a_cause_is_over_after_enough_deliveries_without_a_failure(store):
    """One of four failed, so a row of twelve deliveries without a failure shows that it is over."""
    now = float(int(time.time()))
    DeadLetters(store).add([dead_letter(number, failed_at=now - 30) for number in range(5)])
    burns = alert(
        "error_budget_fast",
        "orders",
        now - 60,
        value=0.2,
        threshold=0.01,
        long="1 h",
        factor="2",
        objective="99.9%",
    )
    AlertLog(store).record([AlertChange("fired", burns)])

    def delivered(batch, at, count):
        store.append(
            Batch(
                "p",
                batch,
                (StatisticsRow(int(at), "c", "p", "orders", count, count, 0, 0, 0, 0, 0, 0, 10, 0.1),),
            )
        )
        return dry_run(store, ALL).active

    assert "1 more" not in delivered(0, now - 60, 15)
    said = delivered(1, now - 20, 11)
    assert "1 more message is delivered to orders" in said and "an alert is firing" in said
    assert delivered(2, now - 10, 1) == ""


@pytest.mark.parametrize(
    ("silent", "died", "before", "since", "over"),
    [
        (36, 1, 9, 30, True),
        (36, 1, 9, 29, False),
        (5, 1, 9, 900, False),
        (36, 9, 0, 9, False),
        (36, 9, 0, 10, True),
    ],
)
def test_a_fault_is_over_after_enough_consecutive_deliveries_for_its_failure_rate(
    silent, died, before, since, over
):
    assert is_over(silent, died=died, before=before, since=since) is over


def test_the_dry_run_reports_a_firing_alert_of_a_selected_topic(store):
    add_dead_letters(store, 2)
    assert not dry_run(store, ALL).active
    found = alert(
        "dead_letters_growing",
        "orders",
        5000.0,
        value=2000.0,
        says="2,000 new dead letters are pending",
        window="15 min",
    )
    AlertLog(store).record([AlertChange("fired", found)])

    assert (
        'an alert is firing: "orders: 2,000 new dead letters are pending (last 15 min)'
        in dry_run(store, ALL).active
    )
    assert not dry_run(store, DeadLetterFilter(topic="payments")).active


def test_the_dry_run_reports_a_lost_connection_without_the_text_of_the_client(store):
    add_dead_letters(store, 2)
    raw = "127.0.0.1:9/1: Connect to ipv4#127.0.0.1:9 failed: Connection refused"
    lost = alert("connection_lost", dead_letter(1).producer_id, 5000.0, reason=raw)
    AlertLog(store).record([AlertChange("fired", lost)])

    active = dry_run(store, ALL).active

    assert 'an alert is firing: "No connection to the brokers"' in active
    assert "ipv4" not in " ".join(dry_run(store, ALL).sentences)


def test_an_alert_on_old_dead_letters_does_not_make_their_cause_active(store):
    add_dead_letters(store, 2)
    found = alert("dead_letters_old", "orders", 5000.0, says="a dead letter waits for 2 d")
    AlertLog(store).record([AlertChange("fired", found)])

    assert not dry_run(store, ALL).active
