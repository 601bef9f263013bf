"""Dead letters as a page shows them: a list, its groups, and what an act would be about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from producer_core.dlq import DeadLetterFilter, DeadLetters, Group
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.replay import runners
from producer_core.store import Store

LISTED = 200


@dataclass(frozen=True)
class DeadLetterPage:
    """The dead letters that a filter matches, as of one moment, and the choices for the filters."""

    where: DeadLetterFilter
    total: int
    letters: tuple[DeadLetter, ...]
    groups: tuple[Group, ...]
    verdicts: Mapping[str, int]
    runners: int

    @property
    def safe(self) -> bool:
        return Scope(self.where, self.verdicts).safe

    @property
    def seen(self) -> DeadLetterFilter:
        """The filter bounded by what this page shows: an act leaves letters that died later alone."""
        if not self.letters:
            return self.where
        return replace(self.where, until=math.nextafter(self.letters[0].failed_at, math.inf))


@dataclass(frozen=True)
class Scope:
    """What an act would be about now: how many dead letters, with which verdicts."""

    about: DeadLetterFilter
    verdicts: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    @property
    def safe(self) -> bool:
        """Every verdict says that a resend cannot write a second copy."""
        return all(verdict in SAFE_VERDICTS for verdict in self.verdicts)


def dead_letters(store: Store, where: DeadLetterFilter, now: float) -> DeadLetterPage:
    """The newest LISTED letters of the filter, and their groups."""
    letters = DeadLetters(store)
    with store.borrow():
        return DeadLetterPage(
            where=where,
            total=letters.count(where),
            letters=tuple(letters.find(where, limit=LISTED)),
            groups=tuple(letters.groups(where, limit=20)),
            verdicts=letters.count_by(where, "verdict"),
            runners=len(runners(store, now)),
        )


def scope(store: Store, about: DeadLetterFilter) -> Scope:
    """The letters of a selection that are still in its state, by verdict."""
    return Scope(about, DeadLetters(store).count_by(about, "verdict"))


def choices(store: Store, state: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The topics and the error codes that letters in a state have, by name: counts would move them under a click."""
    letters, whole = DeadLetters(store), DeadLetterFilter(state=state)
    with store.borrow():
        topics, codes = letters.count_by(whole, "topic"), letters.count_by(whole, "code")
    return tuple(sorted(topics)), tuple(sorted(codes))


def letter(store: Store, message_id: str) -> DeadLetter | None:
    """One letter with its body."""
    return DeadLetters(store).get(message_id)
