"""The notification policy: whether notifications of an alert are sent, and the reason if they are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime

from producer_core.alerts.alert_state import Alert, AlertChange, Key
from producer_core.alerts.conditions import DAY, ReportedByProducer
from producer_core.alerts.rules import AlertRule
from producer_core.alerts.snapshot import StoreSnapshot

_UNKNOWN = AlertRule("warning", "", "")


def decide(
    rules: Mapping[str, AlertRule], items: Iterable[Alert], snapshot: StoreSnapshot
) -> list[AlertChange]:
    """Return the changed decisions. `items` are the pending, firing and undecided resolved alerts.

    The notification of an alert's beginning is sent once it fires, is not muted and is not acknowledged. The
    notification of its end is sent if that of its beginning was. For a rule that producers report, it is sent only after
    the rule's `keep_firing_for`; an alert that fires again by then continues the episode without a notification.
    """
    now, before = snapshot.now, tuple(items)
    firing = tuple(item for item in before if item.state == "firing")
    after: dict[str, Alert] = {item.alert_id: item for item in before}
    duplicates = shared_duplicates(rules, ((item.rule, item.started_at, item.alert_id) for item in firing))
    for item in firing:
        reason = _mute_reason(rules, item, firing, duplicates, snapshot)
        after[item.alert_id] = _decide_begin(rules, replace(item, muted_by=reason), now)
    for key in {item.key for item in before}:
        _join(rules, [item for item in after.values() if item.key == key], after, now)
    for item in before:
        if item.state == "resolved":
            after[item.alert_id] = _decide_end(rules, after[item.alert_id], now)
    return [AlertChange("decided", after[item.alert_id]) for item in before if after[item.alert_id] != item]


def is_orphaned(snapshot: StoreSnapshot, item: Alert) -> bool:
    """Return whether the producer that reported the alert is closed or gone, so that it cannot report the end."""
    if not item.told_by or item.lasting or item.state != "firing":
        return False
    if "producers" in snapshot.missing:
        return False
    producers = {producer.producer_id: producer for producer in snapshot.producers}
    producer = producers.get(item.told_by)
    if producer is None:
        return snapshot.now - item.changed_at > DAY
    return producer.closed or producer.silent > _ORPHANED_AFTER


_ORPHANED_AFTER = 600.0
"""Seconds of silence. A producer that was paused for less continues to report its alerts."""


def _decide_begin(rules: Mapping[str, AlertRule], item: Alert, now: float) -> Alert:
    """Decide to send the notification of the beginning unless it is muted, early or already decided."""
    rule = rules.get(item.rule, _UNKNOWN)
    fired = item.fired_at if item.fired_at is not None else item.started_at
    early = isinstance(rule.condition, ReportedByProducer) and 0 <= now - fired < rule.for_
    if item.telling is not None or item.muted_by is not None or early:
        return item
    return replace(item, telling="none" if item.acknowledged_by else "begin")


def _join(rules: Mapping[str, AlertRule], same: Sequence[Alert], after: dict[str, Alert], now: float) -> None:
    """Let an episode continue the last one if no notification of the end of that one has been sent yet."""
    current = next((item for item in same if item.state == "firing"), None)
    ended = [item for item in same if item.state == "resolved" and item.telling in ("begin", "joined")]
    if current is None or not ended:
        return
    last = max(ended, key=lambda item: item.started_at)
    if current.telling in (None, "begin") and not _is_over(rules, last, now):
        after[current.alert_id] = replace(current, telling="joined")
        for item in ended:
            after[item.alert_id] = replace(item, telling_end=False)


def _decide_end(rules: Mapping[str, AlertRule], item: Alert, now: float) -> Alert:
    if item.telling_end is not None:
        return item
    if item.telling in (None, "none"):
        return replace(item, telling="none", telling_end=False)
    return replace(item, telling_end=True) if _is_over(rules, item, now) else item


def _is_over(rules: Mapping[str, AlertRule], item: Alert, now: float) -> bool:
    rule = rules.get(item.rule, _UNKNOWN)
    delay = rule.keep_firing_for if isinstance(rule.condition, ReportedByProducer) else 0.0
    return not 0 <= now - (item.resolved_at or 0.0) < delay


def _mute_reason(
    rules: Mapping[str, AlertRule],
    item: Alert,
    firing: Sequence[Alert],
    duplicates: Set[str],
    snapshot: StoreSnapshot,
) -> str | None:
    if not rules.get(item.rule, _UNKNOWN).enabled:
        return "the rule is disabled"
    for silence in snapshot.silences:
        if silence.covers(item, snapshot.now):
            return (
                f"silenced by {silence.who} until {_utc(silence.until)}: {silence.why or 'no reason given'}"
            )
    if item.alert_id in duplicates:
        return "another producer on this store reports the same alert"
    for name in dict.fromkeys(other.rule for other in firing if other.key != item.key):
        if item.rule in rules.get(name, _UNKNOWN).inhibits:
            subjects = {other.subject for other in firing if other.rule == name}
            if _is_covered(item, subjects, snapshot):
                return f"inhibited by {name}"
    return None


def shared_duplicates(
    rules: Mapping[str, AlertRule], firing: Iterable[tuple[str, float, str]]
) -> frozenset[str]:
    """Return the ids of alerts about the store that another producer reported first.

    `firing` contains the rule, the start and the id of each alert.
    """
    shared = [item for item in firing if rules.get(item[0], _UNKNOWN).shared]
    first: dict[str, str] = {}
    for rule, _, alert_id in sorted(shared, key=lambda item: item[1:]):
        first.setdefault(rule, alert_id)
    return frozenset(alert_id for rule, _, alert_id in shared if first[rule] != alert_id)


def _is_covered(item: Alert, subjects: set[str], snapshot: StoreSnapshot) -> bool:
    """Return whether `subjects` contain this subject, or every producer whose messages for this topic fail."""
    if item.subject in subjects:
        return True
    writers = snapshot.writers(item.subject.partition("/")[0])
    return bool(writers) and writers <= subjects


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def by_key(items: Iterable[Alert]) -> dict[Key, Alert]:
    """Return the pending and firing alerts by rule and subject."""
    return {item.key: item for item in items if item.state != "resolved"}
