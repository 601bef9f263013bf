"""Every rule that producers report has a condition with its threshold."""

from __future__ import annotations

import re

import pytest

from producer_core.alerts import RULES, ReportedByProducer
from producer_core.alerts.health import DEFAULT_THRESHOLDS
from producer_core.alerts.reported_conditions import REPORTED_CONDITIONS
from producer_core.alerts.watcher import STORE_UNAVAILABLE_AFTER
from producer_core.delivery.exactly_once.read_back import _NOTICE_DELAY_S
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker
from producer_core.dlq.limits import DeadLetterLimits
from producer_core.metrics.telemetry.recent_windows import _MIN_WINDOWS


def test_every_reported_rule_has_a_condition():
    reported = {name for name, rule in RULES.items() if isinstance(rule.condition, ReportedByProducer)}
    assert REPORTED_CONDITIONS.keys() == reported


@pytest.mark.parametrize("name", REPORTED_CONDITIONS)
def test_a_condition_is_a_clause_without_a_full_stop(name):
    assert not re.search(r"[.{}]$", REPORTED_CONDITIONS[name])


def default(rule, setting):
    """Return the number that the condition of a rule gives as the default of a setting."""
    (text,) = re.findall(rf"{setting} \(default ([\d,.]+)", REPORTED_CONDITIONS[rule])
    return float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("rule", "setting", "scale"),
    [("high_error_rate", "error_rate_threshold", 100), ("high_latency", "latency_threshold_ms", 1),
     ("high_dlq_size", "dlq_size_threshold", 1), ("high_memory_usage", "memory_usage_threshold", 100)],
)  # fmt: skip
def test_the_thresholds_of_health_checks_are_the_defaults(rule, setting, scale):
    assert default(rule, setting) == scale * DEFAULT_THRESHOLDS[setting]


def test_the_thresholds_of_the_circuit_breaker_are_the_defaults():
    breaker = CircuitBreaker()
    assert default("circuit_opened", "failure_rate_threshold") == 100 * breaker.failure_rate_threshold
    for setting in ("minimum_number_of_calls", "sliding_window_size_s", "max_in_flight_age_s"):
        assert default("circuit_opened", setting) == getattr(breaker, setting)


def test_the_limits_of_dead_letters_are_the_defaults():
    limits = DeadLetterLimits()
    assert default("dlq_over_bound", "dlq_max_size") == limits.dead_letters
    assert default("dlq_over_bound", "dlq_max_bytes") * 2**20 == limits.bytes
    assert default("dlq_over_bound", "dlq_max_age") * 86_400 == limits.age


def test_the_fixed_thresholds_are_those_of_the_code():
    assert f"for {STORE_UNAVAILABLE_AFTER:.0f} s" in REPORTED_CONDITIONS["store_unavailable"]
    assert f"at least {_MIN_WINDOWS} windows" in REPORTED_CONDITIONS["telemetry_failing"]
    assert f"longer than {_NOTICE_DELAY_S:.0f} s" in REPORTED_CONDITIONS["read_back_waits"]
