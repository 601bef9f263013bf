"""One circuit, of a topic or of the cluster: its status and what it has observed."""

from __future__ import annotations

from producer_core.delivery.flow_control.circuit_breaker import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    CircuitBreaker,
    CircuitStatus,
    Evidence,
    decide,
)
from producer_core.delivery.flow_control.outcome_window import OutcomeWindow
from producer_core.errors import CircuitOpen


class Circuit:
    """Holds the status of a circuit and its evidence. The owner's lock guards it. Times are monotonic seconds.

    `topic` is None for the circuit of the cluster.
    """

    def __init__(self, settings: CircuitBreaker, topic: str | None = None) -> None:
        self._settings = settings
        self.topic = topic
        self.status = CircuitStatus()
        self.window = OutcomeWindow(settings.sliding_window_size_s)
        self.in_flight = False
        self.opened_at = 0.0
        self.times_opened = 0
        self._succeeded = self._failed = 0  # since the state began
        self._permitted = 0
        self._failure = ""
        self._progressed = False  # the brokers responded since the last `observe`
        self._waiting_since = 0.0  # messages are in flight without a response since this observed time

    @property
    def name(self) -> str:
        return "the cluster" if self.topic is None else f"topic {self.topic}"

    @property
    def closed(self) -> bool:
        return self.status.state is CLOSED

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost without this object."""
        return self.closed and not (self.in_flight or self.window.succeeded or self.window.failed)

    # events

    def succeeded(self, count: int, now: float) -> None:
        self.window.add(now, succeeded=count)
        self._succeeded += count
        self._progressed = True

    def failed(self, text: str, now: float, *, responded: bool) -> None:
        """Count a failure. `responded`: a broker returned it, so that messages are not stalled."""
        self.window.add(now, failed=1)
        self._failed += 1
        self._failure = text
        self._progressed |= responded

    def rejected(self) -> None:
        """Count a response of a broker that refused a message for a reason of its own: the probe succeeded."""
        self._succeeded += 1
        self._progressed = True

    def observe(self, observed: float, *, in_flight: bool) -> None:
        """Note whether messages are in flight. `observed` is the time for which the poll thread has run."""
        self.in_flight = in_flight
        if self._progressed or not in_flight:
            self._waiting_since = observed
        self._progressed = False

    # decisions

    def works(self) -> bool:
        """Return whether messages were acknowledged and few failed."""
        calls = self.window.succeeded + self.window.failed
        return (
            self.window.succeeded > 0 and self.window.failed < self._settings.failure_rate_threshold * calls
        )

    def stalled_for(self, observed: float) -> float:
        waiting = self.in_flight and not self._progressed
        return observed - self._waiting_since if waiting else 0.0

    def restart(self, observed: float) -> None:
        """Forget failures and waits: they belong to an outage of the cluster that has ended."""
        self.window.clear()
        self._waiting_since = observed

    def evidence(
        self,
        now: float,
        *,
        stalled_for: float,
        connected: bool,
        disconnected_for: float = 0.0,
        disconnect_reason: str = "",
    ) -> Evidence:
        self.window.expire(now)
        counts = (
            (self.window.succeeded, self.window.failed) if self.closed else (self._succeeded, self._failed)
        )
        return Evidence(
            *counts,
            self._permitted,
            stalled_for,
            disconnected_for,
            connected,
            self._failure,
            disconnect_reason,
        )

    def decide(self, evidence: Evidence, now: float, observed: float) -> bool:
        """Move to the status that follows from the evidence; return whether the state changed."""
        before, self.status = self.status, decide(self.status, evidence, self._settings, now)
        if self.status is before:
            return False
        self._succeeded = self._failed = self._permitted = 0
        self._waiting_since = observed
        if before.state is CLOSED:
            self.opened_at = now
        if self.status.state is OPEN:
            self.times_opened += 1
        elif self.closed:
            self.window.clear()
        return True

    # probes

    def refusal(self, now: float, tick: float) -> CircuitOpen | None:
        """Return the error for a message that the circuit does not let through.

        `tick` is the time in seconds until the next observation: the wait when no other time is known, because the circuit
        waits for a connection or for the outcomes of its probes.
        """
        settings, state = self._settings, self.status.state
        permits = settings.permitted_number_of_calls_in_half_open_state
        if state is CLOSED or (state is HALF_OPEN and self._permitted < permits):
            return None
        waits = settings.wait_duration_in_open_state_s if state is OPEN else settings.max_in_flight_age_s
        left = self.status.since + waits - now
        return CircuitOpen(
            topic=self.topic, reason=self.status.reason, retry_after_s=left if left > 0 else tick
        )

    def take_permit(self) -> bool:
        """Count a probe; return whether the circuit is half-open."""
        half_open = self.status.state is HALF_OPEN
        self._permitted += half_open
        return half_open

    def return_permit(self) -> None:
        """Note that a probe has no outcome, because its message never left the client."""
        if self.status.state is HALF_OPEN and self._permitted > 0:
            self._permitted -= 1
