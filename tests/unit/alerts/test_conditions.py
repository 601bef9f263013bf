"""The description of each condition, and the text of each metric."""

from __future__ import annotations

from producer_core.alerts import RULES
from producer_core.alerts.conditions import METRICS, describe


def test_every_built_in_rule_has_a_description_and_every_metric_a_text():
    for rule in RULES.values():
        assert describe(rule.condition)
    for metric in METRICS.values():
        assert "{" not in metric.text.format(value=1.0, span="1 h")
