"""The rule set: overrides of reported alerts, and mistakes with their location."""

from __future__ import annotations

import dataclasses

import pytest

from producer_core.alerts import RULES, RuleSet, alert
from producer_core.alerts.rule_set import RuleProblem


def test_a_reported_alert_gets_the_severity_and_the_advice_of_its_rule():
    changed = dataclasses.replace(RULES["high_latency"], severity="critical", advice="Call Ann.")
    found = RuleSet(rules={"high_latency": changed}).with_overrides(
        alert("high_latency", "p-1", 1.0, value=1.0, threshold=1.0)
    )

    assert (found.severity, found.advice) == ("critical", "Call Ann.")


def test_an_alert_without_a_rule_is_unchanged():
    item = alert("high_latency", "p-1", 1.0, value=1.0, threshold=1.0)

    assert RuleSet(rules={}).with_overrides(item) is item


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (RuleProblem("rule.a", "windw", 3, "Unknown key.", "Did you mean 'window'?"), "line 3, rule.a, 'windw': Unknown key. Did you mean 'window'?"),
        (RuleProblem("rule.a", "", None, "It has no condition.", ""), "rule.a: It has no condition."),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_with_its_location(problem, text):
    assert str(problem) == text
