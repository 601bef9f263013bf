"""Decide when a circuit opens, lets probes through, and closes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from numbers import Integral, Real
from typing import Any

from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CircuitBreaker:
    """When a producer stops accepting messages, and when it accepts them again. Names follow resilience4j.

    A call is an attempt with a definite outcome: an acknowledgement, or a delivery report with an error. The circuit opens
    when `failure_rate_threshold` (a share above 0, at most 1) of the calls within `sliding_window_size_s` failed, and there were
    at least `minimum_number_of_calls`. It also opens when no broker was connected for `max_in_flight_age_s`, or when
    messages were in flight for as long and none was acknowledged.

    It stays open for `wait_duration_in_open_state_s`, and for as long as no broker is connected. Then it is half-open and
    accepts up to `permitted_number_of_calls_in_half_open_state` messages as probes. As many outcomes, also those of
    messages accepted earlier, close it or open it again. A probe without an outcome within `max_in_flight_age_s` counts
    as failed. With fewer probes it closes after `max_in_flight_age_s` if all of them, or none, were acknowledged, nothing
    else failed, and a broker is connected: a producer without messages recovers as well. Durations are seconds. Raise
    ConfigError for a value out of range.
    """

    failure_rate_threshold: float = 0.5
    minimum_number_of_calls: int = 20
    sliding_window_size_s: float = 10.0
    wait_duration_in_open_state_s: float = 5.0
    permitted_number_of_calls_in_half_open_state: int = 5
    max_in_flight_age_s: float = 5.0

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name))


def _check(name: str, value: Any) -> None:
    counted = name in ("minimum_number_of_calls", "permitted_number_of_calls_in_half_open_state")
    is_number = isinstance(value, Integral if counted else Real) and not isinstance(value, bool)
    if not is_number or not _is_positive(value):
        what = "a whole number above 0" if counted else "a number above 0"
        raise ConfigError(
            f"{name} must be {what}, not {short_repr(value)}.", fix="Leave it out for the default."
        )
    if name == "failure_rate_threshold" and value > 1:
        raise ConfigError(
            f"{name} is a share above 0 and at most 1, not {short_repr(value)}.", fix="For 50 %, write 0.5."
        )


def _is_positive(value: Any) -> bool:
    """Whether a number is above 0 and fits a float."""
    try:
        return 0 < float(value) < math.inf
    except OverflowError:
        return False


class CircuitState(StrEnum):
    """Closed: messages are accepted. Open: they are refused. Half-open: a few are accepted as probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@dataclass(frozen=True, slots=True)
class CircuitStatus:
    """The state of a circuit, the monotonic time at which it began, and why the circuit last opened."""

    state: CircuitState = CLOSED
    since: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a decision is based on.

    `succeeded` and `failed` count the outcomes within the sliding window; while the circuit is not closed, those since
    its state began. `permitted` counts the probes let through. `stalled_for` is the time for which messages were in
    flight without an acknowledgement, `disconnected_for` the time without a connection, both in seconds. `connected` is
    whether a broker is connected and, for a topic, the circuit of the cluster is closed.
    `failure` is the text of the latest failure, `disconnect_reason` says why no broker is connected.
    """

    succeeded: int = 0
    failed: int = 0
    permitted: int = 0
    stalled_for: float = 0.0
    disconnected_for: float = 0.0
    connected: bool = True
    failure: str = ""
    disconnect_reason: str = ""


def decide(status: CircuitStatus, evidence: Evidence, settings: CircuitBreaker, now: float) -> CircuitStatus:
    """Return the status that follows from the evidence at a monotonic time."""
    match status.state:
        case CircuitState.CLOSED:
            reason = _outage(evidence, settings) or _failure_rate(
                evidence, settings, settings.minimum_number_of_calls
            )
            return CircuitStatus(OPEN, now, reason) if reason else status
        case CircuitState.OPEN:
            waited = now - status.since >= settings.wait_duration_in_open_state_s
            if not waited or evidence.disconnected_for:
                return status
            return CircuitStatus(HALF_OPEN, now, status.reason)
        case CircuitState.HALF_OPEN:
            return _judge_probes(status, evidence, settings, now)


def _judge_probes(
    status: CircuitStatus, evidence: Evidence, settings: CircuitBreaker, now: float
) -> CircuitStatus:
    needed = settings.permitted_number_of_calls_in_half_open_state
    outcomes = evidence.succeeded + evidence.failed
    if outcomes >= needed:
        reason = _failure_rate(evidence, settings, needed)
        return CircuitStatus(OPEN, now, reason) if reason else CircuitStatus(CLOSED, now)
    if reason := _outage(evidence, settings):
        return CircuitStatus(OPEN, now, reason)
    if now - status.since < settings.max_in_flight_age_s:
        return status
    if evidence.permitted < needed:
        return CircuitStatus(CLOSED, now) if _works(evidence) else status
    failed = needed - evidence.succeeded  # a probe without an outcome counts as failed
    if failed < settings.failure_rate_threshold * needed:
        return CircuitStatus(CLOSED, now)
    return CircuitStatus(
        OPEN,
        now,
        f"{failed} of {needed} probes were not acknowledged within {settings.max_in_flight_age_s:g} s",
    )


def _works(evidence: Evidence) -> bool:
    """Return whether a broker is connected, nothing failed or waits, and each probe that was sent was acknowledged."""
    troubled = evidence.failed or evidence.stalled_for or not evidence.connected
    return not troubled and evidence.succeeded >= evidence.permitted


def _outage(evidence: Evidence, settings: CircuitBreaker) -> str:
    """Return the reason if the brokers do not respond, else an empty text."""
    limit = settings.max_in_flight_age_s
    if evidence.disconnected_for >= limit:
        return f"no broker has been connected for {limit:g} s: {evidence.disconnect_reason}"
    if evidence.stalled_for >= limit:
        return f"messages have been in flight for {limit:g} s without an acknowledgement"
    return ""


def _failure_rate(evidence: Evidence, settings: CircuitBreaker, least: int) -> str:
    """Return the reason if too many calls failed, else an empty text."""
    calls = evidence.succeeded + evidence.failed
    if calls < least or evidence.failed < settings.failure_rate_threshold * calls or not evidence.failed:
        return ""
    return f"{evidence.failed} of {calls} deliveries failed, most recently: {evidence.failure}"
