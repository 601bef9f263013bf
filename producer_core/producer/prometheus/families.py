"""Turn a reading into metric families."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from producer_core import __version__
from producer_core.producer.prometheus.bounded_labels import BoundedLabels
from producer_core.producer.prometheus.buckets import fold
from producer_core.producer.prometheus.family import Distribution, Family
from producer_core.producer.prometheus.readings import BrokerReading, Reading, TopicReading, sum_by_label

TOPICS = 200
"""Topics with a label of their own, unless the caller chooses another number."""
_CODES = 64
"""Error codes with a label of their own. OpenTelemetry's value for the others is `_OTHER`."""
_BROKERS = 64
_APPLICATIONS = 64
_BOOTSTRAP = "bootstrap"
"""The label of bootstrap addresses, which have no broker id."""

_DIGITS = 4
"""Digits after the point of a sum of seconds. The same latencies summed in another order differ by less."""
_JITTER = 1e-6
"""The part of a sum by which another order of summation may lower it."""

_OF_TOPIC = {
    "messaging_client_sent_messages_total": "acknowledged",
    "producer_core_sent_bytes_total": "bytes",
    "producer_core_retries_total": "retried",
    "producer_core_retry_successes_total": "retry_successes",
    "producer_core_dead_letters_total": "dead",
    "producer_core_duplicates_suppressed_total": "duplicates",
    "producer_core_possible_duplicates_total": "possible_duplicates",
}
_OF_CLIENT = {
    "producer_core_client_batches_total": "batches",
    "producer_core_client_batch_messages_total": "batch_messages",
    "producer_core_client_batch_bytes_total": "batch_bytes",
    "producer_core_client_epoch_rises_total": "epoch_rises",
}
_OF_BROKER = {
    "producer_core_broker_requests_total": "requests",
    "producer_core_broker_request_retries_total": "retries",
    "producer_core_broker_request_timeouts_total": "timeouts",
    "producer_core_broker_disconnects_total": "disconnects",
}
_DURATIONS_OF_BROKER = {
    "producer_core_broker_queue_seconds": "queue",
    "producer_core_broker_send_queue_seconds": "outbuf",
    "producer_core_broker_round_trip_seconds": "rtt",
    "producer_core_broker_throttle_seconds": "throttle",
}
_OF_PRODUCERS = {
    "producer_core_producers": "running",
    "producer_core_connected_producers": "connected",
    "producer_core_pending_messages": "pending",
    "producer_core_waiting_retry_messages": "waiting_retry",
    "producer_core_client_queue_messages": "queue_messages",
    "producer_core_client_queue_limit_messages": "queue_limit",
}
_OF_PROCESS = {
    "producer_core_journal_messages": "journal_messages",
    "producer_core_journal_bytes": "journal_bytes",
    "producer_core_deduplication_degraded": "deduplication_degraded",
}
_OF_STORE = {
    "producer_core_store_bytes": "bytes",
    "producer_core_last_heartbeat_timestamp_seconds": "heartbeat_at",
    "producer_core_alert_evaluation": "alert_evaluation",
}


class Families:
    """Builds the families of one endpoint, and remembers which values have a label of their own.

    Used by one thread at a time.
    """

    def __init__(self, *, topics: int = TOPICS) -> None:
        self._topics = BoundedLabels(topics)
        self._codes = BoundedLabels(_CODES, rest="_OTHER")
        self._brokers = BoundedLabels(_BROKERS)
        self._applications = BoundedLabels(_APPLICATIONS)
        self._sums: dict[tuple[str, str], float] = {}  # exposed before, by metric and label

    def of(self, reading: Reading) -> list[Family]:
        """Return the families of a reading. A value that the source does not have is left out."""
        self._topics.add(reading.topics)
        topics = sum_by_label(
            TopicReading, ((self._topics.of(name), topic) for name, topic in reading.topics.items())
        )
        brokers = sum_by_label(
            BrokerReading, ((self._broker(number), broker) for number, broker in reading.brokers.items())
        )
        return [
            *(_by_label(name, topics, attribute) for name, attribute in _OF_TOPIC.items()),
            self._durations(topics),
            self._failed_attempts(reading),
            *(_single(name, getattr(reading.client, attribute)) for name, attribute in _OF_CLIENT.items()),
            *(_by_label(name, brokers, attribute) for name, attribute in _OF_BROKER.items()),
            *(self._broker_durations(name, brokers, part) for name, part in _DURATIONS_OF_BROKER.items()),
            *_present(_OF_PRODUCERS, reading.producers),
            self._producers_by_application(reading),
            *self._dead_letters(reading),
            *self._state_of_store(reading),
            *_present(_OF_PROCESS, reading.process),
            *self._circuits(reading),
            _build_info(),
        ]

    def _producers_by_application(self, reading: Reading) -> Family:
        counts: dict[tuple[str], int] = defaultdict(int)
        for name, number in reading.applications.items():
            counts[(self._applications.of(name) if name else "",)] += number
        return Family("producer_core_application_producers", counts)

    def _durations(self, topics: Mapping[str, TopicReading]) -> Family:
        name = "messaging_client_operation_duration_seconds"
        return Family(
            name,
            {
                (label,): Distribution(
                    (buckets := fold(topic.buckets))[-1],
                    self._steady(name, label, topic.latency_sum),
                    buckets,
                )
                for label, topic in topics.items()
            },
        )

    def _failed_attempts(self, reading: Reading) -> Family:
        name = "producer_core_failed_attempts_total"
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for (topic, code), count in reading.failed_attempts.items():
            sums[self._topics.of(topic), self._codes.of(code)] += count
        return Family(name, sums)

    def _broker_durations(self, name: str, brokers: Mapping[str, BrokerReading], part: str) -> Family:
        return Family(
            name,
            {
                (label,): Distribution(
                    getattr(broker, f"{part}_count"),
                    self._steady(name, label, getattr(broker, f"{part}_sum")),
                )
                for label, broker in brokers.items()
            },
        )

    def _dead_letters(self, reading: Reading) -> Iterator[Family]:
        if reading.dead_letters is None:
            return
        sums: dict[tuple[str, ...], int] = defaultdict(int)
        for (topic, state, code, verdict), count in reading.dead_letters.items():
            sums[self._topics.of(topic), state, self._codes.of(code), verdict] += count
        yield Family("producer_core_stored_dead_letters", sums)

    def _state_of_store(self, reading: Reading) -> Iterator[Family]:
        if reading.store is None:
            return
        oldest: dict[tuple[str], float] = {}
        for topic, at in reading.oldest_dead_letters.items():
            label = (self._topics.of(topic),)
            oldest[label] = min(at, oldest.get(label, at))
        yield Family("producer_core_oldest_dead_letter_timestamp_seconds", oldest)
        yield Family("producer_core_firing_alerts", reading.firing_alerts)
        yield from _present(_OF_STORE, reading.store)

    def _circuits(self, reading: Reading) -> Iterator[Family]:
        if reading.circuits is None:
            return
        states: dict[tuple[str, str], int] = defaultdict(int)
        for (topic, state), count in reading.circuits.states.items():
            states[self._topics.of(topic) if topic else "", state] += count
        refused: dict[tuple[str], int] = defaultdict(int)
        for topic, count in reading.circuits.refused.items():
            refused[(self._topics.of(topic),)] += count
        yield Family("producer_core_circuits", states)
        yield Family("producer_core_refused_messages_total", refused)
        yield _single("producer_core_circuit_openings_total", reading.circuits.openings)

    def _broker(self, number: int) -> str:
        return self._brokers.of(str(number)) if number >= 0 else _BOOTSTRAP

    def _steady(self, name: str, label: str, total: float) -> float:
        """Return a sum of seconds that never falls because of rounding, which Prometheus would take for a reset."""
        rounded, before = round(total, _DIGITS), self._sums.get((name, label), 0.0)
        if 0 < before - rounded <= max(_JITTER * before, 10.0**-_DIGITS):
            return before
        self._sums[name, label] = rounded
        return rounded


def _by_label(name: str, readings: Mapping[str, Any], attribute: str) -> Family:
    return Family(name, {(label,): getattr(one, attribute) for label, one in readings.items()})


def _single(name: str, value: float) -> Family:
    return Family(name, {(): value})


def _present(names: Mapping[str, str], reading: Any) -> Iterator[Family]:
    values = {} if reading is None else {name: getattr(reading, part) for name, part in names.items()}
    return (_single(name, value) for name, value in values.items() if value is not None)


def _build_info() -> Family:
    return Family("producer_core_build_info", {(__version__,): 1})
