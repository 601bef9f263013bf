"""A decision: whether people are told of an alert, and if not why."""

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
    rules: Mapping[str, AlertRule], items: Iterable[Alert], reading: StoreSnapshot
) -> list[AlertChange]:
    """What changes in who is told of what; `items` are all alerts that pend, fire, or ended undecided.

    People are told that an alert began once it fires, is not muted, and nobody looks after it yet; that it ended
    whenever they were told that it began. An alert of a rule that producers tell is told to have ended only after
    the rule's `keep_firing_for`; if it began again by then, people hear of neither: it went on.
    """
    now, before = reading.now, tuple(items)
    firing = tuple(item for item in before if item.state == "firing")
    after: dict[str, Alert] = {item.alert_id: item for item in before}
    twice = said_twice(rules, ((item.rule, item.started_at, item.alert_id) for item in firing))
    for item in firing:
        muted = _muted(rules, item, firing, twice, reading)
        after[item.alert_id] = _begun(rules, replace(item, muted_by=muted), now)
    for key in {item.key for item in before}:
        _join(rules, [item for item in after.values() if item.key == key], after, now)
    for item in before:
        if item.state == "resolved":
            after[item.alert_id] = _ended(rules, after[item.alert_id], now)
    return [AlertChange("decided", after[item.alert_id]) for item in before if after[item.alert_id] != item]


def told_of_nothing_more(reading: StoreSnapshot, item: Alert) -> bool:
    """Its producer told of it and is closed or gone, so nobody would ever say that it ended."""
    if not item.told_by or item.lasting or item.state != "firing":
        return False
    if "producers" in reading.missing:
        return False
    seen = next((seen for seen in reading.producers if seen.producer_id == item.told_by), None)
    if seen is None:
        return reading.now - item.changed_at > DAY
    return seen.closed or seen.silent > _GIVEN_UP


_GIVEN_UP = 600.0
"""A producer that was only paused, and wakes, still knows what it told."""


def _begun(rules: Mapping[str, AlertRule], item: Alert, now: float) -> Alert:
    """Told as soon as nothing is against it."""
    rule = rules.get(item.rule, _UNKNOWN)
    fired = item.fired_at if item.fired_at is not None else item.started_at
    early = isinstance(rule.condition, ReportedByProducer) and 0 <= now - fired < rule.for_
    if item.telling is not None or item.muted_by is not None or early:
        return item
    return replace(item, telling="none" if item.acknowledged_by else "begin")


def _join(rules: Mapping[str, AlertRule], same: Sequence[Alert], after: dict[str, Alert], now: float) -> None:
    """An episode that begins before people were told of the last one's end carries that one on."""
    current = next((item for item in same if item.state == "firing"), None)
    ended = [item for item in same if item.state == "resolved" and item.telling in ("begin", "joined")]
    if current is None or not ended:
        return
    last = max(ended, key=lambda item: item.started_at)
    if current.telling in (None, "begin") and not _over(rules, last, now):
        after[current.alert_id] = replace(current, telling="joined")
        for item in ended:
            after[item.alert_id] = replace(item, telling_end=False)


def _ended(rules: Mapping[str, AlertRule], item: Alert, now: float) -> Alert:
    if item.telling_end is not None:
        return item
    if item.telling in (None, "none"):
        return replace(item, telling="none", telling_end=False)
    return replace(item, telling_end=True) if _over(rules, item, now) else item


def _over(rules: Mapping[str, AlertRule], item: Alert, now: float) -> bool:
    rule = rules.get(item.rule, _UNKNOWN)
    waits = rule.keep_firing_for if isinstance(rule.condition, ReportedByProducer) else 0.0
    return not 0 <= now - (item.resolved_at or 0.0) < waits


def _muted(
    rules: Mapping[str, AlertRule],
    item: Alert,
    firing: Sequence[Alert],
    twice: Set[str],
    reading: StoreSnapshot,
) -> str | None:
    if not rules.get(item.rule, _UNKNOWN).enabled:
        return "the rule is switched off"
    for silence in reading.silences:
        if silence.covers(item, reading.now):
            return (
                f"silenced by {silence.who} until {_utc(silence.until)}: {silence.why or 'no reason given'}"
            )
    if item.alert_id in twice:
        return "another producer on this store says the same"
    for name in dict.fromkeys(other.rule for other in firing if other.key != item.key):
        if item.rule in rules.get(name, _UNKNOWN).inhibits:
            subjects = {other.subject for other in firing if other.rule == name}
            if _about(item, subjects, reading):
                return f"{name} fires and explains it"
    return None


def said_twice(rules: Mapping[str, AlertRule], firing: Iterable[tuple[str, float, str]]) -> frozenset[str]:
    """The ids of alerts that say of the store what another producer on it said before; `firing` are the rule, the
    beginning and the id of each."""
    shared = [one for one in firing if rules.get(one[0], _UNKNOWN).shared]
    first: dict[str, str] = {}
    for rule, _, alert_id in sorted(shared, key=lambda one: one[1:]):
        first.setdefault(rule, alert_id)
    return frozenset(alert_id for rule, _, alert_id in shared if first[rule] != alert_id)


def _about(item: Alert, subjects: set[str], reading: StoreSnapshot) -> bool:
    """The other alert is about the same thing, or about every producer whose messages for this topic fail."""
    if item.subject in subjects:
        return True
    writers = reading.writers(item.subject.partition("/")[0])
    return bool(writers) and writers <= subjects


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def by_key(items: Iterable[Alert]) -> dict[Key, Alert]:
    """Alerts that pend or fire, by rule and subject."""
    return {item.key: item for item in items if item.state != "resolved"}
