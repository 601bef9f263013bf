"""The values of the keys of a rules file: their conversion, and the message for an invalid one."""

from __future__ import annotations

import math

import pytest

from producer_core.alerts import rule_fields
from producer_core.alerts.conditions import WindowPair
from producer_core.alerts.rule_fields import InvalidValue


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("5min", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("1w 2d", 777600.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert rule_fields.duration(text) == seconds
    assert rule_fields.number(text) == seconds


@pytest.mark.parametrize("value", ["", "5", "5 years", "m5", 5, None])
def test_an_invalid_duration_is_refused_with_an_example(value):
    with pytest.raises(InvalidValue, match="is not a duration") as caught:
        rule_fields.duration(value)
    assert '"30s"' in caught.value.fix


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        (rule_fields.text, 5),
        (rule_fields.flag, "true"),
        (rule_fields.flag, 1),
        (rule_fields.count, -1),
        (rule_fields.count, True),
        (rule_fields.count, 1.5),
        (rule_fields.positive_duration, "0s"),
        (rule_fields.number, True),
        (rule_fields.number, math.nan),
        (rule_fields.share, 0),
        (rule_fields.share, 1),
        (rule_fields.names, "payments"),
        (rule_fields.names, ["payments", 5]),
        (rule_fields.labels, {"env": 5}),
        (rule_fields.labels, {"1env": "prod"}),
        (rule_fields.labels, {"severity": "high"}),
        (rule_fields.pairs, []),
        (rule_fields.pairs, [["1h", "5m"]]),
        (rule_fields.variable, "PAGER-URL"),
        (rule_fields.file, "https://pager"),
        (rule_fields.file, ""),
    ],
)
def test_an_invalid_value_is_refused_with_a_fix(convert, value):
    with pytest.raises(InvalidValue) as caught:
        convert(value)
    assert caught.value.text and caught.value.fix


def test_valid_values_are_returned():
    assert rule_fields.text("Investigate.") == "Investigate."
    assert rule_fields.flag(False) is False
    assert rule_fields.count(0) == 0
    assert rule_fields.number(3) == 3.0
    assert rule_fields.share(0.999) == 0.999
    assert rule_fields.names([]) == ()
    assert rule_fields.names(["payments", "orders.*"]) == ("payments", "orders.*")
    assert rule_fields.labels({"env": "prod"}) == {"env": "prod"}
    assert rule_fields.pairs([["1h", "5m", 14.4]]) == (WindowPair(3600.0, 300.0, 14.4),)
    assert rule_fields.variable("PAGER_URL") == "PAGER_URL"
    assert rule_fields.file("pager.url") == "pager.url"


def test_an_invalid_choice_suggests_the_nearest_valid_one():
    severity = rule_fields.one_of("critical", "warning", "info")

    assert severity("info") == "info"
    with pytest.raises(InvalidValue) as caught:
        severity("warnig")
    assert caught.value.fix == "Choose from critical, warning, info. Did you mean 'warning'?"
    with pytest.raises(InvalidValue):
        severity(["info"])


def test_an_empty_list_of_choices_is_refused():
    severities = rule_fields.some_of("critical", "warning")

    assert severities(["warning", "critical"]) == ("warning", "critical")
    for value in ([], "warning", ["fatal"]):
        with pytest.raises(InvalidValue):
            severities(value)


def test_an_unknown_key_names_the_nearest_one_or_all():
    assert rule_fields.unknown("windw", ["window", "above"]).fix == "Did you mean 'window'?"
    assert rule_fields.unknown("zzz", ["window", "above"]).fix == "Valid: above, window."


def test_a_secret_is_refused_without_repeating_it():
    with pytest.raises(InvalidValue) as caught:
        rule_fields.secret("https://hooks.example/T0KEN")
    assert "T0KEN" not in caught.value.text + caught.value.fix
