"""Send dead letters to dead-letter topics, and look on the topics for those whose outcome is unknown."""

from __future__ import annotations

import contextlib
import queue
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from producer_core.dlq.topics.origin import WrittenDialect
from producer_core.dlq.topics.write_headers import write
from producer_core.errors import NotAccepted
from producer_core.events import DeadLetter
from producer_core.kafka import record_lookup

if TYPE_CHECKING:
    from producer_core.delivery.reports import ReplayResult

_PROBE_TIMEOUT = 60.0
_PROBED_RECORDS = 2_000_000

Probe = Callable[[str, Sequence[str], int], Mapping[str, record_lookup.ProbeResult]]
"""Looks up records by topic, message ids and the oldest timestamp that they can have, in milliseconds."""


class PublishingProducer(Protocol):
    """The methods of a producer that publishing needs."""

    def resend(self, dead_letter: DeadLetter, settled: Callable[[ReplayResult], None]) -> None: ...
    def close(self, timeout: float = ...) -> object: ...


@dataclass(frozen=True)
class SendResult:
    """The results of the dead letters that were sent, and the reasons of those that can never be sent, by id. `error` is
    set if the producer accepts no more; the rest was then not sent."""

    results: Sequence[ReplayResult]
    invalid: Mapping[str, str]
    error: NotAccepted | None = None


class TopicSender:
    """Sends to the topics that `targets` names by message id. `while_waiting` is called before a send, once a second
    during a wait and after each lookup; an error that it raises ends the call.

    `partitions` returns the number of a topic's partitions, or None. With it, a record without a key goes to the partition
    that its id determines, so that a reader of that partition recognizes a second copy.
    """

    def __init__(
        self,
        dialect: WrittenDialect = "producer_core",
        *,
        probe: Probe,
        while_waiting: Callable[[], None] = lambda: None,
        partitions: Callable[[str], int | None] = lambda topic: None,
    ) -> None:
        self._dialect = dialect
        self._probe = probe
        self._while_waiting = while_waiting
        self._partitions = partitions

    def find(
        self, started: Mapping[str, float], targets: Mapping[str, str]
    ) -> dict[str, record_lookup.ProbeResult]:
        """Look for dead letters whose publication may have started at these times, in seconds since 1970."""
        ids_by_topic: dict[str, list[str]] = defaultdict(list)
        for message_id in started:
            ids_by_topic[targets[message_id]].append(message_id)
        results: dict[str, record_lookup.ProbeResult] = {}
        for topic, ids in ids_by_topic.items():
            since_ms = int(min(started[message_id] for message_id in ids) * 1000)
            results |= self._probe(topic, ids, since_ms)
            self._while_waiting()  # a lookup may take longer than a lease
        return results

    def send(
        self, producer: PublishingProducer, dead_letters: Sequence[DeadLetter], targets: Mapping[str, str]
    ) -> SendResult:
        """Send the dead letters in order and wait for all outcomes. Each ends within the delivery timeout."""
        self._while_waiting()
        reports: queue.SimpleQueue[ReplayResult] = queue.SimpleQueue()
        results: list[ReplayResult] = []
        invalid: dict[str, str] = {}
        refused: NotAccepted | None = None
        sent = 0
        for dead_letter in dead_letters:
            record = self._record(dead_letter, targets[dead_letter.message_id])
            while True:
                try:
                    producer.resend(record, reports.put)
                    sent += 1
                except ValueError as error:  # this record can never be sent
                    invalid[dead_letter.message_id] = str(error)
                except NotAccepted as error:
                    if len(results) < sent:
                        results.append(self._next_result(reports))
                        continue
                    refused = error
                break
            if refused is not None:
                break
        while len(results) < sent:
            results.append(self._next_result(reports))
        return SendResult(results, invalid, refused)

    def _record(self, dead_letter: DeadLetter, topic: str) -> DeadLetter:
        count = self._partitions(topic) if dead_letter.key is None else None
        return replace(
            dead_letter,
            topic=topic,
            headers=write(dead_letter, self._dialect),
            partition=zlib.crc32(dead_letter.message_id.encode()) % count if count else None,
        )

    def _next_result(self, reports: queue.SimpleQueue[ReplayResult]) -> ReplayResult:
        while True:
            with contextlib.suppress(queue.Empty):
                return reports.get(timeout=1.0)
            self._while_waiting()


def prober(settings: Mapping[str, Any]) -> Probe:
    """Return a function that looks up records on the cluster of these settings."""

    def probe(
        topic: str, message_ids: Sequence[str], since_ms: int
    ) -> Mapping[str, record_lookup.ProbeResult]:
        return record_lookup.find_records(
            settings,
            topic,
            message_ids,
            since_ms=since_ms,
            timeout=_PROBE_TIMEOUT,
            max_records=_PROBED_RECORDS,
        )

    return probe
