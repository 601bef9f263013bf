"""A judgement: what a reading means under the rules, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from producer_core.alerts.alert_state import Alert, alert
from producer_core.alerts.conditions import (
    METRICS,
    Absence,
    BurnRate,
    By,
    InvalidRuleFile,
    ReportedByProducer,
    RouteFailing,
    Threshold,
    WindowPair,
    sections_of,
    span,
)
from producer_core.alerts.rules import AlertRule
from producer_core.alerts.snapshot import DeadLetterCounts, LastSeen, StoreSnapshot, WindowSums, WriterState
from producer_core.metrics.histogram import quantiles

ALL_TOPICS = "all topics"
"""The subject of what is about the whole store."""

_SLOW = 30.0
"""A producer that was silent so long is not judged by figures that it no longer renews."""

_QUANTILES = {"latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99, "latency_p999": 0.999}


def judge(rules: Mapping[str, AlertRule], reading: StoreSnapshot) -> list[Alert]:
    """Every finding of the evaluated rules, those left out whose part of the reading is missing."""
    return [
        finding
        for name, rule in rules.items()
        if rule.enabled
        and not isinstance(rule.condition, ReportedByProducer)
        and not unreadable(rule, reading)
        for finding in _find(name, rule, reading)
        if not rule.subjects or any(fnmatchcase(finding.subject, pattern) for pattern in rule.subjects)
    ]


def unreadable(rule: AlertRule, reading: StoreSnapshot) -> bool:
    """The rule cannot be judged now; what it said before stays."""
    return not sections_of(rule.condition).isdisjoint(reading.missing)


def _find(name: str, rule: AlertRule, reading: StoreSnapshot) -> Iterator[Alert]:
    match rule.condition:
        case Threshold() as condition:
            yield from _threshold(name, rule, condition, reading)
        case BurnRate() as condition:
            yield from _burn_rate(name, rule, condition, reading)
        case Absence(of="producer") as condition:
            yield from _gone(name, rule, condition, reading)
        case Absence(of="delivery") as condition:
            yield from _stalled(name, rule, condition, reading)
        case Absence() as condition:
            yield from _no_traffic(name, rule, condition, reading)
        case RouteFailing(after=limit):
            for route, (since, answer) in reading.failing_routes.items():
                if reading.now - since >= limit:
                    yield alert(name, route, reading.now, words=rule, reason=answer)
        case InvalidRuleFile():
            if reading.problem is not None:
                yield alert(name, reading.problem[0], reading.now, words=rule, reason=reading.problem[1])
        case ReportedByProducer():
            return


# thresholds


def _threshold(name: str, rule: AlertRule, condition: Threshold, reading: StoreSnapshot) -> Iterator[Alert]:
    for subject, value, details in _figures(condition, reading):
        if condition.exceeded(value):
            yield alert(
                name,
                subject,
                reading.now,
                words=rule,
                value=value,
                threshold=condition.above if condition.above is not None else condition.below,
                window=span(condition.window),
                says=METRICS[condition.metric].says.format(value=value, span=span(value)),
                **{"client": subject, **details},
            )


def _figures(condition: Threshold, reading: StoreSnapshot) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Subject, value and what else is known about it."""
    match METRICS[condition.metric].section:
        case "sums":
            for subject, sums in grouped(reading.sums.get(condition.window, {}), condition.by).items():
                if _events(sums) >= condition.min_events:
                    yield subject, SUMMED[condition.metric](sums, condition.window), {}
        case "latencies":
            for subject, counts in _latencies(condition, reading).items():
                value = quantiles(counts, (_QUANTILES[condition.metric],))[0]
                if value is not None and sum(counts.values()) >= condition.min_events:
                    yield subject, value, {}
        case "letters":
            for subject, dead_letters in _dead_letters(condition, reading).items():
                yield subject, LETTERS[condition.metric](dead_letters, condition.window, reading.now), {}
        case _:
            for seen in reading.producers:
                value = GAUGES[condition.metric](seen)
                if value is not None and _alive(seen):
                    yield seen.producer_id, value, {"client": seen.client}


def grouped(sums: Mapping[WriterState, WindowSums], by: By) -> dict[str, WindowSums]:
    """Sums by what a rule is about."""
    found: dict[str, WindowSums] = {}
    for writer, part in sums.items():
        subject = {"topic": writer.topic, "producer": writer.producer, "store": ALL_TOPICS}[by]
        found[subject] = found[subject].plus(part) if subject in found else part
    return found


def _latencies(condition: Threshold, reading: StoreSnapshot) -> dict[str, Mapping[int, int]]:
    by_topic = reading.latencies.get(condition.window, {})
    return dict(by_topic) if condition.by == "topic" else {ALL_TOPICS: _merged(by_topic.values())}


def _merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    merged: dict[int, int] = {}
    for counts in histograms:
        for bucket, count in counts.items():
            merged[bucket] = merged.get(bucket, 0) + count
    return merged


def _dead_letters(condition: Threshold, reading: StoreSnapshot) -> dict[str, DeadLetterCounts]:
    if condition.by == "topic" or not reading.dead_letters:
        return dict(reading.dead_letters)
    found = reading.dead_letters.values()
    came = sum(item.came.get(condition.window, 0) for item in found)
    whole = DeadLetterCounts(
        sum(item.count for item in found), min(item.oldest for item in found), {condition.window: came}
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

LETTERS: Mapping[str, Callable[[DeadLetterCounts, float, float], float]] = {
    "dlq_size": lambda dead_letters, _, now: dead_letters.count,
    "dlq_age": lambda dead_letters, _, now: now - dead_letters.oldest,
    "dlq_growth": lambda dead_letters, window, now: dead_letters.came.get(window, 0),
}

GAUGES: Mapping[str, Callable[[LastSeen], float | None]] = {
    "memory": lambda seen: seen.memory_bytes / seen.memory_limit if seen.memory_limit else None,
    "pending": lambda seen: seen.pending,
    "waiting_retry": lambda seen: seen.waiting_retry,
    "queue_fill": lambda seen: seen.queue_messages / seen.queue_limit if seen.queue_limit else None,
    "disconnected": lambda seen: 0.0 if seen.connected else 1.0,
}


# burn rates


def _burn_rate(name: str, rule: AlertRule, condition: BurnRate, reading: StoreSnapshot) -> Iterator[Alert]:
    budget = 1.0 - condition.objective
    by_window = {
        window: grouped(reading.sums.get(window, {}), condition.by)
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
                    reading.now,
                    words=rule,
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


def _gone(name: str, rule: AlertRule, condition: Absence, reading: StoreSnapshot) -> Iterator[Alert]:
    for seen in reading.producers:
        if not seen.closed and condition.after < seen.silent < condition.lookback:
            yield alert(
                name,
                seen.producer_id,
                reading.now,
                words=rule,
                threshold=condition.after,
                seen=datetime.fromtimestamp(seen.seen_at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
                client=seen.client,
                pending=seen.pending,
            )


def _stalled(name: str, rule: AlertRule, condition: Absence, reading: StoreSnapshot) -> Iterator[Alert]:
    settled = grouped(reading.sums.get(condition.after, {}), "producer")
    for seen in reading.producers:
        sums = settled.get(seen.producer_id, WindowSums())
        young = 0 <= reading.now - seen.started_at < condition.after
        if seen.pending and _alive(seen) and not young and not sums.acknowledged and not sums.dead:
            yield alert(
                name,
                seen.producer_id,
                reading.now,
                words=rule,
                value=seen.pending,
                client=seen.client,
                after=span(condition.after),
            )


def _no_traffic(name: str, rule: AlertRule, condition: Absence, reading: StoreSnapshot) -> Iterator[Alert]:
    before = grouped(reading.sums.get(condition.lookback, {}), "topic")
    lately = grouped(reading.sums.get(condition.after, {}), "topic")
    for topic, sums in before.items():
        if sums.acknowledged and not lately.get(topic, WindowSums()).acknowledged:
            yield alert(name, topic, reading.now, words=rule, value=0.0, after=span(condition.after))


def _alive(seen: LastSeen) -> bool:
    return not seen.closed and seen.silent < _SLOW
