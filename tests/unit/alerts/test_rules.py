"""The built-in rules."""

from __future__ import annotations

import string

import pytest

from producer_core.alerts import RULES, alert


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_text_and_advice(rule):
    names = {name for _, name, _, _ in string.Formatter().parse(RULES[rule].text) if name}
    details = dict.fromkeys(names - {"value", "threshold"}, "x")

    item = alert(rule, "s", 1.0, value=0.5, threshold=0.1, **details)

    assert "{" not in item.text
    assert item.advice.endswith(".")
