"""Settings that are arguments of the producer's constructor."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from producer_core import ConfigError, ReliableKafkaProducer
from producer_core._internal.argument_settings import (
    ARGUMENTS,
    FIELDS,
    is_argument_setting,
    pop_argument_settings,
    without_arguments,
)
from producer_core.alerts.health import DEFAULT_THRESHOLDS
from producer_core.config import RetryConfig, is_setting
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker

OBJECTS = {"redis_client", "hooks", "journal", "alert_routes", "transport", "clock"}
"""Arguments that only Python can write."""


def test_every_argument_that_a_text_can_give_has_a_setting():
    parameters = set(inspect.signature(ReliableKafkaProducer.__init__).parameters)
    own = parameters - {"self", "bootstrap_servers", "config", "unknown"} - OBJECTS
    assert own == set(ARGUMENTS) | set(FIELDS)


def test_every_part_of_an_argument_has_a_setting():
    assert set(FIELDS["circuit_breaker"]) == {one.name for one in fields(CircuitBreaker)}
    assert set(FIELDS["retry_config"]) == {one.name for one in fields(RetryConfig)}
    assert set(FIELDS["thresholds"]) == set(DEFAULT_THRESHOLDS)


def test_no_setting_of_the_client_is_taken_for_an_argument():
    parts = {f"{group}_{part}" for group, known in FIELDS.items() for part in known}
    shared = {name for name in {*ARGUMENTS, *parts} if is_setting(name)}
    assert shared == {"transactional_id"}, "librdkafka's transactional.id is the producer's argument"


def test_parts_are_grouped_under_their_argument():
    given = {
        "circuit.breaker.max.in.flight.age.s": "2.5",
        "thresholds_latency_threshold_ms": 500,
        "acks": "all",
    }
    assert pop_argument_settings(given) == {
        "circuit_breaker": {"max_in_flight_age_s": 2.5},
        "thresholds": {"latency_threshold_ms": 500},
    }
    assert given == {"acks": "all"}


def test_a_breaker_that_is_off_stays_off_whatever_its_parts_are():
    given = {"circuit_breaker": "false", "circuit_breaker_max_in_flight_age_s": "2"}
    assert pop_argument_settings(given) == {"circuit_breaker": False}


def test_the_store_can_be_switched_off_and_null_means_the_default():
    assert pop_argument_settings({"store": "none"}) == {"store": None}
    assert pop_argument_settings({"store": None, "ledger": None}) == {"store": None}


def test_two_spellings_with_different_values_are_refused():
    with pytest.raises(ConfigError, match="given twice"):
        pop_argument_settings({"dedup_ttl": "5", "dedup.ttl": "6"})


def test_a_command_that_shares_the_file_sees_the_client_settings_only():
    assert without_arguments({"ordering": "strict", "retry.config.jitter": "false", "linger.ms": 5}) == {
        "linger.ms": 5
    }
    assert not is_argument_setting("delivery.timeout.ms") and not is_argument_setting("retry.backoff.ms")
