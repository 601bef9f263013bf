"""Bound the lookups of a topic that never reach its end, such as behind a transaction that stays open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from producer_core.dlq.topics.topic_sender import Probe
from producer_core.kafka.record_lookup import ProbeResult

_TIMEOUTS = 3
"""Lookups in a row that reach the brokers but not the end of the topic. Afterwards their answer counts as final."""


class BoundedLookup:
    """A `Probe` whose time-outs are no longer transient after the third in a row, until a lookup of that topic has none.

    A dead letter is then sent again, so a reader may find two records of one id. One publisher's thread calls it.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._timeouts: Counter[str] = Counter()

    def __call__(self, topic: str, message_ids: Sequence[str], since_ms: int) -> Mapping[str, ProbeResult]:
        results = self._probe(topic, message_ids, since_ms)
        if any(one.timed_out for one in results.values()):
            self._timeouts[topic] += 1
        else:
            del self._timeouts[topic]
        if self._timeouts[topic] < _TIMEOUTS:
            return results
        return {
            one: replace(result, transient=False) if result.timed_out else result
            for one, result in results.items()
        }
