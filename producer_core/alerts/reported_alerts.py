"""Alerts that begin with a notice: each fires with its first and ends as its kind does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from producer_core.alerts.alert_state import Alert, Key, alert
from producer_core.alerts.rules import RULES
from producer_core.events import Hook, Notice

_HOUR, _TEN_MINUTES = 3600.0, 600.0
_MOST = 1_000
_FOUND = ("acknowledged_lost", "producer_desynchronised", "topic_recreated", "retention_removed")


@dataclass(frozen=True, slots=True)
class EndCondition:
    """How such an alert ends: by a notice of another kind about the same subject, or so long after the last of
    its own, in seconds. With neither it fires until the producer is closed; a lasting one until acknowledged.
    """

    by: tuple[str, ...] = ()
    after: float | None = None


END_CONDITIONS: Mapping[str, EndCondition] = MappingProxyType(
    {
        "fatal_error": EndCondition(after=_TEN_MINUTES),
        "loss_suspected": EndCondition(by=_FOUND),
        "acknowledged_lost": EndCondition(),
        "producer_desynchronised": EndCondition(after=_HOUR),
        "topic_recreated": EndCondition(after=_HOUR),
        "retention_removed": EndCondition(after=_TEN_MINUTES),
        "standing_unknown": EndCondition(by=_FOUND, after=_HOUR),
        "epoch_rose": EndCondition(after=_TEN_MINUTES),
        "order_break": EndCondition(after=_TEN_MINUTES),
        "fenced": EndCondition(),
        "shard_ended": EndCondition(),
        "transactions_failing": EndCondition(by=("transactions_recovered",)),
        "read_back_waits": EndCondition(by=("read_back_done",)),
        "read_back_refused": EndCondition(by=("read_back_done",)),
        "journal_full": EndCondition(after=_TEN_MINUTES),
        "journal_torn": EndCondition(after=_HOUR),
        "journal_damaged": EndCondition(),
        "dlq_over_bound": EndCondition(by=("dlq_within_bound",)),
        "weak_replication": EndCondition(),
        "telemetry_lost": EndCondition(after=_HOUR),
        "ledger_lost": EndCondition(after=_HOUR),
    }
)
"""Which notices become alerts. All of them are rules."""


@dataclass(slots=True)
class _Episode:
    notice: Notice
    began_at: float
    count: int = 1


class ReportedAlerts(Hook):
    """A hook that keeps what notices began; `firing` is asked once a second. Safe from any thread, bounded.

    A notice's `details["subject"]` says what it is about, else it is about its producer. `details["ends"]`
    lists pairs of kind and subject that end with it; `details["advice"]` takes the place of the rule's advice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the episodes
        self._episodes: dict[Key, _Episode] = {}

    def notice(self, notice: Notice) -> None:
        subject = str(notice.details.get("subject", ""))
        with self._lock:
            self._end(notice, subject)
            if notice.kind in END_CONDITIONS:
                self._begin((notice.kind, subject), notice)

    def firing(self, producer: str, now: float, *, closed: bool = False) -> list[Alert]:
        """What fires now; `producer` is the subject of what has none. Of a closed one only the lasting are left."""
        with self._lock:
            for key, episode in list(self._episodes.items()):
                after = END_CONDITIONS[key[0]].after
                if after is not None and now - episode.notice.at > after:
                    del self._episodes[key]
            found = list(self._episodes.items())
        return [
            _alert(kind, subject or producer, episode)
            for (kind, subject), episode in found
            if RULES[kind].lasting or not closed
        ]

    def _begin(self, key: Key, notice: Notice) -> None:
        known = self._episodes.get(key)
        if known is None:
            if len(self._episodes) >= _MOST:  # the oldest that is not lasting makes room, else the oldest
                fleeting = (kind for kind in self._episodes if not RULES[kind[0]].lasting)
                del self._episodes[next(fleeting, next(iter(self._episodes)))]
            self._episodes[key] = _Episode(notice, notice.at)
        else:
            known.notice = notice
            known.count += 1

    def _end(self, notice: Notice, subject: str) -> None:
        for key in [(kind, about) for kind, about in notice.details.get("ends", ())]:
            self._episodes.pop(key, None)
        for kind, end in END_CONDITIONS.items():
            if notice.kind in end.by:
                self._episodes.pop((kind, subject), None)


def _alert(kind: str, subject: str, episode: _Episode) -> Alert:
    found = alert(kind, subject, episode.began_at, value=episode.count, text=episode.notice.text)
    advice = episode.notice.details.get("advice")
    return replace(found, advice=str(advice)) if advice else found
