"""Queries for the overview: delivery, failures and producers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from producer_core.alerts import rule_set_of
from producer_core.alerts.rules import RULES
from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.courses import Courses, courses
from producer_core.dashboard.queries.deaths import (
    FailureCounts,
    delivered_since,
    failure_counts,
    pending_rows,
    retry_success,
)
from producer_core.dashboard.queries.firing import firing
from producer_core.dashboard.queries.latency import LATENCY_QUANTILES
from producer_core.dashboard.queries.situation import GONE as GONE
from producer_core.dashboard.queries.situation import (
    LATELY,
    MINUTE,
    BrokerOutage,
    Rows,
    Situation,
    memory,
    of_producer,
    outage,
    situation,
    stalled,
)
from producer_core.dashboard.queries.throughput import LAG, throughput_span
from producer_core.dashboard.queries.topics import Point, TopicRow, topic_rows
from producer_core.dashboard.queries.view import RANGES, View
from producer_core.kafka.classify import failure_of
from producer_core.metrics.histogram import quantiles
from producer_core.store import Store

QUANTILES = LATENCY_QUANTILES
_LIMIT = 5.0
"""Seconds to wait for the store; on a busy machine, late data is better than none."""
_FINE = 3600
"""The longest range, in seconds, for which the store still has the last minute of the previous period."""
_COUNTS = (
    "accepted", "acknowledged", "dead", "retried", "retry_successes", "duplicates", "possible_duplicates",
)  # fmt: skip


@dataclass(frozen=True)
class WindowTotals:
    """Holds the totals of a range; a ratio is None where its denominator is zero.

    `throughput` covers the last minute; for a past range, or one older than the store's minutes, it covers the whole
    range. `given_up` counts messages that failed after a retry by the producer.
    """

    accepted: int
    acknowledged: int
    dead: int
    retried: int
    retry_successes: int
    duplicates: int
    possible_duplicates: int
    latency: tuple[float | None, ...]
    throughput: float | None
    samples: int
    cut_off: int
    fill_highest: float
    given_up: int = 0

    @property
    def known(self) -> bool:
        """Return whether the range has messages or client statistics."""
        return bool(self.accepted or self.acknowledged or self.dead or self.samples)

    @property
    def error_rate(self) -> float | None:
        return share(self.dead, self.acknowledged + self.dead)

    @property
    def retry_success(self) -> float | None:
        return retry_success(self.retry_successes, self.given_up)

    @property
    def suppressed(self) -> float | None:
        """Return the share of submitted messages that deduplication suppressed."""
        return share(self.duplicates, self.accepted + self.duplicates)

    @property
    def connected(self) -> float | None:
        """Return the share of client samples in which a broker was connected."""
        return share(self.samples - self.cut_off, self.samples)


@dataclass(frozen=True)
class OverviewPage:
    """Holds everything the overview shows, as of `now`, which is the end of a past range.

    `sums` covers the range and `before` the previous period. Pending messages, dead letters, producers and alerts are
    as of `read_at`, whatever the range.
    """

    now: float
    read_at: float
    window: str
    since: int
    step: int
    situation: Situation
    sums: WindowTotals
    before: WindowTotals
    pending: int
    waiting: int
    series: tuple[Point, ...]
    percentiles: tuple[tuple[int, tuple[float | None, ...]], ...]
    topics: tuple[TopicRow, ...]
    causes: tuple[Cause, ...]
    dead_by_topic: Mapping[str, int]
    dead_by_code: Mapping[str, int]
    dead_by_verdict: Mapping[str, int]
    dead_total: int
    alerts: tuple[Mapping[str, Any], ...]
    producers: tuple[Mapping[str, Any], ...]
    memory: tuple[int, int | None]
    seen_at: float | None
    missing: tuple[int, int] = (0, 0)
    """The number of missing statistics windows, and of the producers that they belong to."""

    @property
    def begin(self) -> int:
        """Return the beginning of the charts: the first data of a store that is younger than the range."""
        if self.window not in RANGES or self.before.known or not self.series:
            return self.since
        return max(self.since, min(min(point.at for point in self.series), int(self.now) - MINUTE))

    @property
    def courses(self) -> Courses:
        """Return the values over the charts' time for the sparklines of the tiles."""
        begin = self.begin // self.step * self.step
        return courses(self.series, dict(self.percentiles), since=begin, until=self.now, step=self.step)

    @property
    def error_rate(self) -> float | None:
        return self.sums.error_rate

    @property
    def throughput(self) -> float:
        return self.sums.throughput or 0.0

    @property
    def latency(self) -> tuple[float | None, ...]:
        """Return p50, p95 and p99."""
        return self.sums.latency[:3]


def earlier(store: Store, view: View, now: float) -> WindowTotals:
    """Return the previous period; its throughput is the mean where the store no longer has its last minute."""
    since, until = view.before(now)
    with store.borrow(limit=_LIMIT):
        failed, histogram = (
            failure_counts(store, view, since, until),
            _histogram(store, view, since, until),
        )
        known = _sums(store, view, since, until, None, histogram, failed)
        if view.seconds > _FINE or view.over(now):
            pace = share(known.acknowledged, until - since)
            return replace(known, throughput=pace if known.accepted else None)
        last = _total(_minute(store, view, until), view)
    return replace(known, throughput=last["acknowledged"] / last["seconds"] if known.accepted else None)


def overview(store: Store, view: View | str, now: float, before: WindowTotals | None = None) -> OverviewPage:
    """Read the overview from one consistent view of the store; `view` may be the name of a time range.

    `before` is a recent result of `earlier`, which changes slowly and need not be read on every refresh.
    """
    view = View(view) if isinstance(view, str) else view
    at, since, until = view.at(now), view.since(now), view.until(now)
    span = {"since": since, "until": until, **view.where}
    with store.borrow(limit=_LIMIT):
        lately = _minute(store, view, int(at) - (0 if view.over(now) else LAG))
        last = _total(lately, view)
        pace = _pace(store, view, now, lately)
        before = before or earlier(store, view, now)
        series = [_point(row) for row in store.rows("series", bucket=view.step, **span)]
        histograms = store.rows("latency_histograms", bucket_seconds=view.step, **span)
        failed = failure_counts(store, view, since, until)
        sums = _sums(
            store,
            view,
            since,
            until,
            sum(pace.values()),
            _histogram(store, view, since, until),
            failed,
        )
        by_topic = store.rows("latency_buckets_by_topic", since=since, until=until, **view.origin)
        waiting = pending_rows(store, view)
        producers = of_producer(_producers(store, view, now), view.producer)
        alerts = store.rows("alerts_firing", now=now, application=view.application, cluster=view.cluster)
        seen_at = store.rows("data_age")[0]["seen_at"]
        since_then = {} if view.over(now) else delivered_since(store, view, failed.last_by_topic)
        cut_off = None if view.over(now) else _outage(store, view, now)
        missing = store.rows("overview_missing", since=now - 86_400, **view.origin)[0]
        still = stalled(producers, last, now) and not _just_resumed(store, view, now)
    running = [row for row in producers if row["closed_at"] is None]
    dead_by_topic = _counted(waiting, "topic")
    dead, causes = sum(dead_by_topic.values()), _causes(failed.rows)
    by_now = {row["topic"]: (row["acknowledged"], row["dead"]) for row in lately}
    topics = topic_rows(series, by_topic, causes, dead_by_topic, failed, by_now, since_then, pace, view, now)
    return OverviewPage(
        now=at,
        read_at=now,
        window=view.window,
        since=since,
        step=view.step,
        situation=replace(
            situation(view, sums.acknowledged, failed, still, topics, causes, producers, dead, cut_off, now),
            latest_data_ago=None if seen_at is None else max(0.0, now - seen_at),
        ),
        sums=sums,
        before=before,
        pending=sum(row["pending"] for row in running),
        waiting=sum(row["waiting_retry"] for row in running),
        series=tuple(series),
        percentiles=tuple(_percentiles(histograms)),
        topics=topics,
        causes=causes,
        dead_by_topic=dead_by_topic,
        dead_by_code=_counted(waiting, "code"),
        dead_by_verdict=_counted(waiting, "verdict"),
        dead_total=dead,
        # An alert covers all producers, so the recovery of some producers does not mark it.
        alerts=firing(
            alerts,
            dead,
            set() if view.origin_is_filtered else {row.topic for row in topics if row.recovered},
            view,
            rule_set_of(store).rules if alerts else RULES,
        ),
        producers=tuple(producers),
        memory=memory(running, now),
        seen_at=seen_at,
        missing=(missing["windows"], missing["producers"]),
    )


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


# ranges


def _histogram(store: Store, view: View, since: int, until: int | None) -> dict[int, int]:
    rows = store.rows("latency_buckets", since=since, until=until, **view.where)
    return {row["bucket"]: row["count"] for row in rows}


def _sums(
    store: Store,
    view: View,
    since: int,
    until: int | None,
    throughput: float | None,
    histogram: Mapping[int, int],
    failed: FailureCounts,
) -> WindowTotals:
    totals = store.rows("totals", since=since, until=until, **view.where)[0]
    clients = store.rows("overview_clients", since=since, until=until, **view.origin)[0]
    return WindowTotals(
        **{**{name: totals[name] for name in _COUNTS}, "dead": failed.total},
        latency=tuple(quantiles(histogram, QUANTILES)),
        throughput=throughput if totals["accepted"] or totals["acknowledged"] else None,
        samples=clients["samples"],
        cut_off=clients["cut_off"],
        fill_highest=clients["fill_highest"],
        given_up=failed.retried,
    )


def _minute(store: Store, view: View, until: int) -> Rows:
    """Return the totals by topic of the minute before a moment, or of the whole range where that is shorter."""
    since = until - min(MINUTE, view.seconds)
    rows = store.rows("totals_by_topic", since=since, until=until, **view.origin)
    return [row for row in rows if view.topic in (None, row["topic"])]


def _pace(store: Store, view: View, now: float, lately: Rows) -> dict[str, float]:
    """Return acknowledged messages per second by topic; `lately` is the last minute, which a past range does not use."""
    span = throughput_span(view, now)
    if view.over(now):
        found = store.rows("totals_by_topic", since=span.since, until=span.until, **view.origin)
        lately = [row for row in found if view.topic in (None, row["topic"])]
    return {row["topic"]: row["acknowledged"] / span.seconds for row in lately}


def _total(rows: Rows, view: View) -> dict[str, Any]:
    """Return the totals of a minute over all topics, and its seconds."""
    return {
        "acknowledged": sum(row["acknowledged"] for row in rows),
        "dead": sum(row["dead"] for row in rows),
        "seconds": min(MINUTE, view.seconds),
    }


def _outage(store: Store, view: View, now: float) -> BrokerOutage | None:
    since = max(view.since(now), int(now - LATELY))
    found = outage(store.rows("cut_off_times", since=since, **view.origin), now)
    if found is None:
        return None
    after = store.rows("totals", since=int(found.until), **view.where)[0]
    return found._replace(delivered=after["acknowledged"])


def _just_resumed(store: Store, view: View, now: float) -> bool:
    """Return whether every message of the last minute was accepted within its last third, after an idle period."""
    begin, moment = int(now) - MINUTE, int(now) - MINUTE // 3
    older = store.rows("totals", since=begin, until=moment, **view.where)[0]["accepted"]
    return not older and store.rows("totals", since=moment, **view.where)[0]["accepted"] > 0


def _point(row: Mapping[str, Any]) -> Point:
    return Point(
        row["window_start"], row["seconds"], row["topic"], row["acknowledged"], row["dead"], row["bytes"]
    )


def _percentiles(histograms: Rows) -> Iterable[tuple[int, tuple[float | None, ...]]]:
    for row in histograms:
        counts = dict(zip(row["buckets"], row["counts"], strict=True))
        yield row["window_start"], tuple(quantiles(counts, QUANTILES))


def _producers(store: Store, view: View, now: float) -> list[dict[str, Any]]:
    return store.rows("producers", since=now - 86_400, application=view.application, cluster=view.cluster)


# failures and dead letters


def _causes(rows: Rows) -> tuple[Cause, ...]:
    """Merge the counts by topic and meaning, because codes with one meaning are one cause; most pending comes first."""
    merged: dict[tuple[str, str], Cause] = {}
    for row in rows:
        meaning = failure_of(row["code"]).meaning
        known = merged.get((row["topic"], meaning))
        merged[row["topic"], meaning] = (
            Cause(row["topic"], meaning, row["count"], row["fingerprint"], row["waiting"], row["last"])
            if known is None
            else known._replace(
                dead=known.dead + row["count"],
                waiting=known.left + row["waiting"],
                last=max(known.last, row["last"]),
            )
        )
    return tuple(
        sorted(merged.values(), key=lambda cause: (-cause.left, -cause.dead, cause.topic, cause.meaning))
    )


def _counted(rows: Rows, name: str) -> dict[str, int]:
    """Sum the counts by a column, largest first."""
    counts = Counter[str]()
    for row in rows:
        counts[row[name]] += row["count"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
