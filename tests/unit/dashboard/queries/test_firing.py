"""Test the alerts of the overview: merging, order and current numbers."""

from __future__ import annotations

import pytest

from producer_core.alerts import RULES, AlertChange, AlertLog, alert, rule_set_of
from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries.firing import firing
from producer_core.dlq import DeadLetters
from tests.fixtures.dead_letter_pages import dead_letter as rejected
from tests.fixtures.overview import counts, dead_letter, write

NOW = 0.0


@pytest.mark.slow
def test_equal_alerts_are_merged_and_recovered_ones_come_last(store):
    rows = [counts(at, "payments", acknowledged=5, dead=5) for at in range(int(NOW) - 60, int(NOW) - 14)]
    write(
        store, [*rows, *(counts(at, "payments", acknowledged=9) for at in range(int(NOW) - 11, int(NOW) - 3))]
    )
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 60 + number / 5) for number in range(230)])
    fired = [alert("connection_lost", name, NOW - 9, reason="refused") for name in ("p", "q")]
    fired += [
        alert(
            "error_budget_fast",
            "payments",
            NOW - 40,
            value=0.5,
            threshold=0.01,
            long="1 h",
            factor="9",
            objective="99%",
        ),
        alert("weak_replication", "orders", NOW - 5, text="orders has one replica"),
    ]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    first, second, third = queries.overview(store, "15 min", NOW).alerts
    assert [one["rule"] for one in (first, second, third)] == [
        "connection_lost",
        "weak_replication",
        "error_budget_fast",
    ]
    assert len(first["alert_ids"]) == 2 and "(reported by 2 producers)" in wording.alert(first, NOW)
    assert wording.alert(third, NOW).endswith(
        "payments is delivering again; the alert resolves automatically."
    )


def test_a_custom_rule_lists_each_topic_even_if_its_text_does_not_name_it(store):
    """Once two topics shared one line, "reported by 2 producers", with the resolve time of the built-in rule."""
    store.path.with_name("alerts.toml").write_text(
        '[rules.many_dead]\nkind = "threshold"\nmetric = "dead"\nabove = 5\ntext = "many die"\nkeep_firing_for = "1h"\n'
        '[rules.slow_delivery]\nkeep_firing_for = "2h"\n'
    )
    own = rule_set_of(store).rules["many_dead"]
    fired = [alert("many_dead", topic, NOW - 40, definition=own) for topic in ("orders", "payments")]
    fired += [alert("slow_delivery", "orders", NOW - 40, says="slow", threshold=1.0)]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE alerts SET since = ?", [NOW - 600])

    found = queries.overview(store, "15 min", NOW).alerts

    assert sorted((one["rule"], one["subject"]) for one in found) == [
        ("many_dead", "orders"), ("many_dead", "payments"), ("slow_delivery", "orders"),
    ]  # fmt: skip
    ends = {one["rule"]: wording.alert(one, NOW) for one in found}
    assert ends["many_dead"].endswith("resolves in 50 min.")
    assert ends["slow_delivery"].endswith("resolves in 2 h.")


def test_the_dead_letter_alert_shows_the_current_number(store):
    raised = alert("high_dlq_size", "p", NOW, value=101, threshold=100)
    AlertLog(store).record([AlertChange("fired", raised)])
    DeadLetters(store).add([rejected(number) for number in range(120)])
    page = queries.overview(store, "5 min", NOW)
    assert [found["text"] for found in page.alerts] == [
        "Pending dead letters: 120; the application warns above 100 (dlq_size_threshold)"
    ]
    assert page.dead_total == 120


ROW = {
    "alert_id": "a-1", "rule": "dedup_degraded", "subject": "p-1", "severity": "warning", "text": "No Redis.",
    "started_at": 50.0, "since": None, "acknowledged_by": None, "silenced": False, "muted_by": None, "value": 1.0,
    "threshold": 0.0,
}  # fmt: skip


def test_a_store_without_alerts_has_none():
    assert firing([], 0, (), queries.View(), RULES) == ()


@pytest.mark.parametrize("suppressed", [{"silenced": True}, {"muted_by": "connection_lost fires"}])
def test_a_suppressed_alert_is_not_shown(suppressed):
    assert firing([{**ROW, **suppressed}], 0, (), queries.View(), RULES) == ()


def test_an_acknowledged_alert_is_not_merged_with_an_open_one():
    rows = [ROW, {**ROW, "alert_id": "a-2"}, {**ROW, "alert_id": "a-3", "acknowledged_by": "ada"}]

    found = firing(rows, 0, (), queries.View(), RULES)

    assert [one["alert_ids"] for one in found] == [("a-1", "a-2"), ("a-3",)]


def test_an_alert_of_a_rule_that_was_removed_is_still_shown():
    (found,) = firing([{**ROW, "rule": "removed"}], 0, (), queries.View(), RULES)

    assert (found["rule"], found["keep_firing_for"], found["recovered"]) == ("removed", 0.0, False)
