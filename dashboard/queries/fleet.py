"""The fleet: every producer the store knows, sorted by trouble, what they deliver together, its jobs and its audits."""

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
from producer_core.dashboard.queries.urgency import urgency_of
from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.metrics.histogram import quantiles
from producer_core.store import Store

State = Literal["silent", "cut off", "alerting", "failing", "full", "well", "idle", "gone", "closed"]
"""How a producer is, the worst first: not seen though not closed; no broker; an alert fires; messages die; its queue is
nearly full; well; sends nothing; not seen for a day; closed."""

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
"""Seconds after which one that was not closed and is not heard of is no news any more."""

_FULL = 0.9
_RECENT = 60

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Member:
    """One producer. `dead` messages died in the range, `dead letters` wait in this store, `rate` is acknowledged a second."""

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
    """Everything the fleet page shows, as of `now`. `known` and `known_hosts` count every producer of the store."""

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
        """Hosts of those that run."""
        return len({member.host for member in self.members if member.state in RUNNING})

    @property
    def versions(self) -> Mapping[str, int]:
        """Versions of those that run, the most frequent first."""
        return dict(
            Counter(member.version for member in self.members if member.state in RUNNING).most_common()
        )

    @property
    def error_rate(self) -> float | None:
        return self.dead / (self.dead + self.acknowledged) if self.dead + self.acknowledged else None

    @property
    def pending(self) -> int:
        """Of those that run, and of those that nobody hears of and nobody closed: it may be lost with them."""
        return sum(member.pending for member in self.members if member.state in (*RUNNING, "silent"))

    @property
    def dead_letters(self) -> int:
        return sum(member.dead_letters for member in self.members)


def fleet(store: Store, view: View, now: float, *, everybody: bool = False) -> Fleet:
    """One consistent look at the store: those seen in the range or within a day, or `everybody` it ever knew."""
    since, until, step = view.since(now), view.until(now), view.step
    span = {"since": since, "until": until, **view.where}
    end = view.at(now)
    recent = int(end) - min(_RECENT, view.seconds)
    heard = None if everybody else min(float(since), now - FORGOTTEN)
    with store.borrow():
        producers = store.rows("fleet_producers", since=heard, producer=view.producer)
        known = store.rows("fleet_known")[0]
        counts = {row["producer_id"]: row for row in store.rows("fleet_counts", recent=recent, **span)}
        histograms = {
            row["producer_id"]: dict(zip(row["buckets"], row["counts"], strict=True))
            for row in store.rows("fleet_latencies", **span)
        }
        windows = store.rows("latency_buckets_by_window", bucket_seconds=step, **span)
        died = by_producer(store, view, since, until)
        dead_letters = DeadLetters(store).count_by(
            DeadLetterFilter(topic=view.topic, producer_id=view.producer), "producer_id"
        )
        alerts = _alerts(store, store.rows("alerts_firing", now=now), span)
        known_jobs, audited = jobs(store, now), audits(store, view.topic, now)
        seen_at = store.rows("data_age")[0]["seen_at"]
    seconds = max(1, int(end) - recent)
    members = tuple(
        sorted(
            (
                _member(row, counts, died, histograms, dead_letters, alerts, seconds, now)
                for row in producers
                if everybody or view.topic is None or row["producer_id"] in counts
            ),
            key=_trouble,
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
        dead=sum(died.values()),
        rate=sum(row["recently"] for row in counts.values()) / seconds,
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
    """The worst that can be said of a producer. `silent`: seconds since it was heard of."""
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


def _trouble(member: Member) -> tuple[Any, ...]:
    """What to sort by: the worst state, then what fails most, waits most, takes longest."""
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
    died: Mapping[str, int],
    histograms: Mapping[str, Mapping[int, int]],
    dead_letters: Mapping[str, int],
    alerts: Mapping[str, tuple[tuple[str, str], ...]],
    seconds: int,
    now: float,
) -> Member:
    name = row["producer_id"]
    counted, dead = counts.get(name, {"acknowledged": 0, "recently": 0}), died.get(name, 0)
    said = alerts.get(name, ())
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
        alerts=said,
        state=state_of(
            closed=row["closed_at"] is not None,
            silent=now - row["seen_at"],
            connected=row["connected"],
            alerting=any(severity != "info" for severity, _ in said),
            dead=dead,
            acknowledged=counted["acknowledged"],
            fill=fill,
        ),
    )


def _alerts(store: Store, firing: Rows, span: dict[str, Any]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """What fires and is not silenced, by the producer that it is about or that says so, and by those whose messages died
    on the topic that it is about: severity and text, what one should read first in front.

    What is no more than news is no trouble, and what is about the whole store is none of a producer.
    """
    told: dict[str, list[tuple[str, str]]] = defaultdict(list)
    losing = defaultdict[str, list[str]](list)
    if firing:
        for death in store.rows("deaths_by_writer", **span):
            losing[death["topic"]].append(death["producer_id"])
    for row in sorted(firing, key=urgency_of):
        of_the_store = row["rule"] in RULES and RULES[row["rule"]].shared
        if row["silenced"] or row["muted_by"] or row["severity"] == "info" or of_the_store:
            continue
        about = {
            row["subject"],
            row["told_by"] or row["subject"],
            *losing.get(row["subject"].partition("/")[0], ()),
        }
        for producer in about:
            told[producer].append((row["severity"], row["text"]))
    return {producer: tuple(said) for producer, said in told.items()}


def _together(histograms: Iterable[Mapping[int, int]]) -> Mapping[int, int]:
    merged = Counter[int]()
    for histogram in histograms:
        merged.update(histogram)
    return merged
