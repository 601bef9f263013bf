"""The decision of a circuit, as a pure function of its status and the evidence."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.delivery.flow_control.circuit_breaker import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    CircuitBreaker,
    CircuitStatus,
    Evidence,
    decide,
)
from producer_core.errors import ConfigError

DEFAULTS = CircuitBreaker()
CLOSED_CIRCUIT = CircuitStatus(since=0.0)
OPEN_CIRCUIT = CircuitStatus(OPEN, 100.0, "20 of 20 deliveries failed")
HALF_OPEN_CIRCUIT = CircuitStatus(HALF_OPEN, 100.0, "20 of 20 deliveries failed")


def after(status, now=100.0, **evidence):
    return decide(status, Evidence(**evidence), DEFAULTS, now)


# closed


def test_half_of_twenty_deliveries_failing_opens_the_circuit():
    found = after(CLOSED_CIRCUIT, succeeded=10, failed=10, failure="_TRANSPORT: broken pipe")

    assert found == CircuitStatus(
        OPEN, 100.0, "10 of 20 deliveries failed, most recently: _TRANSPORT: broken pipe"
    )


@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"failed": 19},
        {"succeeded": 11, "failed": 10},
        {"stalled_for": 4.9},
        {"disconnected_for": 4.9},
    ],
    ids=["nothing", "too few calls", "below the rate", "a short stall", "a short disconnect"],
)
def test_the_circuit_stays_closed(evidence):
    assert after(CLOSED_CIRCUIT, **evidence) is CLOSED_CIRCUIT


def test_messages_in_flight_without_an_acknowledgement_open_the_circuit():
    found = after(CLOSED_CIRCUIT, stalled_for=5.0)

    assert found.state is OPEN
    assert found.reason == "messages have been in flight for 5 s without an acknowledgement"


def test_a_lost_connection_opens_the_circuit_and_names_its_reason():
    found = after(CLOSED_CIRCUIT, disconnected_for=5.0, disconnect_reason="Connection refused")

    assert found.reason == "no broker has been connected for 5 s: Connection refused"


# open


def test_an_open_circuit_becomes_half_open_after_its_wait():
    assert after(OPEN_CIRCUIT, 104.9) is OPEN_CIRCUIT
    assert after(OPEN_CIRCUIT, 105.0) == CircuitStatus(HALF_OPEN, 105.0, OPEN_CIRCUIT.reason)


def test_an_open_circuit_stays_open_while_no_broker_is_connected():
    assert after(OPEN_CIRCUIT, 1_000.0, disconnected_for=900.0) is OPEN_CIRCUIT


# half-open


def test_acknowledged_probes_close_the_circuit():
    assert after(HALF_OPEN_CIRCUIT, succeeded=4, failed=0) is HALF_OPEN_CIRCUIT
    assert after(HALF_OPEN_CIRCUIT, succeeded=5) == CircuitStatus(CLOSED, 100.0)


def test_failed_probes_open_the_circuit_again():
    found = after(HALF_OPEN_CIRCUIT, succeeded=2, failed=3, failure="_MSG_TIMED_OUT")

    assert (found.state, found.reason) == (
        OPEN,
        "3 of 5 deliveries failed, most recently: _MSG_TIMED_OUT",
    )


@pytest.mark.parametrize(("succeeded", "state"), [(3, CLOSED), (2, OPEN), (0, OPEN)])
def test_probes_without_an_outcome_count_as_failed_in_the_end(succeeded, state):
    evidence = {"succeeded": succeeded, "permitted": 5}

    assert after(HALF_OPEN_CIRCUIT, 104.9, **evidence) is HALF_OPEN_CIRCUIT
    assert after(HALF_OPEN_CIRCUIT, 105.0, **evidence).state is state


@pytest.mark.parametrize("probes", [0, 2])
def test_a_producer_with_few_messages_closes_its_circuit_without_further_probes(probes):
    evidence = {"succeeded": probes, "permitted": probes}

    assert after(HALF_OPEN_CIRCUIT, 104.9, **evidence) is HALF_OPEN_CIRCUIT
    assert after(HALF_OPEN_CIRCUIT, 105.0, **evidence) == CircuitStatus(CLOSED, 105.0)


@pytest.mark.parametrize(
    "evidence",
    [
        {"succeeded": 1, "permitted": 2},
        {"succeeded": 2, "permitted": 2, "failed": 1},
        {"connected": False},
        {"stalled_for": 0.1},
    ],
)
def test_a_half_open_circuit_waits_for_the_probes_that_were_not_sent_unless_all_is_well(evidence):
    assert after(HALF_OPEN_CIRCUIT, 10_000.0, **evidence) is HALF_OPEN_CIRCUIT


@pytest.mark.parametrize("evidence", [{"stalled_for": 5.0}, {"disconnected_for": 5.0}])
def test_an_outage_opens_a_half_open_circuit_again(evidence):
    assert after(HALF_OPEN_CIRCUIT, **evidence).state is OPEN


# properties

COUNTS = st.integers(0, 1_000)
SECONDS = st.floats(0, 1_000)
SETTINGS = st.builds(
    CircuitBreaker,
    failure_rate_threshold=st.floats(0.01, 1),
    minimum_number_of_calls=st.integers(1, 100),
    wait_duration_in_open_state_s=st.floats(0.1, 60),
    permitted_number_of_calls_in_half_open_state=st.integers(1, 50),
    max_in_flight_age_s=st.floats(0.1, 60),
)
EVIDENCE = st.builds(Evidence, COUNTS, COUNTS, COUNTS, SECONDS, SECONDS, st.just("error"), st.just("down"))
STATUSES = st.builds(CircuitStatus, st.sampled_from([CLOSED, OPEN, HALF_OPEN]), SECONDS, st.just("why"))
ALLOWED = {CLOSED: {OPEN}, OPEN: {HALF_OPEN}, HALF_OPEN: {OPEN, CLOSED}}


@given(STATUSES, EVIDENCE, SETTINGS, SECONDS)
def test_a_circuit_never_closes_without_passing_through_half_open(status, evidence, settings, later):
    found = decide(status, evidence, settings, status.since + later)

    assert found is status or found.state in ALLOWED[status.state]
    assert found is status or found.since == status.since + later
    assert bool(found.reason) is (found.state is not CLOSED) or found is status


@given(STATUSES, EVIDENCE, SETTINGS, SECONDS)
def test_a_circuit_opens_only_with_a_failure_or_an_outage(status, evidence, settings, later):
    harmless = dataclasses.replace(evidence, failed=0, stalled_for=0.0, disconnected_for=0.0, permitted=0)
    found = decide(status, harmless, settings, status.since + later)

    assert found is status or found.state is not OPEN


@given(EVIDENCE, SETTINGS, SECONDS)
def test_a_circuit_closes_only_by_acknowledgements(evidence, settings, later):
    unproved = dataclasses.replace(evidence, succeeded=0)

    assert decide(HALF_OPEN_CIRCUIT, unproved, settings, 100.0 + later).state is not CLOSED


@given(COUNTS, COUNTS, SETTINGS)
def test_more_failures_never_keep_a_circuit_closed(succeeded, failed, settings):
    opened = decide(CLOSED_CIRCUIT, Evidence(succeeded, failed), settings, 1.0).state is OPEN
    worse = decide(CLOSED_CIRCUIT, Evidence(succeeded, failed + 1), settings, 1.0).state is OPEN

    assert worse or not opened


# settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failure_rate_threshold", 0),
        ("failure_rate_threshold", 50),
        ("minimum_number_of_calls", 1.5),
        ("minimum_number_of_calls", True),
        ("permitted_number_of_calls_in_half_open_state", 0),
        ("sliding_window_size_s", -1),
        ("wait_duration_in_open_state_s", float("inf")),
        ("max_in_flight_age_s", float("nan")),
        ("max_in_flight_age_s", "5"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_its_name(name, value):
    with pytest.raises(ConfigError, match=name):
        CircuitBreaker(**{name: value})


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(CircuitBreaker)])
@pytest.mark.parametrize("value", [10**400, 10**5000], ids=["400 digits", "5,000 digits"])
def test_a_huge_number_is_refused_like_any_other_wrong_value(name, value):
    """Regression: a bare OverflowError."""
    with pytest.raises(ConfigError, match=name):
        CircuitBreaker(**{name: value})
