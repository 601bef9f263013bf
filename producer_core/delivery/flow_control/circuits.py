"""Observe deliveries, and keep one circuit for the cluster and one for each topic."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from producer_core.delivery.flow_control.circuit import Circuit
from producer_core.delivery.flow_control.circuit_breaker import (
    CLOSED,
    OPEN,
    CircuitBreaker,
    CircuitStatus,
    Evidence,
)
from producer_core.delivery.flow_control.failure_scope import scope_of
from producer_core.events import Acknowledged, AttemptFailed, Hook, Notice
from producer_core.metrics.ack_batch import Acknowledgements

_PROGRESS_SHARE = 0.5
"""The share of `max_in_flight_age_s` within which another topic must have been acknowledged, so that a topic without
acknowledgements counts as the cause and not the cluster."""


@dataclass(frozen=True)
class CircuitReport:
    """The circuits at one moment. `topics` has those that are not closed, `refused` counts refused messages by topic.

    `times_opened` counts over all circuits, also when probes failed.
    """

    cluster: CircuitStatus
    topics: Mapping[str, CircuitStatus] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    times_opened: int = 0

    def issues(self) -> list[str]:
        """Return a text for each circuit that is not closed, that of the cluster first."""
        named = {"the cluster": self.cluster, **{f"topic {name}": one for name, one in self.topics.items()}}
        return [
            f"Circuit open for {name}: {status.reason}"
            if status.state is OPEN
            else f"Circuit half-open for {name}, which accepts probes. It opened because {status.reason}"
            for name, status in named.items()
            if status.state is not CLOSED
        ]


class Circuits(Hook):
    """Decides from hook events whether messages are accepted. Safe in threads.

    `unreachable` returns why no broker is connected, or None. `in_flight` returns the topics of the messages that a client
    has. `notify` receives the notices. Connection and messages in flight are observed with librdkafka's statistics, so only
    while the poll thread runs: a callback that blocks it does not open a circuit. `tick` is their interval in seconds.
    """

    def __init__(
        self,
        settings: CircuitBreaker,
        *,
        unreachable: Callable[[], str | None],
        in_flight: Callable[[], Collection[str]],
        notify: Callable[[Notice], None],
        journaled: bool = False,
        tick: float = 1.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._unreachable = unreachable
        self._in_flight = in_flight
        self._notify = notify
        self._journaled = journaled
        self._tick = tick
        self._longest_tick = 2 * tick
        self._clock = clock
        self._now = monotonic
        self.guarded = False
        """Whether any circuit is not closed. Read without the lock for each message."""
        self._lock = threading.RLock()  # guards the fields below; a signal handler may send too
        self._cluster = Circuit(settings)
        self._topics: dict[str, Circuit] = {}
        self._refused: Counter[str] = Counter()
        self._times_opened = 0
        self._last_tick = monotonic()
        self._observed = 0.0  # seconds for which the poll thread has run
        self._disconnected_since: float | None = None  # an observed time
        self._disconnect_reason = ""

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        counts, now = Counter(Acknowledgements.of(batch).topics), self._now()
        with self._lock:
            for topic, count in counts.items():
                self._circuit_of(topic).succeeded(count, now)
            self._cluster.succeeded(len(batch), now)
            notices = self._evaluate(now, counts) if self.guarded else ()
        self._emit(notices)

    def attempt_failed(self, event: AttemptFailed) -> None:
        now, scope = self._now(), scope_of(event.code, event.kind)
        responded = event.kind in ("permanent", "temporary")
        with self._lock:
            topic = self._circuit_of(event.topic)
            for circuit, at_fault in ((topic, scope != "message"), (self._cluster, scope == "cluster")):
                if at_fault:
                    circuit.failed(f"{event.code}: {event.text}", now, responded=responded)
                elif responded:
                    circuit.rejected()
                elif event.kind == "local":
                    circuit.return_permit()
            notices = self._evaluate(now, (event.topic,))
        self._emit(notices)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        """Observe the connection and the messages in flight."""
        now, reason, in_flight = self._now(), self._unreachable(), self._in_flight()
        with self._lock:
            # A blocked poll thread receives several statistics at once, before the reports that it missed.
            self._observed += min(now - self._last_tick, self._longest_tick)
            self._last_tick = now
            self._observe_connection(reason)
            self._cluster.observe(self._observed, in_flight=bool(in_flight))
            for topic in {*self._topics, *in_flight}:
                self._circuit_of(topic).observe(self._observed, in_flight=topic in in_flight)
            notices = self._evaluate(now, tuple(self._topics))
            for topic in [topic for topic, circuit in tuple(self._topics.items()) if circuit.idle]:
                self._topics.pop(topic, None)
        self._emit(notices)

    # messages

    def admit(self, topic: str) -> bool:
        """Let a message through; return whether it is a probe. Raise CircuitOpen if the circuit is open."""
        return self._ask(topic, take_permit=True)

    def check(self, topic: str, *, open_only: bool = False) -> None:
        """Raise CircuitOpen if `admit` would. No message passes, so this takes no permit of a half-open circuit.

        With `open_only`, a half-open circuit raises nothing: a message that was let through before waits on.
        """
        self._ask(topic, take_permit=False, open_only=open_only)

    def _ask(self, topic: str, *, take_permit: bool, open_only: bool = False) -> bool:
        now = self._now()
        with self._lock:
            notices = self._evaluate(now, (topic,))
            circuits = (self._cluster, self._circuit_of(topic))
            asked = [one for one in circuits if one.status.state is OPEN] if open_only else circuits
            refusals = (circuit.refusal(now, self._tick) for circuit in asked)
            refusal = next((one for one in refusals if one is not None), None)
            probes = [circuit.take_permit() for circuit in circuits] if take_permit and not refusal else []
            if refusal is not None:
                self._refused[topic] += 1
        self._emit(notices)
        if refusal is not None:
            raise refusal
        return any(probes)

    def return_permit(self, topic: str) -> None:
        """Take back a probe that was not accepted."""
        with self._lock:
            self._cluster.return_permit()
            self._circuit_of(topic).return_permit()

    # status

    def report(self) -> CircuitReport:
        with self._lock:
            opened = sorted(
                (one for one in tuple(self._topics.values()) if not one.closed), key=lambda one: one.opened_at
            )
            return CircuitReport(
                self._cluster.status,
                {str(one.topic): one.status for one in opened},
                dict(self._refused),
                self._times_opened,
            )

    def issues(self) -> list[str]:
        """Return a text for each circuit that is not closed."""
        return self.report().issues() if self.guarded else []

    # called with the lock

    def _circuit_of(self, topic: str) -> Circuit:
        return self._topics.get(topic) or self._topics.setdefault(topic, Circuit(self._settings, topic))

    def _observe_connection(self, reason: str | None) -> None:
        if reason is None:
            self._disconnected_since = None
        elif self._disconnected_since is None:
            self._disconnected_since = self._observed
        self._disconnect_reason = reason or self._disconnect_reason

    def _evaluate(self, now: float, topics: Collection[str]) -> tuple[Notice, ...]:
        """Decide about the cluster, then about these topics; return the notices of what changed."""
        before = self._cluster.status.state
        changed = list(self._evaluate_cluster(now))
        if before is not CLOSED and self._cluster.closed:
            for circuit in tuple(self._topics.values()):
                circuit.restart(self._observed)
        for topic in topics:
            changed += self._evaluate_topic(self._circuit_of(topic), now)
        self.guarded = not (self._cluster.closed and all(one.closed for one in tuple(self._topics.values())))
        return tuple(changed)

    def _evaluate_cluster(self, now: float) -> Iterator[Notice]:
        cluster, since = self._cluster, self._disconnected_since
        evidence = cluster.evidence(
            now,
            stalled_for=cluster.stalled_for(self._observed),
            connected=since is None,
            disconnected_for=0.0 if since is None else self._observed - since,
            disconnect_reason=self._disconnect_reason,
        )
        if cluster.closed and evidence.failed and self._another_topic_works(evidence):
            evidence = replace(evidence, failed=0)
        yield from self._decide(cluster, evidence, now)

    def _another_topic_works(self, evidence: Evidence) -> bool:
        """Return whether enough calls failed for the cluster, but those of a topic succeed: then others are at fault."""
        calls = evidence.succeeded + evidence.failed
        if evidence.failed < self._settings.failure_rate_threshold * calls:
            return False  # for speed: failures below the rate open nothing
        return any(circuit.works() for circuit in tuple(self._topics.values()))

    def _evaluate_topic(self, circuit: Circuit, now: float) -> Iterator[Notice]:
        if circuit.closed and not self._cluster.closed:
            return
        cluster_stalled = self._cluster.stalled_for(self._observed)
        only_this = cluster_stalled < _PROGRESS_SHARE * self._settings.max_in_flight_age_s
        stalled_for = circuit.stalled_for(self._observed) if only_this else 0.0
        connected = self._cluster.closed and self._disconnected_since is None
        evidence = circuit.evidence(now, stalled_for=stalled_for, connected=connected)
        yield from self._decide(circuit, evidence, now)

    def _decide(self, circuit: Circuit, evidence: Evidence, now: float) -> Iterator[Notice]:
        before = circuit.status.state
        if not circuit.decide(evidence, now, self._observed):
            return
        if circuit.status.state is OPEN:
            self._times_opened += 1
        if before is CLOSED:
            yield self._notice(circuit, "circuit_opened", now)
        elif circuit.closed:
            yield self._notice(circuit, "circuit_closed", now)

    def _notice(self, circuit: Circuit, kind: str, now: float) -> Notice:
        details: dict[str, Any] = (
            {} if circuit.topic is None else {"topic": circuit.topic, "subject": circuit.topic}
        )
        if kind == "circuit_closed":
            open_s = round(now - circuit.opened_at, 1)
            text = f"The circuit of {circuit.name} is closed. Messages are accepted again."
            return Notice(kind, "info", text, self._clock(), {**details, "open_s": open_s})
        then = "wait in the journal" if self._journaled else "are refused"
        text = f"The circuit of {circuit.name} is open: {circuit.status.reason}. New messages {then}."
        return Notice(kind, "critical", text, self._clock(), details)

    def _emit(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._notify(notice)
