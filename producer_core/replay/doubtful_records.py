"""A doubtful record: it may be on its topic already, so it is looked for before it is sent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.events import SAFE_VERDICTS
from producer_core.kafka.record_lookup import Prober, ProbeResult
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome

T = TypeVar("T")

_CANNOT_LOOK = ProbeResult(
    "inconclusive", None, None, 0, "Nobody can say yet: this runner cannot read the topic."
)
AHEAD = 200_000
"""Doubtful records looked for at once."""
FRESH = 60.0
"""Seconds for which an answer is used."""
LOOKS = 10
_KEPT = (
    "inconclusive, so not sent; choose to send it anyway (--inconclusive send) if a second copy does no harm"
)


class DoubtfulRecord:
    """What the topics say of an operation's doubtful records: one look answers for many that are still to come.

    `ahead(topic, count)` are those, each with the oldest time (seconds) that it can carry on its topic. An answer
    is used for a minute; then the topic is looked at again.
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
        self._looks = 0

    def look_first(
        self, dead_letters: Sequence[ReplayRecord]
    ) -> tuple[list[ReplayRecord], list[RecordOutcome]]:
        """What may be sent now, and what is settled without sending.

        A record whose verdict is safe is sent. Of the others: found is landed. Inconclusive for a reason that passes
        goes back, to be looked for again. What was not found stays a dead letter with the verdict `inconclusive`,
        because a late request of it may still arrive, unless the operator chose to send such records anyway.
        """
        doubtful = [dead_letter for dead_letter in dead_letters if dead_letter.verdict not in SAFE_VERDICTS]
        landings = self._landings(doubtful)
        again = self._may_look_again(landings.values())
        sendable, outcomes = [], []
        for dead_letter in dead_letters:
            landing = landings.get(dead_letter.message_id)
            if landing is None:
                sendable.append(dead_letter)
            elif landing.outcome == "found":
                outcomes.append(_landed(dead_letter, landing))
            elif landing.transient and again:
                outcomes.append(RecordOutcome(dead_letter.message_id, "pending"))
            elif self._send_inconclusive:
                sendable.append(dead_letter)
            else:
                outcomes.append(_unknown(dead_letter, landing))
        return sendable, outcomes

    def _may_look_again(self, landings: Iterable[ProbeResult]) -> bool:
        """A look that brought nothing for now is made again, up to LOOKS times in a row."""
        passing = any(landing.transient for landing in landings)
        self._looks = self._looks + 1 if passing else 0
        if passing:
            self._known.clear()
        return self._looks < LOOKS

    def _landings(self, dead_letters: Sequence[ReplayRecord]) -> dict[str, ProbeResult]:
        if self._probe is None:
            return {dead_letter.message_id: _CANNOT_LOOK for dead_letter in dead_letters}
        answers = {
            dead_letter.message_id: known
            for dead_letter in dead_letters
            if (known := self._answer(dead_letter.message_id))
        }
        unknown = [dead_letter for dead_letter in dead_letters if dead_letter.message_id not in answers]
        for topic in dict.fromkeys(dead_letter.topic for dead_letter in unknown):
            answers |= self._ask(self._probe, topic, [one for one in unknown if one.topic == topic])
        return {
            dead_letter.message_id: answers.get(dead_letter.message_id, _CANNOT_LOOK)
            for dead_letter in dead_letters
        }

    def _ask(self, probe: Prober, topic: str, dead_letters: Sequence[ReplayRecord]) -> dict[str, ProbeResult]:
        """One look for these and for those to come."""
        oldest = {dead_letter.message_id: first_sent(dead_letter) for dead_letter in dead_letters}
        oldest |= dict(self._ahead(topic, AHEAD))
        answers = probe(topic, list(oldest), int(min(oldest.values()) * 1000))
        now = self._monotonic()
        self._known = {one: known for one, known in self._known.items() if now - known[1] < FRESH}
        self._known |= {message_id: (landing, now) for message_id, landing in answers.items()}
        return answers

    def _answer(self, message_id: str) -> ProbeResult | None:
        landing, at = self._known.get(message_id, (None, 0.0))
        return landing if landing is not None and self._monotonic() - at < FRESH else None


def look_after(
    orphans: Sequence[OrphanedRecord], probe: Prober | None, *, send_inconclusive: bool = False
) -> list[RecordOutcome]:
    """What became of records that a dead owner left claimed: landed, or inconclusive.

    His client may have sent them, so they are sent again only where the operator chose that for inconclusive records.
    """
    landings = _look(
        orphans,
        probe,
        lambda orphan: (orphan.dead_letter.topic, orphan.dead_letter.verdict in SAFE_VERDICTS),
        lambda orphan: orphan.dead_letter,
        _sent,
    )
    return [
        _after(orphan.dead_letter, landings[orphan.dead_letter.message_id], send_inconclusive)
        for orphan in orphans
    ]


def still_doubtful(before: ReplayRecord, death: FailedReplay) -> FailedReplay:
    """The new death of a dead letter that was sent in doubt: the doubt stays, whatever this attempt proves."""
    if before.verdict in SAFE_VERDICTS or death.verdict not in SAFE_VERDICTS:
        return death
    reason = f"{before.verdict_reason} The replay after it failed: {death.verdict_reason}"
    return death._replace(verdict=before.verdict, verdict_reason=reason)


def first_sent(dead_letter: ReplayRecord) -> float:
    """The oldest time, in seconds, that the record can carry on its topic."""
    given = dead_letter.accepted_at if dead_letter.timestamp_ms is None else dead_letter.timestamp_ms / 1000
    return min(dead_letter.accepted_at, given)


def _sent(orphan: OrphanedRecord) -> float:
    return (
        orphan.claimed_at if orphan.dead_letter.verdict in SAFE_VERDICTS else first_sent(orphan.dead_letter)
    )


def _look(
    items: Sequence[T],
    probe: Prober | None,
    group: Callable[[T], Hashable],
    dead_letter_of: Callable[[T], ReplayRecord],
    since: Callable[[T], float],
) -> dict[str, ProbeResult]:
    """One look for each group of one topic's records."""
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[group(item)].append(item)
    found: dict[str, ProbeResult] = {}
    for members in groups.values():
        ids = [dead_letter_of(item).message_id for item in members]
        if probe is None:
            found |= dict.fromkeys(ids, _CANNOT_LOOK)
        else:
            oldest = int(min(map(since, members)) * 1000)
            found |= probe(dead_letter_of(members[0]).topic, ids, oldest)
    return found


def _after(dead_letter: ReplayRecord, landing: ProbeResult, send_inconclusive: bool) -> RecordOutcome:
    if landing.outcome == "found":
        return _landed(dead_letter, landing)
    if send_inconclusive:
        return RecordOutcome(dead_letter.message_id, "pending", landing.text, verdict="inconclusive")
    return _unknown(dead_letter, landing)


def _landed(dead_letter: ReplayRecord, landing: ProbeResult) -> RecordOutcome:
    return RecordOutcome(
        dead_letter.message_id, "landed", landing.text, landing.partition, landing.offset, verdict="found"
    )


def _unknown(dead_letter: ReplayRecord, landing: ProbeResult) -> RecordOutcome:
    return RecordOutcome(
        dead_letter.message_id, "skipped", f"{_KEPT}. {landing.text}", verdict="inconclusive"
    )
