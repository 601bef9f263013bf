"""The alerts that a producer raises from its notices, and the conditions that end them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from producer_core.alerts.alert_state import Alert, Key, alert
from producer_core.alerts.rules import RULES
from producer_core.events import Hook, Notice

_HOUR, _TEN_MINUTES = 3600.0, 600.0
_CAPACITY = 1_000
_LOSS_FINDINGS = ("acknowledged_lost", "producer_desynchronised", "topic_recreated", "retention_removed")


@dataclass(frozen=True, slots=True)
class EndCondition:
    """When an alert ends: at a notice of a kind in `by` about the same subject, or `after` seconds without a new notice.

    With neither, it fires until the producer is closed; a lasting alert fires until it is acknowledged.
    """

    by: tuple[str, ...] = ()
    after: float | None = None


END_CONDITIONS: Mapping[str, EndCondition] = MappingProxyType(
    {
        "circuit_opened": EndCondition(by=("circuit_closed",)),
        "fatal_error": EndCondition(after=_TEN_MINUTES),
        "loss_suspected": EndCondition(by=_LOSS_FINDINGS),
        "acknowledged_lost": EndCondition(),
        "producer_desynchronised": EndCondition(after=_HOUR),
        "topic_recreated": EndCondition(),
        "retention_removed": EndCondition(after=_TEN_MINUTES),
        "standing_unknown": EndCondition(by=_LOSS_FINDINGS, after=_HOUR),
        "epoch_rose": EndCondition(after=_TEN_MINUTES),
        "order_break": EndCondition(after=_TEN_MINUTES),
        "fenced": EndCondition(),
        "shard_ended": EndCondition(),
        "transactions_failing": EndCondition(by=("transactions_recovered",)),
        "read_back_waits": EndCondition(by=("read_back_done",)),
        "read_back_refused": EndCondition(by=("read_back_done",)),
        "journal_full": EndCondition(by=("journal_available",), after=_TEN_MINUTES),
        "journal_torn": EndCondition(after=_HOUR),
        "journal_damaged": EndCondition(),
        "store_replaced": EndCondition(),
        "dlq_over_bound": EndCondition(by=("dlq_within_bound",)),
        "weak_replication": EndCondition(),
        "telemetry_lost": EndCondition(after=_HOUR),
        "ledger_lost": EndCondition(after=_HOUR),
    }
)
"""The kinds of notices that become alerts. Each is also the name of a rule."""


@dataclass(slots=True)
class _Episode:
    notice: Notice
    began_at: float
    count: int = 1
    made: tuple[int, Alert] | None = None  # the alert of this count: masking its text once a second is slow


class ReportedAlerts(Hook):
    """A hook that turns notices into alerts. Safe from any thread, and bounded; `firing` is called once a second.

    The subject of an alert is the notice's `details["subject"]`, or else its producer. `details["ends"]` lists pairs of
    kind and subject that end with the notice; `details["advice"]` replaces the advice of the rule.
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
        """Return the firing alerts, with `producer` as the default subject. After `closed`, only lasting ones are left."""
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
            if len(self._episodes) >= _CAPACITY:  # drop the oldest that is not lasting, or else the oldest
                temporary = (kind for kind in self._episodes if not RULES[kind[0]].lasting)
                del self._episodes[next(temporary, next(iter(self._episodes)))]
            self._episodes[key] = _Episode(notice, notice.at)
        else:
            known.notice = notice
            known.count += 1

    def _end(self, notice: Notice, subject: str) -> None:
        for kind, other_subject in notice.details.get("ends", ()):
            self._episodes.pop((kind, other_subject), None)
        for kind, end in END_CONDITIONS.items():
            if notice.kind in end.by:
                self._episodes.pop((kind, subject), None)


def _alert(kind: str, subject: str, episode: _Episode) -> Alert:
    count, made = episode.count, episode.made  # another thread may add a notice
    if made is None or made[0] != count or made[1].subject != subject:
        made = episode.made = (count, _new_alert(kind, subject, episode))
    return made[1]


def _new_alert(kind: str, subject: str, episode: _Episode) -> Alert:
    found = alert(kind, subject, episode.began_at, value=episode.count, text=episode.notice.text)
    advice = episode.notice.details.get("advice")
    return replace(found, advice=str(advice)) if advice else found
