"""The alert log: episodes, acknowledgements, and silences in the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.alerts import AlertLog, alert, follow
from tests.fixtures.alerts import too_slow


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
