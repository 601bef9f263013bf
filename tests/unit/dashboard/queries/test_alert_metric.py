"""Test the metric of an alert over time: the values that the rule evaluated, and its threshold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.alerts import RULES, AlertRule, Threshold, alert
from producer_core.dashboard.queries.alert_metric import alert_metric
from producer_core.metrics.histogram import bucket_of, quantiles
from producer_core.store import Batch, LatencyRow
from tests.fixtures.alert_pages import NOW, burning, lost
from tests.fixtures.overview import counts, producer

AT = int(NOW) // 60 * 60


def write(store, rows, latencies=()):
    store.append(Batch("p", 0, tuple(rows), tuple(latencies), (), producer()))


def of_topic(metric, **condition):
    return AlertRule("warning", "{subject}", "", condition=Threshold(metric, **condition))


def values(found, window="5 min"):
    return dict(found.lines[window])


def firing(topic="orders", **changes):
    return replace(alert("slow_delivery", topic, AT - 300, says="x", threshold=1.0), **changes)


def test_a_rate_is_that_of_the_rules_window_up_to_each_moment(store):
    rows = [
        counts(AT - 600 + 60 * minute, "orders", acknowledged=90, dead=10 * (minute == 5))
        for minute in range(10)
    ]
    write(store, [*rows, counts(AT - 300, "other", acknowledged=5)])

    found = alert_metric(store, firing(), of_topic("error_rate", above=0.05), AT)

    assert (found.threshold, found.above, found.metric) == (0.05, True, "error_rate")
    late, early = max(values(found)), min(at for at, value in values(found).items() if value is not None)
    assert values(found)[early] == 0.0
    at = next(at for at, value in sorted(values(found).items()) if value)
    assert at <= AT - 300 < at + 10 or at == AT - 300
    assert values(found)[late] == pytest.approx(10 / 460)


def test_a_moment_without_messages_in_the_window_has_no_value(store):
    write(store, [counts(AT - 60, "orders", acknowledged=1)])

    found = values(alert_metric(store, firing(), of_topic("error_rate", above=0.05), AT))

    assert found[min(found)] is None and found[max(found)] == 0.0


def test_a_percentile_is_merged_from_the_histograms_of_the_window(store):
    fast, slow = bucket_of(0.01), bucket_of(2.0)
    latencies = [
        LatencyRow(AT - 240, "c", "p", "orders", fast, 90),
        LatencyRow(AT - 60, "c", "p", "orders", slow, 10),
    ]
    write(store, [counts(AT - 60, "orders", acknowledged=100)], latencies)

    found = values(alert_metric(store, firing(), of_topic("latency_p99", above=1.0), AT))

    assert found[max(found)] == quantiles({fast: 90, slow: 10}, (0.99,))[0]
    before = max(at for at in found if at < AT - 70)
    assert found[before] == quantiles({fast: 90}, (0.99,))[0]
    assert found[min(found)] is None


def test_an_error_budget_has_a_line_for_each_window_of_the_pair_that_fired(store):
    write(store, [counts(AT - 120, "payments", acknowledged=80, dead=20)])
    item = replace(burning(AT - 120), threshold=6.0 * 0.001)

    found = alert_metric(store, item, RULES["error_budget_fast"], AT)

    assert set(found.lines) == {"6 h", "30 min"}
    assert found.threshold == pytest.approx(0.006)
    assert values(found, "30 min")[max(values(found, "30 min"))] == 0.2


def test_a_health_check_shows_the_producers_rate_with_the_threshold_of_the_alert(store):
    write(store, [counts(AT - 30, "orders", acknowledged=80, dead=20)])
    item = alert("high_latency", "p", AT - 60, value=2_000, threshold=1_000)

    found = alert_metric(store, item, RULES["high_latency"], AT)

    assert (found.metric, found.threshold, set(found.lines)) == ("latency_mean", 1.0, {"1 min"})


@pytest.mark.parametrize(
    "rule", ["memory_near_limit", "dead_letters_old", "producer_gone", "connection_lost"]
)
def test_a_metric_without_history_has_no_chart(store, rule):
    assert alert_metric(store, replace(lost(), rule=rule), RULES[rule], NOW) is None


def test_a_rule_that_the_rules_file_no_longer_has_has_no_chart(store):
    assert alert_metric(store, firing(), None, AT) is None


def test_the_chart_begins_before_the_alert_and_ends_after_it(store):
    item = firing(started_at=NOW - 7200, fired_at=NOW - 7100, resolved_at=NOW - 3600, state="resolved")

    found = alert_metric(store, item, of_topic("throughput", below=5.0), NOW)

    assert found.since <= NOW - 7200 - 900 and found.now == NOW - 3600 + 900
    assert (found.fired_at, found.ended_at, found.above) == (NOW - 7100, NOW - 3600, False)
