"""Look twice for what a first lookup did not find, because a broker may still append a request that it received earlier."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from producer_core.dlq.topics.topic_sender import Probe
from producer_core.kafka.record_lookup import ProbeResult

CONFIRM_AFTER_S = 3
"""Seconds between the two lookups. A broker that continues after a pause appends what it had received within that time,
unless it is overloaded: Kafka has no bound for it."""


class ConfirmedLookup:
    """A `Probe` that repeats a lookup after `CONFIRM_AFTER_S` for the ids that were not found.

    `while_waiting` is called once a second in between; an error that it raises ends the lookup.
    """

    def __init__(
        self, probe: Probe, while_waiting: Callable[[], None], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._probe = probe
        self._while_waiting = while_waiting
        self._sleep = sleep

    def __call__(self, topic: str, message_ids: Sequence[str], since_ms: int) -> Mapping[str, ProbeResult]:
        results = self._probe(topic, message_ids, since_ms)
        missing = [one for one, result in results.items() if result.outcome == "not_found"]
        if not missing:
            return results
        for _ in range(CONFIRM_AFTER_S):
            self._sleep(1.0)
            self._while_waiting()
        return {**results, **self._probe(topic, missing, since_ms)}
