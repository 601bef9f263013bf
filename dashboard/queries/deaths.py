"""What died in a range, by its dead letters, and what became of them: the one count that every page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from producer_core.dashboard.queries.view import View
from producer_core.replay.active_cause import LATE
from producer_core.store import Store

_MOST = 10_000


@dataclass(frozen=True)
class Deaths:
    """`rows` are of dead letters, by topic, error code and group, most first. `unlettered`: messages by topic that died
    without a dead letter here, because their producers keep theirs in another store; only the statistics know of them.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    without_dead_letters: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self._sum("count") + sum(self.without_dead_letters.values())

    @property
    def cured(self) -> int:
        """Those that were replayed since, or found on their topic."""
        return self._sum("cured")

    @property
    def aside(self) -> int:
        """Those that somebody put aside for good or for now."""
        return self._sum("aside")

    @property
    def retried(self) -> int:
        """Those that were sent again by us, and died all the same."""
        return self._sum("retried")

    @property
    def last(self) -> float | None:
        """When the last dead letter died."""
        return max((row["last"] for row in self.rows), default=None)

    @property
    def lasts(self) -> Mapping[str, float]:
        """When the last dead letter of a topic died; not of topics of which some left no dead letter here."""
        found: dict[str, float] = {}
        for row in self.rows:
            if row["topic"] not in self.without_dead_letters:
                found[row["topic"]] = max(found.get(row["topic"], 0.0), row["last"])
        return found

    def by(self, name: str, what: str = "count") -> dict[str, int]:
        """By topic or by code; deaths without a dead letter have no code."""
        counts = Counter(self.without_dead_letters if (name, what) == ("topic", "count") else ())
        for row in self.rows:
            counts[row[name]] += row[what]
        return {key: number for key, number in counts.items() if number}

    def _sum(self, name: str) -> int:
        return sum(row[name] for row in self.rows)


def deaths(store: Store, view: View, since: int, until: int | None) -> Deaths:
    """By the dead letters: statistics come a moment later, and count by the second in which they were written."""
    span = {"since": since, "until": until, **view.where}
    without_dead_letters = _added(store.rows("deaths_without_letters", **span), "topic")
    return Deaths(store.rows("deaths", limit=_MOST, **span), without_dead_letters)


def by_producer(store: Store, view: View, since: int, until: int | None) -> dict[str, int]:
    """The same deaths by producer."""
    span = {"since": since, "until": until, **view.where}
    left = (*store.rows("letters_by_producer", **span), *store.rows("deaths_without_letters", **span))
    return _added(left, "producer_id")


def _added(rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, int]:
    counts = Counter[str]()
    for row in rows:
        counts[row[name]] += row["dead"]
    return dict(counts)


def delivered_since(store: Store, view: View, lasts: Mapping[str, float]) -> dict[str, int]:
    """What each of these topics had acknowledged since its last death. Statistics count a moment late, so what may have
    been acknowledged before it is left out."""
    if not lasts:
        return {}
    rows = store.rows(
        "delivered_since",
        topics=list(lasts),
        lasts=[last + LATE for last in lasts.values()],
        since=int(min(lasts.values())),
        producer=view.producer,
    )
    return {row["topic"]: row["acknowledged"] for row in rows}


def retry_success(saved: int, given_up: int) -> float | None:
    """Of the messages that we sent again and that are settled, those that were acknowledged; `given_up` died."""
    return saved / (saved + given_up) if saved + given_up else None
