"""Queries for the fleet page: the producers sorted by problem, their combined delivery, jobs and audits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from producer_core.alerts.rules import RULES
from producer_core.dashboard.queries.audits import TopicAudit, audits
from producer_core.dashboard.queries.deaths import by_producer
from producer_core.dashboard.queries.jobs import JobState, jobs
from producer_core.dashboard.queries.latency import LATENCY_QUANTILES, Percentiles, percentiles
from producer_core.dashboard.queries.overview import GONE
from producer_core.dashboard.queries.throughput import throughput_span
from producer_core.dashboard.queries.urgency import urgency_of
from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetters
from producer_core.metrics.histogram import quantiles
from producer_core.store import Store

State = Literal["silent", "cut off", "alerting", "failing", "full", "well", "idle", "gone", "closed"]
"""The state of a producer, worst first: not seen although not closed; no broker connection; a firing alert; failed
messages; a nearly full queue; healthy; idle; not seen for a day; closed."""

STATES: tuple[State, ...] = (
    "silent",
    "cut off",
    "alerting",
    "failing",
    "full",
    "well",
    "idle",
    "gone",
    "closed",
)
TROUBLED: frozenset[State] = frozenset(STATES[:5])
RUNNING: frozenset[State] = frozenset(STATES[1:7])

FORGOTTEN = 86_400.0
"""Seconds without a heartbeat after which an unclosed producer is no longer reported as silent."""

_FULL = 0.9
_RECENT = 60

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Member:
    """Holds one producer.

    `dead` counts messages that failed in the range, `dead_letters` those pending in this store, `rate` is in
    acknowledged messages per second, and `found` holds the latency percentiles as LATENCY_QUANTILES.
    """

    producer_id: str
    name: str
    host: str
    pid: int
    version: str
    cluster_id: str
    delivery: str
    started_at: float
    seen_at: float
    closed_at: float | None
    connected: bool
    connection_error: str | None
    pending: int
    fill: float
    memory: int
    acknowledged: int
    dead: int
    rate: float
    found: tuple[float | None, ...]
    dead_letters: int
    alerts: tuple[tuple[str, str], ...]
    state: State

    @property
    def error_rate(self) -> float | None:
        return self.dead / (self.dead + self.acknowledged) if self.dead + self.acknowledged else None

    @property
    def p99(self) -> float | None:
        return self.found[LATENCY_QUANTILES.index(0.99)]

    @property
    def troubled(self) -> bool:
        return self.state in TROUBLED


@dataclass(frozen=True)
class Fleet:
    """Holds everything the fleet page shows, as of `now`; `known` and `known_hosts` count every producer of the store."""

    now: float
    window: str
    since: int
    step: int
    members: tuple[Member, ...]
    known: int
    known_hosts: int
    acknowledged: int
    dead: int
    rate: float
    found: tuple[float | None, ...]
    percentiles: tuple[Percentiles, ...]
    jobs: tuple[JobState, ...]
    audits: tuple[TopicAudit, ...]
    seen_at: float | None

    @property
    def states(self) -> Mapping[State, int]:
        return Counter(member.state for member in self.members)

    @property
    def running(self) -> int:
        return sum(member.state in RUNNING for member in self.members)

    @property
    def troubled(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.troubled)

    @property
    def hosts(self) -> int:
        """Return the number of hosts with a running producer."""
        return len({member.host for member in self.members if member.state in RUNNING})

    @property
    def versions(self) -> Mapping[str, int]:
        """Count the running producers by version, most frequent first."""
        return dict(
            Counter(member.version for member in self.members if member.state in RUNNING).most_common()
        )

    @property
    def error_rate(self) -> float | None:
        return self.dead / (self.dead + self.acknowledged) if self.dead + self.acknowledged else None

    @property
    def pending(self) -> int:
        """Return the pending messages of running producers, and of silent ones, whose messages may be lost."""
        return sum(member.pending for member in self.members if member.state in (*RUNNING, "silent"))

    @property
    def dead_letters(self) -> int:
        return sum(member.dead_letters for member in self.members)


def fleet(store: Store, view: View, now: float, *, include_all: bool = False) -> Fleet:
    """Read the fleet page from one consistent view of the store.

    It lists the producers seen in the range or within a day, or every known one with `include_all`.
    """
    since, until, step = view.since(now), view.until(now), view.step
    span = {"since": since, "until": until, **view.where}
    end = view.at(now)
    recent = throughput_span(view, now)
    seen_since = None if include_all else min(float(since), now - FORGOTTEN)
    with store.borrow():
        producers = store.rows("fleet_producers", since=seen_since, **view.origin)
        known = store.rows("fleet_known", application=view.application, cluster=view.cluster)[0]
        counts = {
            row["producer_id"]: row
            for row in store.rows("fleet_counts", recent=recent.since, recent_end=recent.until, **span)
        }
        histograms = {
            row["producer_id"]: dict(zip(row["buckets"], row["counts"], strict=True))
            for row in store.rows("fleet_latencies", **span)
        }
        windows = store.rows("latency_buckets_by_window", bucket_seconds=step, **span)
        failed = by_producer(store, view, since, until)
        dead_letters = DeadLetters(store).count_by(view.dead_letters(), "producer_id")
        alerts = _alerts(store, _firing(store, view, now), span)
        known_jobs, audited = jobs(store, now), audits(store, view.topic, now)
        seen_at = store.rows("data_age")[0]["seen_at"]
    members = tuple(
        sorted(
            (
                _member(row, counts, failed, histograms, dead_letters, alerts, recent.seconds, now)
                for row in producers
                if include_all or view.topic is None or row["producer_id"] in counts
            ),
            key=_severity,
        )
    )
    return Fleet(
        now=end,
        window=view.window,
        since=since,
        step=step,
        members=members,
        known=known["producers"],
        known_hosts=known["hosts"],
        acknowledged=sum(row["acknowledged"] for row in counts.values()),
        dead=sum(failed.values()),
        rate=sum(row["recently"] for row in counts.values()) / recent.seconds,
        found=tuple(quantiles(_together(histograms.values()), LATENCY_QUANTILES)),
        percentiles=tuple(percentiles(windows)),
        jobs=known_jobs,
        audits=audited,
        seen_at=seen_at,
    )


def state_of(
    *,
    closed: bool,
    silent: float,
    connected: bool,
    alerting: bool,
    dead: int,
    acknowledged: int,
    fill: float,
) -> State:
    """Return the worst state that applies to a producer; `silent` is the seconds since its last heartbeat."""
    if closed:
        return "closed"
    if silent > FORGOTTEN:
        return "gone"
    if silent > GONE:
        return "silent"
    if not connected:
        return "cut off"
    if alerting:
        return "alerting"
    if dead:
        return "failing"
    if fill >= _FULL:
        return "full"
    return "well" if acknowledged else "idle"


def _severity(member: Member) -> tuple[Any, ...]:
    """Return the sort key: the worst state, then the error rate, the dead letters and the latency."""
    return (
        STATES.index(member.state),
        -round(member.error_rate or 0.0, 3),
        -member.dead_letters,
        -(member.p99 or 0.0) if member.troubled else 0.0,
        -(member.closed_at or 0.0),
        member.name,
        member.host,
        member.pid,
        member.producer_id,
    )


def _member(
    row: Mapping[str, Any],
    counts: Mapping[str, Mapping[str, Any]],
    failed: Mapping[str, int],
    histograms: Mapping[str, Mapping[int, int]],
    dead_letters: Mapping[str, int],
    alerts: Mapping[str, tuple[tuple[str, str], ...]],
    seconds: int,
    now: float,
) -> Member:
    name = row["producer_id"]
    counted, dead = counts.get(name, {"acknowledged": 0, "recently": 0}), failed.get(name, 0)
    firing = alerts.get(name, ())
    fill = row["queue_messages"] / row["queue_limit"] if row["queue_limit"] else 0.0
    return Member(
        producer_id=name,
        name=row["client_id"],
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        cluster_id=row["cluster_id"],
        delivery=row["delivery"],
        started_at=row["started_at"],
        seen_at=row["seen_at"],
        closed_at=row["closed_at"],
        connected=row["connected"],
        connection_error=row["connection_error"],
        pending=row["pending"],
        fill=fill,
        memory=row["memory_bytes"],
        acknowledged=counted["acknowledged"],
        dead=dead,
        rate=counted["recently"] / seconds,
        found=tuple(quantiles(histograms.get(name, {}), LATENCY_QUANTILES)),
        dead_letters=dead_letters.get(name, 0),
        alerts=firing,
        state=state_of(
            closed=row["closed_at"] is not None,
            silent=now - row["seen_at"],
            connected=row["connected"],
            alerting=any(severity != "info" for severity, _ in firing),
            dead=dead,
            acknowledged=counted["acknowledged"],
            fill=fill,
        ),
    )


def _firing(store: Store, view: View, now: float) -> Rows:
    return store.rows("alerts_firing", now=now, application=view.application, cluster=view.cluster)


def _alerts(store: Store, firing: Rows, span: dict[str, Any]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return severity and text of the firing alerts by producer, most urgent first.

    An alert belongs to its subject, to the producer that reports it, and to the producers with failed messages on its
    topic. Suppressed alerts, alerts of severity info and store-wide alerts are left out.
    """
    grouped: dict[str, list[tuple[str, str]]] = defaultdict(list)
    failing_writers = defaultdict[str, list[str]](list)
    if firing:
        for writer in store.rows("deaths_by_writer", **span):
            failing_writers[writer["topic"]].append(writer["producer_id"])
    for row in sorted(firing, key=urgency_of):
        of_the_store = row["rule"] in RULES and RULES[row["rule"]].shared
        if row["silenced"] or row["muted_by"] or row["severity"] == "info" or of_the_store:
            continue
        about = {
            row["subject"],
            row["told_by"] or row["subject"],
            *failing_writers.get(row["subject"].partition("/")[0], ()),
        }
        for producer in about:
            grouped[producer].append((row["severity"], row["text"]))
    return {producer: tuple(found) for producer, found in grouped.items()}


def _together(histograms: Iterable[Mapping[int, int]]) -> Mapping[int, int]:
    merged = Counter[int]()
    for histogram in histograms:
        merged.update(histogram)
    return merged
