"""Doubtful records: they may already be on their topic, so the replay searches for them before it sends them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.record_batch import RecordBatch
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.kafka.record_lookup import Prober, ProbeResult
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome

T = TypeVar("T")

_CANNOT_SEARCH = ProbeResult(
    "inconclusive", None, None, 0, "Not known yet: this runner cannot read the topic."
)
AHEAD = 200_000
"""Maximum number of doubtful records in one search."""
FRESH = 60.0
"""Seconds for which a search result is used."""
LOOKS = 10
"""Maximum number of searches in a row without a result."""
_KEPT = "inconclusive, so not sent; to send anyway, use --inconclusive send if a duplicate does no harm"


class DoubtfulRecord:
    """Search the topics for an operation's doubtful records; one search also covers upcoming records.

    `ahead(topic, count)` returns the upcoming records, each with the oldest timestamp (seconds) it can have on its topic.
    A result is used for a minute; then the topic is searched again.
    """

    def __init__(
        self,
        probe: Prober | None,
        ahead: Callable[[str, int], Sequence[tuple[str, float]]] = lambda topic, count: (),
        *,
        send_inconclusive: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._send_inconclusive = send_inconclusive
        self._ahead = ahead
        self._monotonic = monotonic
        self._known: dict[str, tuple[ProbeResult, float]] = {}
        self._searches = 0

    def search_first(
        self, dead_letters: Sequence[ReplayRecord], following: Sequence[ReplayRecord] = ()
    ) -> tuple[Sequence[ReplayRecord], list[RecordOutcome]]:
        """Return the records to send now, and the outcomes of the others. `following` are claimed and have their turn next.

        Records with a safe verdict are sent. A doubtful record found on its topic has landed. A record whose search failed
        for a transient reason is returned and searched again. A record not found remains a dead letter with the verdict
        `inconclusive`, because a late request may still arrive, unless the operator chose to send such records anyway.
        """
        if isinstance(dead_letters, RecordBatch) and dead_letters.is_safe:
            self._searches = 0
            return dead_letters, []
        doubtful = [dead_letter for dead_letter in dead_letters if dead_letter.verdict not in SAFE_VERDICTS]
        results = self._results(doubtful, following)
        retry = self._may_search_again(results.values())
        sendable, outcomes = [], []
        for dead_letter in dead_letters:
            result = results.get(dead_letter.message_id)
            if result is None:
                sendable.append(dead_letter)
            elif result.outcome == "found":
                outcomes.append(_landed(dead_letter, result))
            elif result.transient and retry:
                outcomes.append(RecordOutcome(dead_letter.message_id, "pending"))
            elif self._send_inconclusive:
                sendable.append(dead_letter)
            else:
                outcomes.append(_unknown(dead_letter, result))
        return sendable, outcomes

    def _may_search_again(self, results: Iterable[ProbeResult]) -> bool:
        """Return whether to repeat a search without a result, which is done up to LOOKS times in a row."""
        transient = any(result.transient for result in results)
        self._searches = self._searches + 1 if transient else 0
        if transient:
            self._known.clear()
        return self._searches < LOOKS

    def _results(
        self, dead_letters: Sequence[ReplayRecord], following: Sequence[ReplayRecord]
    ) -> dict[str, ProbeResult]:
        if self._probe is None:
            return {dead_letter.message_id: _CANNOT_SEARCH for dead_letter in dead_letters}
        results = {
            dead_letter.message_id: known
            for dead_letter in dead_letters
            if (known := self._cached(dead_letter.message_id))
        }
        unknown = [dead_letter for dead_letter in dead_letters if dead_letter.message_id not in results]
        for topic in dict.fromkeys(dead_letter.topic for dead_letter in unknown):
            of_topic = [one for one in (*unknown, *following) if one.topic == topic]
            searched = [one for one in of_topic if one.verdict not in SAFE_VERDICTS]
            results |= self._search(self._probe, topic, searched)
        return {
            dead_letter.message_id: results.get(dead_letter.message_id, _CANNOT_SEARCH)
            for dead_letter in dead_letters
        }

    def _search(
        self, probe: Prober, topic: str, dead_letters: Sequence[ReplayRecord]
    ) -> dict[str, ProbeResult]:
        """Search the topic once for these records and for upcoming ones."""
        oldest = {dead_letter.message_id: first_sent(dead_letter) for dead_letter in dead_letters}
        oldest |= dict(self._ahead(topic, AHEAD))
        results = probe(topic, list(oldest), int(min(oldest.values()) * 1000))
        now = self._monotonic()
        self._known = {one: known for one, known in self._known.items() if now - known[1] < FRESH}
        self._known |= {message_id: (result, now) for message_id, result in results.items()}
        return results

    def _cached(self, message_id: str) -> ProbeResult | None:
        result, at = self._known.get(message_id, (None, 0.0))
        return result if result is not None and self._monotonic() - at < FRESH else None


def search_orphans(
    orphans: Sequence[OrphanedRecord], probe: Prober | None, *, send_inconclusive: bool = False
) -> list[RecordOutcome]:
    """Return the outcomes of records that a dead owner left claimed: landed, or inconclusive.

    The owner's client may have sent them, so they are sent again only if the operator chose to send inconclusive records.
    """
    results = _search_by_group(
        orphans,
        probe,
        lambda orphan: (orphan.dead_letter.topic, orphan.dead_letter.verdict in SAFE_VERDICTS),
        lambda orphan: orphan.dead_letter,
        _first_sent_by_owner,
    )
    return [
        _orphan_outcome(orphan.dead_letter, results[orphan.dead_letter.message_id], send_inconclusive)
        for orphan in orphans
    ]


def still_doubtful(before: ReplayRecord | DeadLetter, death: FailedReplay) -> FailedReplay:
    """Return the new failure with the earlier doubtful verdict, which this attempt cannot disprove."""
    if before.verdict in SAFE_VERDICTS or death.verdict not in SAFE_VERDICTS:
        return death
    reason = f"{before.verdict_reason} A later replay failed: {death.verdict_reason}"
    return death._replace(verdict=before.verdict, verdict_reason=reason)


def first_sent(dead_letter: ReplayRecord) -> float:
    """Return the oldest timestamp, in seconds, that the record can have on its topic."""
    given = dead_letter.accepted_at if dead_letter.timestamp_ms is None else dead_letter.timestamp_ms / 1000
    return min(dead_letter.accepted_at, given)


def _first_sent_by_owner(orphan: OrphanedRecord) -> float:
    return (
        orphan.claimed_at if orphan.dead_letter.verdict in SAFE_VERDICTS else first_sent(orphan.dead_letter)
    )


def _search_by_group(
    items: Sequence[T],
    probe: Prober | None,
    group: Callable[[T], Hashable],
    dead_letter_of: Callable[[T], ReplayRecord],
    since: Callable[[T], float],
) -> dict[str, ProbeResult]:
    """Search once for each group of records of one topic."""
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[group(item)].append(item)
    found: dict[str, ProbeResult] = {}
    for members in groups.values():
        ids = [dead_letter_of(item).message_id for item in members]
        if probe is None:
            found |= dict.fromkeys(ids, _CANNOT_SEARCH)
        else:
            oldest = int(min(map(since, members)) * 1000)
            found |= probe(dead_letter_of(members[0]).topic, ids, oldest)
    return found


def _orphan_outcome(dead_letter: ReplayRecord, result: ProbeResult, send_inconclusive: bool) -> RecordOutcome:
    if result.outcome == "found":
        return _landed(dead_letter, result)
    if send_inconclusive:
        return RecordOutcome(dead_letter.message_id, "pending", result.text, verdict="inconclusive")
    return _unknown(dead_letter, result)


def _landed(dead_letter: ReplayRecord, result: ProbeResult) -> RecordOutcome:
    return RecordOutcome(
        dead_letter.message_id, "landed", result.text, result.partition, result.offset, verdict="found"
    )


def _unknown(dead_letter: ReplayRecord, result: ProbeResult) -> RecordOutcome:
    return RecordOutcome(dead_letter.message_id, "skipped", f"{_KEPT}. {result.text}", verdict="inconclusive")
