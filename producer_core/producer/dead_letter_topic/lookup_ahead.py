"""Look for many dead letters with one reading of their topic, because each lookup reads it to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from producer_core.dlq.topics.topic_sender import Probe
from producer_core.kafka.record_lookup import ProbeResult

Upcoming = Mapping[str, Mapping[str, float]]
"""By topic and message id: a time before which no record of the dead letter can be on the topic, in seconds since 1970."""


class LookupAhead:
    """A `Probe` that also looks for the upcoming dead letters of the topic, and answers for them later.

    An answer is given once, and only to a lookup that reads no earlier records. It is true as long as no other process
    publishes: the caller holds the lease "dlq publish" for the lifetime of this object.
    """

    def __init__(self, probe: Probe, upcoming: Upcoming) -> None:
        self._probe = probe
        self._upcoming = {topic: dict(started) for topic, started in upcoming.items()}
        self._since_ms: dict[str, int] = {}  # by topic: of the answers
        self._answers: dict[tuple[str, str], ProbeResult] = {}

    def __call__(self, topic: str, message_ids: Sequence[str], since_ms: int) -> Mapping[str, ProbeResult]:
        known: dict[str, ProbeResult] = {}
        if since_ms >= self._since_ms.get(topic, since_ms):
            known = {
                one: self._answers.pop((topic, one)) for one in message_ids if (topic, one) in self._answers
            }
        missing = [one for one in message_ids if one not in known]
        return known | self._look_up(topic, missing, since_ms) if missing else known

    def _look_up(self, topic: str, message_ids: Sequence[str], since_ms: int) -> dict[str, ProbeResult]:
        upcoming = self._upcoming.pop(topic, {})
        others = upcoming.keys() - set(message_ids)
        first_ms = min((since_ms, *(int(upcoming[one] * 1000) for one in others)))
        found = dict(self._probe(topic, [*message_ids, *others], first_ms))
        if first_ms < since_ms and any(_is_limited(found[one]) for one in message_ids if one in found):
            return dict(
                self._probe(topic, message_ids, since_ms)
            )  # the upcoming ones may be too old to look for
        for one in others:
            result = found.pop(one, None)  # a simulated cluster has no answers
            if result is not None and result.outcome != "inconclusive":
                self._answers[topic, one] = result
                self._since_ms[topic] = first_ms
        return found


def _is_limited(result: ProbeResult) -> bool:
    """Return whether the lookup had more to read than it may, or than the topic has."""
    return result.outcome == "inconclusive" and not result.transient
