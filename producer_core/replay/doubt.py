"""A doubtful record: it may be on its topic already, so it is looked for before it is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.landing import Landing, Prober
from producer_core.replay.claims import Orphan, Outcome

T = TypeVar("T")

_CANNOT_LOOK = Landing(
    "inconclusive", None, None, 0, "Nobody can say yet: this runner cannot read the topic."
)
_AGAIN = "inconclusive; replay it again to resend"


def look_first(letters: Sequence[DeadLetter], probe: Prober | None) -> tuple[list[DeadLetter], list[Outcome]]:
    """What may be sent now, and what is settled without sending.

    A record whose verdict is safe is sent. Of the others: found is landed, absent is sent. Inconclusive is
    left a dead letter with that verdict, so nothing is sent twice silently; when its verdict already was
    `inconclusive`, an operator saw it and asked again, and it is sent.
    """
    doubtful = [letter for letter in letters if letter.verdict not in SAFE_VERDICTS]
    landings = _look(doubtful, probe, lambda letter: letter.topic, lambda letter: letter, first_sent)
    sendable, outcomes = [], []
    for letter in letters:
        landing = landings.get(letter.message_id)
        if landing is None or landing.outcome == "absent":
            sendable.append(letter if landing is None else replace(letter, verdict="absent"))
        elif landing.outcome == "found":
            outcomes.append(_landed(letter, landing))
        elif letter.verdict == "inconclusive":
            sendable.append(letter)
        else:
            outcomes.append(_unknown(letter, landing))
    return sendable, outcomes


def look_after(orphans: Sequence[Orphan], probe: Prober | None) -> list[Outcome]:
    """What became of records that a dead owner left claimed: landed, to be sent again, or nobody knows."""
    landings = _look(
        orphans,
        probe,
        lambda orphan: (orphan.letter.topic, orphan.letter.verdict in SAFE_VERDICTS),
        lambda orphan: orphan.letter,
        _sent,
    )
    return [_after(orphan.letter, landings[orphan.letter.message_id]) for orphan in orphans]


def still_doubtful(before: DeadLetter, death: DeadLetter) -> DeadLetter:
    """The new death of a letter that was sent in doubt: the doubt stays, whatever this attempt proves."""
    if before.verdict in SAFE_VERDICTS or death.verdict not in SAFE_VERDICTS:
        return death
    reason = f"{before.verdict_reason} The replay after it failed: {death.verdict_reason}"
    return replace(death, verdict=before.verdict, verdict_reason=reason)


def first_sent(letter: DeadLetter) -> float:
    """The oldest time, in seconds, that the record can carry on its topic."""
    given = letter.accepted_at if letter.timestamp_ms is None else letter.timestamp_ms / 1000
    return min(letter.accepted_at, given)


def _sent(orphan: Orphan) -> float:
    return orphan.claimed_at if orphan.letter.verdict in SAFE_VERDICTS else first_sent(orphan.letter)


def _look(
    items: Sequence[T],
    probe: Prober | None,
    group: Callable[[T], Hashable],
    letter_of: Callable[[T], DeadLetter],
    since: Callable[[T], float],
) -> dict[str, Landing]:
    """One look for each group of one topic's records."""
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[group(item)].append(item)
    found: dict[str, Landing] = {}
    for members in groups.values():
        ids = [letter_of(item).message_id for item in members]
        if probe is None:
            found |= dict.fromkeys(ids, _CANNOT_LOOK)
        else:
            oldest = int(min(map(since, members)) * 1000)
            found |= probe(letter_of(members[0]).topic, ids, oldest)
    return found


def _after(letter: DeadLetter, landing: Landing) -> Outcome:
    if landing.outcome == "found":
        return _landed(letter, landing)
    if landing.outcome == "absent":
        return Outcome(letter.message_id, "pending", landing.text, verdict="absent")
    return _unknown(letter, landing)


def _landed(letter: DeadLetter, landing: Landing) -> Outcome:
    return Outcome(
        letter.message_id, "landed", landing.text, landing.partition, landing.offset, verdict="found"
    )


def _unknown(letter: DeadLetter, landing: Landing) -> Outcome:
    return Outcome(letter.message_id, "skipped", f"{_AGAIN}. {landing.text}", verdict="inconclusive")
