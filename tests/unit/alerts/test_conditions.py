"""The description of each condition, and the text of each metric."""

from __future__ import annotations

from producer_core.alerts import RULES
from producer_core.alerts.conditions import METRICS, describe


def test_every_built_in_rule_has_a_description_and_every_metric_a_text():
    for rule in RULES.values():
        assert describe(rule.condition)
    for metric in METRICS.values():
        assert "{" not in metric.text.format(value=1.0, span="1 h")


def test_the_text_of_a_metric_agrees_with_a_value_of_1():
    assert METRICS["dlq_size"].says(1.0) == "1 dead letter is pending"
    assert METRICS["dlq_size"].says(2.0) == "2 dead letters are pending"
    assert METRICS["memory"].says(1.0) == "the process uses 100% of its memory limit"
    for metric in METRICS.values():
        assert not metric.says(1.0).startswith(("1 messages", "1 dead letters", "1 duplicates"))
