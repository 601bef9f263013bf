"""The overview: how delivery goes, what fails and who sends, in one visit to the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from producer_core.alerts import rule_set_of
from producer_core.alerts.rules import RULES
from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.deaths import Deaths, deaths, delivered_since, retry_success
from producer_core.dashboard.queries.firing import firing
from producer_core.dashboard.queries.latency import LATENCY_QUANTILES
from producer_core.dashboard.queries.situation import GONE as GONE
from producer_core.dashboard.queries.situation import (
    LATELY,
    MINUTE,
    BrokerOutage,
    Rows,
    Situation,
    chosen_ones,
    memory,
    outage,
    situation,
    stalled,
)
from producer_core.dashboard.queries.topics import Point, TopicRow, topic_rows
from producer_core.dashboard.queries.view import View
from producer_core.kafka.classify import failure_of
from producer_core.metrics.histogram import quantiles
from producer_core.store import Store

QUANTILES = LATENCY_QUANTILES
_LAG = 2
"""Seconds until what a producer counts is in the store."""
_LIMIT = 5.0
"""Seconds until a look is given up: on a busy machine a late picture is better than none."""
_FINE = 3600
"""Up to so long a range the store still knows the single minutes of the same time before."""
_COUNTS = (
    "accepted", "acknowledged", "dead", "retried", "retry_successes", "duplicates", "possible_duplicates",
)  # fmt: skip


@dataclass(frozen=True)
class WindowTotals:
    """A range in numbers; a share is None where there is nothing to take it of.

    `throughput` is of the last minute; of a range that is over, or longer ago than the store keeps single minutes, of the
    whole range. `given_up` were sent
    again by us and died all the same.
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
        """Whether anything was sent or heard."""
        return bool(self.accepted or self.acknowledged or self.dead or self.samples)

    @property
    def error_rate(self) -> float | None:
        return share(self.dead, self.acknowledged + self.dead)

    @property
    def retry_success(self) -> float | None:
        return retry_success(self.retry_successes, self.given_up)

    @property
    def suppressed(self) -> float | None:
        """Messages that de-duplication kept from being sent twice, of all that were given to us."""
        return share(self.duplicates, self.accepted + self.duplicates)

    @property
    def connected(self) -> float | None:
        """The share of looks at which a broker was connected, of those that clients told us about."""
        return share(self.samples - self.cut_off, self.samples)


@dataclass(frozen=True)
class OverviewPage:
    """Everything the overview shows, as of `now`, which is the end of a range that is over.

    `sums` are of the range, `before` of the same time before it. What waits, the producers and the alerts are of the
    moment when it was read, `read_at`, whatever the range.
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
    """Windows that have not come, and of how many producers."""

    @property
    def error_rate(self) -> float | None:
        return self.sums.error_rate

    @property
    def throughput(self) -> float:
        return self.sums.throughput or 0.0

    @property
    def latency(self) -> tuple[float | None, ...]:
        """p50, p95 and p99."""
        return self.sums.latency[:3]


def earlier(store: Store, view: View, now: float) -> WindowTotals:
    """The same time before: its last minute too, or its mean where the store no longer knows single minutes."""
    since, until = view.before(now)
    with store.borrow(limit=_LIMIT):
        died, histogram = deaths(store, view, since, until), _whole(store, view, since, until)
        known = _sums(store, view, since, until, None, histogram, died)
        if view.seconds > _FINE or view.over(now):
            return replace(known, throughput=share(known.acknowledged, until - since))
        last = _together(_minute(store, view, until), view)
    return replace(known, throughput=last["acknowledged"] / last["seconds"] if known.accepted else None)


def overview(store: Store, view: View | str, now: float, before: WindowTotals | None = None) -> OverviewPage:
    """One consistent look at the store; `view` may be the name of a time range.

    `before` is what `earlier` said a few seconds ago: it hardly changes, and need not be read with every look.
    """
    view = View(view) if isinstance(view, str) else view
    at, since, until = view.at(now), view.since(now), view.until(now)
    span = {"since": since, "until": until, **view.where}
    of_producer = {"producer": view.producer}
    with store.borrow(limit=_LIMIT):
        lately = _minute(store, view, int(at) - (0 if view.over(now) else _LAG))
        last = _together(lately, view)
        pace = _pace(store, view, now, lately, last["seconds"])
        before = before or earlier(store, view, now)
        series = [_point(row) for row in store.rows("series", bucket=view.step, **span)]
        histograms = store.rows("latency_histograms", bucket_seconds=view.step, **span)
        died = deaths(store, view, since, until)
        sums = _sums(
            store,
            view,
            since,
            until,
            sum(pace.values()),
            _whole(store, view, since, until),
            died,
        )
        by_topic = store.rows("latency_buckets_by_topic", since=since, until=until, **of_producer)
        waiting = _waiting(store, view)
        producers = chosen_ones(store.rows("producers", since=now - 86_400), view.producer)
        alerts = store.rows("alerts_firing", now=now)
        seen_at = store.rows("data_age")[0]["seen_at"]
        since_then = {} if view.over(now) else delivered_since(store, view, died.lasts)
        cut_off = None if view.over(now) else _outage(store, view, now)
        missing = store.rows("overview_missing", since=now - 86_400, producer=view.producer)[0]
        still = stalled(producers, last, now) and not _fresh(store, view, now)
    running = [row for row in producers if row["closed_at"] is None]
    dead_by_topic = _counted(waiting, "topic")
    dead, causes = sum(dead_by_topic.values()), _causes(died.rows)
    by_now = {row["topic"]: (row["acknowledged"], row["dead"]) for row in lately}
    topics = topic_rows(series, by_topic, causes, dead_by_topic, died, by_now, since_then, pace, view, now)
    return OverviewPage(
        now=at,
        read_at=now,
        window=view.window,
        since=since,
        step=view.step,
        situation=situation(
            view,
            sums.acknowledged,
            died,
            still,
            topics,
            causes,
            producers,
            dead,
            cut_off,
            now,
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
        # What is seen of one producer says nothing of the others, and an alert is about all.
        alerts=firing(
            alerts,
            dead,
            set() if view.producer else {row.topic for row in topics if row.recovered},
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


def _whole(store: Store, view: View, since: int, until: int | None) -> dict[int, int]:
    rows = store.rows("latency_buckets", since=since, until=until, **view.where)
    return {row["bucket"]: row["count"] for row in rows}


def _sums(
    store: Store,
    view: View,
    since: int,
    until: int | None,
    throughput: float | None,
    histogram: Mapping[int, int],
    died: Deaths,
) -> WindowTotals:
    totals = store.rows("totals", since=since, until=until, **view.where)[0]
    clients = store.rows("overview_clients", since=since, until=until, producer=view.producer)[0]
    return WindowTotals(
        **{**{name: totals[name] for name in _COUNTS}, "dead": died.total},
        latency=tuple(quantiles(histogram, QUANTILES)),
        throughput=throughput if totals["accepted"] or totals["acknowledged"] else None,
        samples=clients["samples"],
        cut_off=clients["cut_off"],
        fill_highest=clients["fill_highest"],
        given_up=died.retried,
    )


def _minute(store: Store, view: View, until: int) -> Rows:
    """The totals by topic of the last minute before a moment, or of as much of it as the range is long."""
    since = until - min(MINUTE, view.seconds)
    rows = store.rows("totals_by_topic", since=since, until=until, producer=view.producer)
    return [row for row in rows if view.topic in (None, row["topic"])]


def _pace(store: Store, view: View, now: float, lately: Rows, seconds: float) -> dict[str, float]:
    """Acknowledged a second by topic, all over the same seconds: the last minute, or a whole range that is over."""
    if view.over(now):
        since, seconds = view.since(now), view.at(now) - view.since(now)
        found = store.rows("totals_by_topic", since=since, until=view.until(now), producer=view.producer)
        lately = [row for row in found if view.topic in (None, row["topic"])]
    return {row["topic"]: row["acknowledged"] / seconds for row in lately}


def _together(rows: Rows, view: View) -> dict[str, Any]:
    """A minute of all topics, and its seconds."""
    return {
        "acknowledged": sum(row["acknowledged"] for row in rows),
        "dead": sum(row["dead"] for row in rows),
        "seconds": min(MINUTE, view.seconds),
    }


def _outage(store: Store, view: View, now: float) -> BrokerOutage | None:
    since = max(view.since(now), int(now - LATELY))
    found = outage(store.rows("cut_off_times", since=since, producer=view.producer), now)
    if found is None:
        return None
    after = store.rows("totals", since=int(found.until), **view.where)[0]
    return found._replace(delivered=after["acknowledged"])


def _fresh(store: Store, view: View, now: float) -> bool:
    """Whether all that was accepted in the last minute was accepted a moment ago: the first after a quiet time."""
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


# what failed, and what waits


def _causes(rows: Rows) -> tuple[Cause, ...]:
    """By topic and by what it means: two codes with one meaning are one reason to a reader. What waits most comes first."""
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


def _waiting(store: Store, view: View) -> Rows:
    if view.producer is None:
        return store.rows("overview_waiting", topic=view.topic)
    return store.rows("overview_waiting_of", **view.where)


def _counted(rows: Rows, name: str) -> dict[str, int]:
    """Most first."""
    counts = Counter[str]()
    for row in rows:
        counts[row[name]] += row["count"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
