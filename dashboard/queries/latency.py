"""Queries for the latency page: percentiles, their distribution, the parts of the latency, and the diagnosis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from producer_core.dashboard.queries.deaths import FailureCounts, failure_counts
from producer_core.dashboard.queries.view import View
from producer_core.diagnostics.causes import (
    LATEST_S,
    BrokerNumbers,
    CauseFinding,
    CauseInputs,
    mean,
    merged,
    over_time,
)
from producer_core.diagnostics.compression_advice import CompressionAdvice, compression_advice
from producer_core.metrics.histogram import SCALE, quantiles, upper_bound
from producer_core.store import Store

LATENCY_QUANTILES = (0.5, 0.95, 0.99, 0.999)
_MINUTE, _FINE, _RECENT = 60, 5, 10
"""Seconds: the diagnosis of the current state covers the last minute in slices of five; the broker connection is judged
by the samples of the last ten."""
_ROW = 2 ** (SCALE - 2)
"""Buckets of the histogram in one row of the heatmap; four rows cover a factor of two."""

Rows = Sequence[Mapping[str, Any]]
Connection = Literal["connected", "partly connected", "not connected", "not used", "no data"]


@dataclass(frozen=True)
class Percentiles:
    """Holds the percentiles of one window: `found` as LATENCY_QUANTILES, in seconds."""

    at: int
    found: tuple[float | None, ...]


@dataclass(frozen=True)
class Heat:
    """Counts the acknowledgements of a window that took `low` to `high` seconds, with their share of the window."""

    at: int
    low: float
    high: float
    count: int
    share: float


@dataclass(frozen=True)
class TimeSpent:
    """Splits the mean latency of a window into parts, in seconds; None where nothing was measured.

    `rest` is the measured latency beyond the three parts: retries, and the time until the delivery report is received.
    `throttle` is contained in the other parts, because a throttling broker responds later.
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
class LatencyPage:
    """Holds everything the latency page shows, as of `now`, which is the end of a past range.

    `written` has the windows in which a producer wrote statistics.
    """

    now: float
    window: str
    since: int
    step: int
    written: frozenset[int]
    found: tuple[float | None, ...]
    percentiles: tuple[Percentiles, ...]
    heat: tuple[Heat, ...]
    spent: tuple[TimeSpent, ...]
    topics: tuple[TopicLatency, ...]
    brokers: tuple[BrokerNumbers, ...]
    connections: Mapping[str, Connection]
    """The state of the connection to each broker at the end of the range, by the broker's key."""
    rtt_by_broker: Mapping[str, Mapping[int, float]]
    findings: tuple[CauseFinding, ...]
    whole: CauseInputs
    seen_at: float | None
    compression: tuple[CompressionAdvice, ...] = ()

    @property
    def has_client_stats(self) -> bool:
        """Return whether the range has statistics of any client."""
        return self.whole.samples > 0


def latency(store: Store, view: View, now: float) -> LatencyPage:
    """Read the latency page from one consistent view of the store.

    The statistics of librdkafka cover whole producers, not topics.
    """
    step, since, until = view.step, view.since(now), view.until(now)
    at, origin = view.at(now), view.origin
    with store.borrow():
        buckets = store.rows(
            "latency_buckets_by_window", since=since, until=until, bucket_seconds=step, **view.where
        )
        by_topic = store.rows("latency_buckets_by_topic", since=since, until=until, **origin)
        totals = store.rows("totals_by_topic", since=since, until=until, **origin)
        series = _slice_rows(store, view, since, until, step)
        latest = _slice_rows(store, view, max(since, int(at) - _MINUTE), until, _FINE)
        samples = _recent_samples(store, max(since, int(at) - _RECENT), until, view)
        cut_off = (
            store.rows("cut_off_times", since=since, until=until, **origin)
            if any(row["cut_off"] for row in (*series[1], *latest[1]))
            else []
        )
        died = store.rows("death_times", since=since, until=until, **view.where)
        failed = failure_counts(store, view, since, until)
        seen_at = store.rows("data_age")[0]["seen_at"]
        compression = compression_advice(store, since=since, until=until, **view.where)
    slices = _slices(step, at, failed, *series)
    findings = over_time(
        slices,
        at,
        _slices(_FINE, at, failed, *latest),
        last_seconds=_slices(1, at, failed, (), *samples, ()),
        dead=failed.total,
    )
    whole = merged(slices) if slices else CauseInputs(since, view.seconds)
    return LatencyPage(
        now=at,
        window=view.window,
        since=since,
        step=step,
        written=frozenset(row["window_start"] for row in series[0]),
        found=tuple(quantiles(_added(buckets), LATENCY_QUANTILES)),
        percentiles=tuple(percentiles(buckets)),
        heat=tuple(_heat(buckets)),
        spent=tuple(map(_spent, (one for one in slices if one.brokers))),
        topics=tuple(_topics(totals, by_topic, view.topic)),
        brokers=tuple(
            sorted(whole.brokers, key=lambda one: (one.cluster_id, one.broker_id < 0, one.broker_id))
        ),
        connections=connections(whole.brokers, *samples),
        rtt_by_broker=_rtt_by_broker(slices),
        findings=tuple(
            _with_exact_failures(_with_exact_outage(one, cut_off, at), died, at) for one in findings
        ),
        whole=whole,
        seen_at=seen_at,
        compression=tuple(compression),
    )


def _slice_rows(
    store: Store, view: View, since: int, until: int | None, step: int
) -> tuple[Rows, Rows, Rows, Rows]:
    """Return the rows of the slices: messages, client statistics, broker statistics and failed messages."""
    span = {"since": since, "until": until, "bucket": step}
    return (
        store.rows("series", **span, **view.where),
        store.rows("client_series", **span, **view.origin),
        store.rows("broker_series", **span, **view.origin),
        store.rows("deaths_series", **span, **view.where),
    )


def connections(brokers: Iterable[BrokerNumbers], clients: Rows, samples: Rows) -> Mapping[str, Connection]:
    """Return the state of each connection in the latest samples, from which the diagnosis finds that brokers are down.

    A client without any connection has none to a broker that its statistics no longer list.
    """
    newest = max((row["window_start"] for row in (*clients, *samples)), default=None)
    if newest is None:
        return {broker.key: "no data" for broker in brokers}
    latest = [row for row in samples if row["window_start"] > newest - LATEST_S]
    cut_off = sum(row["cut_off"] for row in clients if row["window_start"] > newest - LATEST_S)
    found: dict[str, Connection] = {}
    for broker in brokers:
        own = [
            row
            for row in latest
            if (row["broker_id"], row["cluster_id"]) == (broker.broker_id, broker.cluster_id)
        ]
        up, down = (sum(row[name] for row in own) for name in ("up", "down"))
        found[broker.key] = _connection(up, down or (0 if own else cut_off))
    return found


def _connection(up: int, down: int) -> Connection:
    if up:
        return "partly connected" if down else "connected"
    return "not connected" if down else "not used"


def _recent_samples(store: Store, since: int, until: int | None, view: View) -> tuple[Rows, Rows]:
    """Return the client and broker statistics of the last seconds, one row a second."""
    span = {"since": since, "until": until, "bucket": 1, **view.origin}
    return store.rows("client_series", **span), store.rows("broker_series", **span)


def _with_exact_outage(found: CauseFinding, rows: Rows, now: float) -> CauseFinding:
    """Take the start and end of a broker outage from the samples, because a slice may be longer than the outage."""
    rows = [row for row in rows if found.since <= row["window_start"] < found.until]
    if found.key != "cut-off" or not rows:
        return found
    since, until = rows[0]["window_start"], rows[-1]["window_start"] + rows[-1]["seconds"]
    lasted = sum(min(row["seconds"], row["cut_off"]) for row in rows)
    return replace(found, since=since, until=now if found.ongoing else min(until, now), lasted=lasted)


def _with_exact_failures(found: CauseFinding, rows: Rows, now: float) -> CauseFinding:
    """Take the start and end of failing messages from their dead letters, because a slice may be longer than the failures.

    They are those of the cause that the finding names. If other messages fail now, they are those of all causes.
    """
    if found.key != "failing" or not rows:
        return found
    named = [row for row in rows if (row["topic"], row["code"]) == found.named]
    if not named or (found.ongoing and named[0]["last_at"] < now - _MINUTE):
        named = list(rows)
    first, last = min(row["first_at"] for row in named), max(row["last_at"] for row in named)
    since, until = max(found.since, first), now if found.ongoing else min(last, now)
    return replace(found, since=since, until=until, lasted=min(found.lasted, max(until - since, 1.0)))


def per_batch(numbers: CauseInputs) -> float | None:
    return mean(numbers.batch_messages, numbers.batches)


def repeated(numbers: CauseInputs) -> float | None:
    """Return the share of requests that the client retried."""
    return mean(numbers.together.retries, numbers.together.requests)


def connected(broker: BrokerNumbers) -> float | None:
    """Return the share of samples in which the broker was connected, of those in which it was needed."""
    return mean(broker.up, broker.up + broker.down)


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


def percentiles(buckets: Rows) -> Iterable[Percentiles]:
    """Yield the percentiles of every window that has messages."""
    for at, counts in sorted(_by(buckets, "window_start").items()):
        yield Percentiles(at, tuple(quantiles(counts, LATENCY_QUANTILES)))


def _heat(buckets: Rows) -> Iterable[Heat]:
    for at, counts in sorted(_by(buckets, "window_start").items()):
        total = sum(counts.values())
        rows: dict[int, int] = defaultdict(int)
        for bucket, count in counts.items():
            rows[-(-bucket // _ROW)] += count  # a bucket ends at its upper bound, so a row does too
        for row, count in sorted(rows.items()):
            yield Heat(at, upper_bound((row - 1) * _ROW), upper_bound(row * _ROW), count, count / total)


def _topics(totals: Rows, buckets: Rows, only: str | None) -> Iterable[TopicLatency]:
    """Return the topics by p99, slowest first."""
    histograms = _by(buckets, "topic")
    lines = [
        TopicLatency(
            row["topic"],
            row["acknowledged"],
            mean(row["latency_sum"], row["acknowledged"]),
            tuple(quantiles(histograms.get(row["topic"], {}), LATENCY_QUANTILES)),
        )
        for row in totals
        if only in (None, row["topic"])
    ]
    return sorted(lines, key=lambda line: (-(line.found[2] or 0.0), line.topic))


# parts of the latency


def _spent(one: CauseInputs) -> TimeSpent:
    parts, measured = one.together, mean(one.latency_sum, one.acknowledged)
    known = parts.queue, parts.outbuf, parts.rtt
    rest = None if measured is None else max(0.0, measured - sum(part or 0.0 for part in known))
    return TimeSpent(int(one.at), *known, rest, parts.throttle)


def _rtt_by_broker(slices: Sequence[CauseInputs]) -> Mapping[str, Mapping[int, float]]:
    latest = {broker.key: broker for one in slices for broker in one.brokers}  # with the latest address
    several = len({broker.cluster_id for broker in latest.values()}) > 1
    names = {
        key: f"{broker.name}, cluster {broker.cluster_id}" if several else broker.name
        for key, broker in latest.items()
    }
    lines: dict[str, dict[int, float]] = defaultdict(dict)
    for one in slices:
        for broker in one.brokers:
            if broker.rtt is not None and broker.broker_id >= 0:
                lines[names[broker.key]][int(one.at)] = broker.rtt
    return lines


# slices for the diagnosis

_MESSAGES = ("acknowledged", "retried", "latency_sum")
_CLIENT = (
    "samples", "cut_off", "queued_sum", "room_sum", "batches", "batch_messages", "batch_bytes", "epoch_rises", "fill_highest",
    "unpolled_highest", "late_highest",
)  # fmt: skip
_BROKER = tuple(field.name for field in fields(BrokerNumbers))


def _slices(
    step: int,
    now: float,
    failed: FailureCounts,
    messages: Rows,
    clients: Rows,
    brokers: Rows,
    dead_letters: Rows,
) -> tuple[CauseInputs, ...]:
    """Build the slices of the diagnosis.

    Failed messages are counted by their dead letters; the statistics count them only on topics whose dead letters are
    in other stores.
    """
    of_messages, of_clients = _grouped(messages), {row["window_start"]: row for row in clients}
    of_brokers, of_dead_letters = _grouped(brokers), _grouped(dead_letters)
    slices = []
    for at in sorted({*of_messages, *of_clients, *of_brokers, *of_dead_letters}):
        settled, client = of_messages.get(at, []), of_clients.get(at)
        covered = max([step, *(row["seconds"] for row in (*settled, *([client] if client else [])))])
        counts: dict[str, Any] = {name: sum(row[name] for row in settled) for name in _MESSAGES}
        counts["dead"] = sum(row["count"] for row in of_dead_letters.get(at, [])) + sum(
            row["dead"] for row in settled if row["topic"] in failed.without_dead_letters
        )
        client_counts: dict[str, Any] = {name: client[name] for name in _CLIENT} if client else {}
        slices.append(
            CauseInputs(
                at=at,
                seconds=max(1.0, min(covered, now - at)),
                causes=tuple(
                    (row["topic"], row["code"], row["count"]) for row in of_dead_letters.get(at, [])
                ),
                brokers=tuple(
                    BrokerNumbers(**{name: row[name] for name in _BROKER}) for row in of_brokers.get(at, [])
                ),
                **counts,
                **client_counts,
            )
        )
    return tuple(slices)


def _grouped(rows: Rows) -> dict[int, list[Mapping[str, Any]]]:
    grouped: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["window_start"]].append(row)
    return grouped
