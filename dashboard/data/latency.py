"""The latency page: percentiles, their spread, where the time goes, and what is wrong, in one visit to the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.data.view import STEPS, View
from producer_core.diagnosis import BrokerNumbers, Finding, Numbers, over_time
from producer_core.histogram import SCALE, quantiles, upper_bound
from producer_core.store import Store

LATENCY_QUANTILES = (0.5, 0.95, 0.99, 0.999)
_SLICES = 15
"""About how many slices of time are diagnosed, each on its own."""
_ROW = 2 ** (SCALE - 2)
"""Buckets of the histogram in one row of the heatmap: four rows a doubling."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Percentiles:
    """One window: `found` as LATENCY_QUANTILES, in seconds."""

    at: int
    found: tuple[float | None, ...]


@dataclass(frozen=True)
class Heat:
    """How many acknowledgements of a window took between `low` and `high` seconds, and their share of the window."""

    at: int
    low: float
    high: float
    count: int
    share: float


@dataclass(frozen=True)
class Spent:
    """Where the time of a window went, means in seconds; None where nothing was measured.

    `rest` is what the measured latency has beyond the three: retries, and the way of the report to us. `throttle` is
    part of the others: a broker that throttles answers later.
    """

    at: int
    queue: float | None
    outbuf: float | None
    rtt: float | None
    rest: float | None
    throttle: float | None


@dataclass(frozen=True)
class TopicLatency:
    topic: str
    acknowledged: int
    mean: float | None
    found: tuple[float | None, ...]


@dataclass(frozen=True)
class Latency:
    """Everything the latency page shows, as of `now`. Windows that nobody wrote are not in `written`."""

    now: float
    window: str
    since: int
    step: int
    written: frozenset[int]
    found: tuple[float | None, ...]
    percentiles: tuple[Percentiles, ...]
    heat: tuple[Heat, ...]
    spent: tuple[Spent, ...]
    topics: tuple[TopicLatency, ...]
    brokers: tuple[BrokerNumbers, ...]
    rtt_by_broker: Mapping[str, Mapping[int, float]]
    findings: tuple[Finding, ...]
    whole: Numbers
    seen_at: float | None

    @property
    def heard(self) -> bool:
        """Whether any client's statistics came in this range."""
        return self.whole.samples > 0


def latency(store: Store, view: View, now: float) -> Latency:
    """One consistent look at the store. What librdkafka says is of whole producers, whatever the topic."""
    step, since, part = view.step, view.since(now), _slice_of(view.seconds)
    producer = {"producer": view.producer}
    with store.borrow():
        buckets = store.rows("latency_buckets_by_window", since=since, bucket_seconds=step, **view.where)
        by_topic = store.rows("latency_buckets_by_topic", since=since, **producer)
        totals = store.rows("totals_by_topic", since=since, **producer)
        messages = store.rows("series", since=since, bucket=step, **view.where)
        brokers = store.rows("broker_series", since=since, bucket=step, **producer)
        clients = store.rows("client_series", since=since, bucket=step, **producer)
        deaths = store.rows("deaths_series", since=since, bucket=part, **view.where)
        seen_at = store.rows("data_age")[0]["seen_at"]
    slices = _slices(part, now, messages, clients, brokers, deaths)
    whole = _numbers(since, view.seconds, messages, clients, brokers, ())
    return Latency(
        now=now,
        window=view.window,
        since=since,
        step=step,
        written=frozenset(row["window_start"] for row in messages),
        found=tuple(quantiles(_added(buckets), LATENCY_QUANTILES)),
        percentiles=tuple(_percentiles(buckets)),
        heat=tuple(_heat(buckets)),
        spent=tuple(_spent(brokers, messages)),
        topics=tuple(_topics(totals, by_topic, view.topic)),
        brokers=whole.brokers,
        rtt_by_broker=_rtt_by_broker(brokers),
        findings=over_time(slices, now),
        whole=whole,
        seen_at=seen_at,
    )


def per_batch(numbers: Numbers) -> float | None:
    return _mean(numbers.batch_messages, numbers.batches)


def repeated(numbers: Numbers) -> float | None:
    """The share of requests that the client sent again."""
    again, requests = (_total(numbers, name) for name in ("retries", "requests"))
    return _mean(again, requests)


def connected(broker: BrokerNumbers) -> float | None:
    """The share of looks at which it was connected, of those at which it was wanted."""
    return _mean(broker.up, broker.up + broker.down)


def _total(numbers: Numbers, name: str) -> int:
    return sum(getattr(one, name) for one in numbers.brokers)


def _slice_of(seconds: int) -> int:
    return next((step for step in STEPS if seconds / step <= _SLICES), STEPS[-1])


# histograms


def _added(buckets: Rows) -> dict[int, int]:
    merged: dict[int, int] = defaultdict(int)
    for row in buckets:
        merged[row["bucket"]] += row["count"]
    return merged


def _by(buckets: Rows, name: str) -> dict[Any, dict[int, int]]:
    histograms: dict[Any, dict[int, int]] = defaultdict(dict)
    for row in buckets:
        histograms[row[name]][row["bucket"]] = row["count"]
    return histograms


def _percentiles(buckets: Rows) -> Iterable[Percentiles]:
    for at, counts in sorted(_by(buckets, "window_start").items()):
        yield Percentiles(at, tuple(quantiles(counts, LATENCY_QUANTILES)))


def _heat(buckets: Rows) -> Iterable[Heat]:
    for at, counts in sorted(_by(buckets, "window_start").items()):
        total = sum(counts.values())
        rows: dict[int, int] = defaultdict(int)
        for bucket, count in counts.items():
            rows[-(-bucket // _ROW)] += count  # bucket i ends at its bound, so rows end at theirs
        for row, count in sorted(rows.items()):
            yield Heat(at, upper_bound((row - 1) * _ROW), upper_bound(row * _ROW), count, count / total)


def _topics(totals: Rows, buckets: Rows, only: str | None) -> Iterable[TopicLatency]:
    """The slowest first."""
    histograms = _by(buckets, "topic")
    lines = [
        TopicLatency(
            row["topic"],
            row["acknowledged"],
            _mean(row["latency_sum"], row["acknowledged"]),
            tuple(quantiles(histograms.get(row["topic"], {}), LATENCY_QUANTILES)),
        )
        for row in totals
        if only in (None, row["topic"])
    ]
    return sorted(lines, key=lambda line: (-(line.found[2] or 0.0), line.topic))


# where the time goes


def _spent(brokers: Rows, messages: Rows) -> Iterable[Spent]:
    settled: dict[int, tuple[float, int]] = {}
    for row in messages:
        spent, count = settled.get(row["window_start"], (0.0, 0))
        settled[row["window_start"]] = spent + row["latency_sum"], count + row["acknowledged"]
    for at, rows in sorted(_grouped(brokers, "window_start").items()):
        parts = [_mean_of(rows, name) for name in ("queue", "outbuf", "rtt")]
        measured = _mean(*settled.get(at, (0.0, 0)))
        known = None not in (measured, *parts)
        rest = max(0.0, (measured or 0.0) - sum(part or 0.0 for part in parts)) if known else None
        yield Spent(at, parts[0], parts[1], parts[2], rest, _mean_of(rows, "throttle"))


def _rtt_by_broker(brokers: Rows) -> Mapping[str, Mapping[int, float]]:
    lines: dict[str, dict[int, float]] = defaultdict(dict)
    names = {row["broker_id"]: _numbers_of([row]).name for row in brokers}
    for row in brokers:
        if row["rtt_count"]:
            lines[names[row["broker_id"]]][row["window_start"]] = row["rtt_sum"] / row["rtt_count"]
    return lines


# slices for the diagnosis


def _slices(
    part: int, now: float, messages: Rows, clients: Rows, brokers: Rows, deaths: Rows
) -> tuple[Numbers, ...]:
    of_messages, of_clients, of_brokers = _cut(messages, part), _cut(clients, part), _cut(brokers, part)
    of_deaths = _grouped(deaths, "window_start")
    slices = []
    for at in sorted({*of_messages, *of_clients, *of_brokers}):
        rows = of_messages.get(at, []), of_clients.get(at, []), of_brokers.get(at, [])
        covered = max(part, *(row["seconds"] for row in (*rows[0], *rows[1])), 0)
        slices.append(_numbers(at, max(1.0, min(covered, now - at)), *rows, of_deaths.get(at, [])))
    return tuple(slices)


def _numbers(
    at: float, seconds: float, messages: Rows, clients: Rows, brokers: Rows, deaths: Rows
) -> Numbers:
    return Numbers(
        at=at,
        seconds=seconds,
        acknowledged=_sum(messages, "acknowledged"),
        dead=_sum(messages, "dead"),
        failed_attempts=_sum(messages, "failed_attempts"),
        retried=_sum(messages, "retried"),
        causes=tuple((row["topic"], row["code"], row["count"]) for row in deaths),
        samples=_sum(clients, "samples"),
        fill=_mean(_sum(clients, "queued_sum"), _sum(clients, "room_sum")) or 0.0,
        fill_highest=_highest(clients, "fill_highest"),
        batches=_sum(clients, "batches"),
        batch_messages=_sum(clients, "batch_messages"),
        batch_bytes=_sum(clients, "batch_bytes"),
        unpolled_highest=int(_highest(clients, "unpolled_highest")),
        late_highest=_highest(clients, "late_highest"),
        epoch_rises=_sum(clients, "epoch_rises"),
        brokers=tuple(_numbers_of(rows) for _, rows in sorted(_grouped(brokers, "broker_id").items())),
    )


def _numbers_of(rows: Rows) -> BrokerNumbers:
    """One broker's rows as one."""
    names = ("samples", "up", "down", "requests", "retries", "timeouts", "disconnects")
    counts: dict[str, Any] = {name: _sum(rows, name) for name in names}
    return BrokerNumbers(
        rows[-1]["broker_id"],
        rows[-1]["address"],
        **counts,
        answers=_sum(rows, "rtt_count"),
        queue=_mean_of(rows, "queue"),
        outbuf=_mean_of(rows, "outbuf"),
        rtt=_mean_of(rows, "rtt"),
        rtt_p99=_highest(rows, "rtt_p99"),
        throttle=_sum(rows, "throttle_sum"),
        throttle_highest=_highest(rows, "throttle_highest"),
    )


def _cut(rows: Rows, part: int) -> dict[int, list[Mapping[str, Any]]]:
    cut: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        cut[row["window_start"] // part * part].append(row)
    return cut


def _grouped(rows: Rows, name: str) -> dict[int, list[Mapping[str, Any]]]:
    grouped: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row[name]].append(row)
    return grouped


def _mean_of(rows: Rows, name: str) -> float | None:
    """Of sums and counts; never of means."""
    return _mean(_sum(rows, f"{name}_sum"), _sum(rows, f"{name}_count"))


def _mean(total: float, count: float) -> float | None:
    return total / count if count else None


def _sum(rows: Rows, name: str) -> Any:
    return sum(row[name] for row in rows)


def _highest(rows: Rows, name: str) -> float:
    return float(max((row[name] for row in rows), default=0.0))
