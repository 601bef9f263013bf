"""Compute the metric of an alert over time, as its rule evaluates it, for a chart with the threshold."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from producer_core.alerts import Alert, AlertRule
from producer_core.alerts.conditions import METRICS, MINUTE, BurnRate, By, Threshold, WindowPair, span
from producer_core.alerts.evaluate_rules import QUANTILES, SUMMED
from producer_core.alerts.snapshot import WindowSums
from producer_core.dashboard.queries.view import step_of
from producer_core.metrics.histogram import quantiles
from producer_core.store import Store

Values = tuple[tuple[int, float | None], ...]

_COLUMNS = ("accepted", "acknowledged", "dead", "failed_attempts", "retried", "duplicates", "latency_sum")
_HEALTH_CHECKS: Mapping[str, tuple[str, float]] = {
    "high_error_rate": ("error_rate", 1.0),
    "high_latency": ("latency_mean", 0.001),
}
"""The metrics of health checks with a history, and the unit of their threshold. A check covers about half a minute."""
_SURROUNDINGS = 15 * MINUTE
"""Seconds that the chart shows before the alert and after its end."""


@dataclass(frozen=True)
class AlertMetric:
    """Holds a metric over time: a line for each window that the rule evaluates, by the window's length as text.

    Times are in seconds, rates between 0 and 1. A value is None where no message was settled within the window.
    `fired_at` and `ended_at` bound the time for which the alert fires. `above`: the alert fires above the threshold.
    """

    metric: str
    since: int
    now: float
    lines: Mapping[str, Values]
    threshold: float
    above: bool
    fired_at: float
    ended_at: float


def alert_metric(store: Store, item: Alert, rule: AlertRule | None, now: float) -> AlertMetric | None:
    """Return the metric of an alert; None where the store keeps no history of it."""
    measured = _measured(item, rule)
    if measured is None:
        return None
    metric, windows, by, threshold, above = measured
    end = min(now, (item.resolved_at or now) + _SURROUNDINGS)
    begin = item.started_at - max(_SURROUNDINGS, min(windows))
    step = step_of(int(end - begin))
    since = int(begin) // step * step
    times = range(since, int(end), step)
    subject: dict[str, str | None] = {by: item.subject} if by != "store" else {}
    read = _histograms if metric in QUANTILES else _sums
    return AlertMetric(
        metric=metric,
        since=since,
        now=end,
        lines={span(window): read(store, metric, window, times, subject) for window in windows},
        threshold=threshold,
        above=above,
        fired_at=item.fired_at if item.fired_at is not None else item.started_at,
        ended_at=item.resolved_at or now,
    )


def _measured(item: Alert, rule: AlertRule | None) -> tuple[str, tuple[float, ...], By, float, bool] | None:
    """Return metric, windows, subject, threshold, and whether the alert fires above it."""
    match rule.condition if rule else None:
        case Threshold(metric=metric, window=window, by=by) as condition if _has_history(metric):
            bound = condition.above if condition.above is not None else condition.below
            return metric, (window,), by, bound or 0.0, condition.above is not None
        case BurnRate(objective=objective, by=by) as condition:
            pair, budget = _burning(item, condition), 1.0 - objective
            return "error_rate", (pair.long, pair.short), by, pair.factor * budget, True
    if item.rule in _HEALTH_CHECKS and item.threshold is not None:
        metric, unit = _HEALTH_CHECKS[item.rule]
        return metric, (MINUTE,), "producer", item.threshold * unit, True
    return None


def _has_history(metric: str) -> bool:
    """Return whether the statistics contain the metric; the store has only the present dead letters and gauges."""
    return metric in QUANTILES or (METRICS[metric].section == "sums" and metric != "possible_duplicates")


def _burning(item: Alert, condition: BurnRate) -> WindowPair:
    """Return the pair of windows whose threshold the alert exceeded."""
    budget, reached = 1.0 - condition.objective, item.threshold or 0.0
    return min(condition.pairs, key=lambda pair: abs(pair.factor * budget - reached))


def _sums(store: Store, metric: str, window: float, times: range, subject: Mapping[str, Any]) -> Values:
    rows = store.rows(
        "series", bucket=times.step, since=int(times.start - window), until=times.stop, **subject
    )
    starts = [row["window_start"] for row in rows]
    totals = list(accumulate(map(_of_row, rows), WindowSums.plus, initial=WindowSums()))
    measure = SUMMED[metric]

    def value(at: int) -> float | None:
        first, last = (bisect_left(starts, bound) for bound in (at + times.step - window, at + times.step))
        sums = WindowSums._make(a - b for a, b in zip(totals[last], totals[first], strict=True))
        settled = sums.acknowledged + sums.dead + sums.failed_attempts
        return measure(sums, window) if settled or sums.accepted else None

    return tuple((at, value(at)) for at in times)


def _of_row(row: Mapping[str, Any]) -> WindowSums:
    return WindowSums(**{name: row[name] for name in _COLUMNS})


def _histograms(store: Store, metric: str, window: float, times: range, subject: Mapping[str, Any]) -> Values:
    rows = store.rows(
        "latency_buckets_by_window", bucket_seconds=times.step, since=int(times.start - window), until=times.stop, **subject
    )  # fmt: skip
    entering, leaving = _Reader(rows), _Reader(rows)
    counts: Counter[int] = Counter()
    found = []
    for at in times:
        counts.update(entering.before(at + times.step))
        counts.subtract(leaving.before(at + times.step - window))
        positive = {bucket: count for bucket, count in counts.items() if count > 0}
        found.append((at, quantiles(positive, (QUANTILES[metric],))[0] if positive else None))
    return tuple(found)


class _Reader:
    """Reads the rows of histograms in order of time, each once."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows, self._place = rows, 0

    def before(self, moment: float) -> dict[int, int]:
        """Return the counts of the rows since the last call that begin before the moment."""
        counts: Counter[int] = Counter()
        while self._place < len(self._rows) and self._rows[self._place]["window_start"] < moment:
            counts[self._rows[self._place]["bucket"]] += self._rows[self._place]["count"]
            self._place += 1
        return counts
