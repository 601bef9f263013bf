"""Test that repeats of an alert are one entry of the history."""

from __future__ import annotations

from producer_core.alerts import AlertChange, AlertLog
from producer_core.alerts.alert_state import resolved
from producer_core.dashboard.queries import View
from producer_core.dashboard.queries.alert_history import EPISODES, alert_history, episodes_of
from tests.fixtures.alert_pages import NOW, burning, fire, lost


def end(store, item, after):
    fire(store, item)
    AlertLog(store).record([AlertChange("resolved", resolved(item, item.started_at + after))])
    return item


def history(store, limit=10, **view):
    return alert_history(store, View("1 hour", **view), NOW, limit=limit)


def test_repeats_of_a_rule_and_subject_are_one_entry_with_their_sums(store):
    end(store, lost(NOW - 900), 60)
    end(store, lost(NOW - 600), 10)
    last = end(store, lost(NOW - 300), 20)
    other = end(store, lost(NOW - 400, subject="p-2"), 5)

    first, second = history(store).alerts

    assert (first.latest.alert_id, first.episodes, first.first_at) == (last.alert_id, 3, NOW - 900)
    assert (first.lasted, first.longest) == (90.0, 60.0)
    assert (second.latest.alert_id, second.episodes, second.lasted) == (other.alert_id, 1, 5.0)
    assert (history(store).total, history(store).listed) == (4, 4)


def test_the_limit_counts_alerts_and_not_their_repeats(store):
    for ago in range(300, 0, -30):
        end(store, lost(NOW - ago), 5)
    end(store, burning(NOW - 900), 5)

    found = history(store, limit=1)

    assert (len(found.alerts), found.listed, found.total) == (1, 10, 11)


def test_a_firing_alert_and_one_outside_the_filter_are_not_in_the_history(store):
    fire(store, lost(NOW - 60))
    end(store, burning(NOW - 600), 60)

    assert [one.latest.subject for one in history(store).alerts] == ["payments"]
    assert history(store, topic="orders").alerts == ()
    assert history(store, topic="orders").total == 0


def test_the_page_of_an_alert_lists_its_episodes_latest_first(store):
    for ago in range(10 * EPISODES + 50, 0, -10):
        last = end(store, lost(NOW - ago), 5)

    found, total = episodes_of(store, last)

    assert (len(found), total) == (EPISODES, EPISODES + 5)
    assert found[0].alert_id == last.alert_id
