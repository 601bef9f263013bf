"""The evaluation of rules against a snapshot, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from producer_core._internal.plural import plural
from producer_core._internal.utc_time import utc_minute
from producer_core.alerts import evaluate_decisions
from producer_core.alerts.alert_state import Alert, alert
from producer_core.alerts.conditions import (
    METRICS,
    Absence,
    BurnRate,
    By,
    CauseReturned,
    InvalidRuleFile,
    ObjectiveBurn,
    ObjectiveMissed,
    PendingApproval,
    ReportedByProducer,
    RouteFailing,
    Threshold,
    WindowPair,
    sections_of,
    span,
)
from producer_core.alerts.rules import AlertRule
from producer_core.alerts.snapshot import DeadLetterCounts, ProducerState, StoreSnapshot, WindowSums, Writer
from producer_core.metrics.histogram import quantiles

ALL_TOPICS = "all topics"
"""The subject of an alert about the whole store."""

_STALE_AFTER = 30.0
"""Seconds of silence after which a producer's gauges are not evaluated."""

QUANTILES = {"latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99, "latency_p999": 0.999}


def evaluate_rules(rules: Mapping[str, AlertRule], snapshot: StoreSnapshot) -> list[Alert]:
    """Return every finding of the enabled rules, except those whose part of the snapshot is missing."""
    return [
        finding
        for name, rule in rules.items()
        if rule.enabled
        and not isinstance(rule.condition, ReportedByProducer)
        and not lacks_data(rule, snapshot)
        for finding in _find(name, rule, snapshot)
        if not rule.subjects or any(fnmatchcase(finding.subject, pattern) for pattern in rule.subjects)
    ]


def lacks_data(rule: AlertRule, snapshot: StoreSnapshot) -> bool:
    """Return whether the rule cannot be evaluated now. Its alerts then stay as they are."""
    return not sections_of(rule.condition).isdisjoint(snapshot.missing)


def _find(name: str, rule: AlertRule, snapshot: StoreSnapshot) -> Iterator[Alert]:
    match rule.condition:
        case Threshold() as condition:
            yield from _threshold(name, rule, condition, snapshot)
        case BurnRate() as condition:
            yield from _burn_rate(name, rule, condition, snapshot)
        case Absence(of="producer") as condition:
            yield from _gone(name, rule, condition, snapshot)
        case Absence(of="delivery") as condition:
            yield from _stalled(name, rule, condition, snapshot)
        case Absence() as condition:
            yield from _no_traffic(name, rule, condition, snapshot)
        case ObjectiveMissed() as condition:
            yield from evaluate_decisions.missed(name, rule, condition, snapshot)
        case ObjectiveBurn() as condition:
            yield from evaluate_decisions.burn(name, rule, condition, snapshot)
        case CauseReturned() as condition:
            yield from evaluate_decisions.returned(name, rule, condition, snapshot)
        case RouteFailing(after=limit):
            for route, (since, answer) in snapshot.failing_routes.items():
                if snapshot.now - since >= limit:
                    yield alert(name, route, snapshot.now, definition=rule, reason=answer)
        case PendingApproval():
            yield from _requests(name, rule, snapshot)
        case InvalidRuleFile():
            if snapshot.problem is not None:
                file, problem = snapshot.problem
                yield alert(name, file, snapshot.now, definition=rule, reason=problem)
        case ReportedByProducer():
            return


def _requests(name: str, rule: AlertRule, snapshot: StoreSnapshot) -> Iterator[Alert]:
    for request in snapshot.requests:
        if request.expires_at > snapshot.now:
            yield alert(
                name,
                request.request_id,
                snapshot.now,
                definition=rule,
                who=request.who,
                records=plural(request.records, "record"),
                reason=request.rule,
                expires=utc_minute(request.expires_at),
            )


# thresholds


def _threshold(name: str, rule: AlertRule, condition: Threshold, snapshot: StoreSnapshot) -> Iterator[Alert]:
    for subject, value, details in _measurements(condition, snapshot):
        if condition.exceeded(value):
            yield alert(
                name,
                subject,
                snapshot.now,
                definition=rule,
                value=value,
                threshold=condition.above if condition.above is not None else condition.below,
                window=span(condition.window),
                says=METRICS[condition.metric].says(value),
                **{"client": subject, **details},
            )


def _measurements(
    condition: Threshold, snapshot: StoreSnapshot
) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Return each subject with its value and further details."""
    match METRICS[condition.metric].section:
        case "sums":
            for subject, sums in grouped(snapshot.sums.get(condition.window, {}), condition.by).items():
                if _events(sums) >= condition.min_events:
                    yield subject, SUMMED[condition.metric](sums, condition.window), {}
        case "latencies":
            for subject, counts in _latencies(condition, snapshot).items():
                value = quantiles(counts, (QUANTILES[condition.metric],))[0]
                if value is not None and sum(counts.values()) >= condition.min_events:
                    yield subject, value, {}
        case "dead_letters":
            for subject, dead_letters in _dead_letters(condition, snapshot).items():
                yield (
                    subject,
                    DEAD_LETTERS[condition.metric](dead_letters, condition.window, snapshot.now),
                    {},
                )
        case _:
            for producer in snapshot.producers:
                value = GAUGES[condition.metric](producer)
                if value is not None and _alive(producer):
                    yield producer.producer_id, value, {"client": producer.client}


def grouped(sums: Mapping[Writer, WindowSums], by: By) -> dict[str, WindowSums]:
    """Return the sums by topic, by producer or of the whole store."""
    found: dict[str, WindowSums] = {}
    for writer, part in sums.items():
        subject = {"topic": writer.topic, "producer": writer.producer, "store": ALL_TOPICS}[by]
        found[subject] = found[subject].plus(part) if subject in found else part
    return found


def _latencies(condition: Threshold, snapshot: StoreSnapshot) -> dict[str, Mapping[int, int]]:
    by_topic = snapshot.latencies.get(condition.window, {})
    return dict(by_topic) if condition.by == "topic" else {ALL_TOPICS: _merged(by_topic.values())}


def _merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    merged: dict[int, int] = {}
    for counts in histograms:
        for bucket, count in counts.items():
            merged[bucket] = merged.get(bucket, 0) + count
    return merged


def _dead_letters(condition: Threshold, snapshot: StoreSnapshot) -> dict[str, DeadLetterCounts]:
    if condition.by == "topic" or not snapshot.dead_letters:
        return dict(snapshot.dead_letters)
    found = snapshot.dead_letters.values()
    new = sum(item.new.get(condition.window, 0) for item in found)
    whole = DeadLetterCounts(
        sum(item.count for item in found), min(item.oldest for item in found), {condition.window: new}
    )
    return {ALL_TOPICS: whole}


def _events(sums: WindowSums) -> int:
    return max(sums.acknowledged + sums.dead, sums.failed_attempts)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


SUMMED: Mapping[str, Callable[[WindowSums, float], float]] = {
    "error_rate": lambda sums, _: _share(sums.dead, sums.acknowledged + sums.dead),
    "attempt_failure_rate": lambda sums, _: _share(
        sums.failed_attempts, sums.acknowledged + sums.failed_attempts
    ),
    "dead": lambda sums, _: sums.dead,
    "accepted": lambda sums, _: sums.accepted,
    "acknowledged": lambda sums, _: sums.acknowledged,
    "throughput": lambda sums, window: sums.acknowledged / window,
    "retried": lambda sums, _: sums.retried,
    "duplicates": lambda sums, _: sums.duplicates,
    "possible_duplicates": lambda sums, _: sums.possible_duplicates,
    "latency_mean": lambda sums, _: _share(sums.latency_sum, sums.acknowledged),
}

DEAD_LETTERS: Mapping[str, Callable[[DeadLetterCounts, float, float], float]] = {
    "dlq_size": lambda dead_letters, _, now: dead_letters.count,
    "dlq_age": lambda dead_letters, _, now: now - dead_letters.oldest,
    "dlq_growth": lambda dead_letters, window, now: dead_letters.new.get(window, 0),
}

GAUGES: Mapping[str, Callable[[ProducerState], float | None]] = {
    "memory": lambda producer: (
        producer.memory_bytes / producer.memory_limit if producer.memory_limit else None
    ),
    "pending": lambda producer: producer.pending,
    "waiting_retry": lambda producer: producer.waiting_retry,
    "queue_fill": lambda producer: (
        producer.queue_messages / producer.queue_limit if producer.queue_limit else None
    ),
    "disconnected": lambda producer: 0.0 if producer.connected else 1.0,
}


# burn rates


def _burn_rate(name: str, rule: AlertRule, condition: BurnRate, snapshot: StoreSnapshot) -> Iterator[Alert]:
    budget = 1.0 - condition.objective
    by_window = {
        window: grouped(snapshot.sums.get(window, {}), condition.by)
        for pair in condition.pairs
        for window in (pair.long, pair.short)
    }
    subjects = dict.fromkeys(subject for found in by_window.values() for subject in found)
    for subject in subjects:
        for pair in condition.pairs:
            long, short = (by_window[w].get(subject, WindowSums()) for w in (pair.long, pair.short))
            if _burns(condition, pair, long, short, budget):
                rate = _rate(long)
                yield alert(
                    name,
                    subject,
                    snapshot.now,
                    definition=rule,
                    value=rate,
                    threshold=pair.factor * budget,
                    factor=_times(rate / budget),
                    objective=f"{condition.objective:.4g}" if budget <= 0 else f"{condition.objective:.2%}",
                    long=span(pair.long),
                    short=span(pair.short),
                )
                break


def _burns(condition: BurnRate, pair: WindowPair, long: WindowSums, short: WindowSums, budget: float) -> bool:
    return (
        long.acknowledged + long.dead >= condition.min_events
        and long.dead >= condition.min_failures
        and _rate(long) >= pair.factor * budget
        and _rate(short) >= pair.factor * budget
    )


def _times(factor: float) -> str:
    return f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"


def _rate(sums: WindowSums) -> float:
    return _share(sums.dead, sums.acknowledged + sums.dead)


# absence


def _gone(name: str, rule: AlertRule, condition: Absence, snapshot: StoreSnapshot) -> Iterator[Alert]:
    for producer in snapshot.producers:
        ended = producer.closed or producer.succeeded
        if not ended and condition.after < producer.silent < condition.lookback:
            yield alert(
                name,
                producer.producer_id,
                snapshot.now,
                definition=rule if producer.pending else _at_most_warning(rule),
                threshold=condition.after,
                seen=datetime.fromtimestamp(producer.seen_at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
                client=producer.client,
                pending=producer.pending,
            )


def _at_most_warning(rule: AlertRule) -> AlertRule:
    """Return the rule for a producer that had nothing unsettled: its end lost no message and needs no page."""
    return replace(rule, severity="warning") if rule.severity == "critical" else rule


def _stalled(name: str, rule: AlertRule, condition: Absence, snapshot: StoreSnapshot) -> Iterator[Alert]:
    settled = grouped(snapshot.sums.get(condition.after, {}), "producer")
    for producer in snapshot.producers:
        sums = settled.get(producer.producer_id, WindowSums())
        new = 0 <= snapshot.now - producer.started_at < condition.after
        if producer.pending and _alive(producer) and not new and not sums.acknowledged and not sums.dead:
            yield alert(
                name,
                producer.producer_id,
                snapshot.now,
                definition=rule,
                value=producer.pending,
                client=producer.client,
                after=span(condition.after),
            )


def _no_traffic(name: str, rule: AlertRule, condition: Absence, snapshot: StoreSnapshot) -> Iterator[Alert]:
    before = grouped(snapshot.sums.get(condition.lookback, {}), "topic")
    recent = grouped(snapshot.sums.get(condition.after, {}), "topic")
    for topic, sums in before.items():
        if sums.acknowledged and not recent.get(topic, WindowSums()).acknowledged:
            yield alert(name, topic, snapshot.now, definition=rule, value=0.0, after=span(condition.after))


def _alive(producer: ProducerState) -> bool:
    return not producer.closed and producer.silent < _STALE_AFTER
