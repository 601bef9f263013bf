"""The Prometheus rules: each built-in alert is one of them, and each metric that they name exists."""

from __future__ import annotations

import re

import pytest
import yaml

from producer_core.alerts.conditions import ReportedByProducer
from producer_core.alerts.rules import RULES
from producer_core.producer.prometheus.definitions import METRICS
from scripts import prometheus_rules

TEXT = prometheus_rules.FILE.read_text()
GROUPS = {group["name"]: group["rules"] for group in yaml.safe_load(TEXT)["groups"]}
ALERTS = {rule["alert"]: rule for rule in GROUPS["producer_core_alerts"]}


def test_the_committed_file_is_what_the_script_writes():
    assert prometheus_rules.rules() == TEXT


@pytest.mark.parametrize("name", RULES)
def test_every_built_in_alert_is_a_prometheus_rule_with_its_severity_and_advice(name):
    assert ALERTS[name]["labels"]["severity"] == RULES[name].severity
    assert ALERTS[name]["annotations"]["description"] == RULES[name].advice


def test_only_one_rule_has_no_built_in_alert():
    assert ALERTS.keys() - RULES.keys() == {"alert_evaluation_stopped"}


def test_a_rule_that_evaluates_metrics_waits_as_long_as_the_built_in_one():
    assert (ALERTS["slow_delivery"]["for"], ALERTS["slow_delivery"]["keep_firing_for"]) == ("5m", "10m")
    assert ALERTS["error_budget_slow"]["keep_firing_for"] == "1h"
    native = {name for name, rule in RULES.items() if not isinstance(rule.condition, ReportedByProducer)}
    reported = {name for name in native if "producer_core_firing_alerts" in ALERTS[name]["expr"]}
    assert reported == {
        "producer_gone",
        "memory_near_limit",
        "rules_file_refused",
        "notifications_failing",
        "decision_objective_missed",
        "decision_objective_burn",
        "cause_returned",
        "approval_requested",
    }


def test_every_metric_of_a_rule_exists_on_the_endpoint_of_a_store():
    named = set(re.findall(r"(?<![\w:])((?:messaging_client|producer_core)_\w+)", " ".join(expressions())))

    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert len(base) >= 9
    of_a_process = {name for name in base if "store" not in METRICS[name].sources}
    # the rules read the store's alerts too
    assert of_a_process == {"producer_core_circuits", "producer_core_deduplication_degraded"}


def test_every_recorded_series_of_an_alert_is_recorded():
    named = set(re.findall(r"job_topic:[\w:]+", " ".join(rule["expr"] for rule in ALERTS.values())))

    assert named == {rule["record"] for rule in GROUPS["producer_core_recording"]}


def expressions():
    return [rule["expr"] for rules in GROUPS.values() for rule in rules]
