"""The conditions of alert rules, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from producer_core._internal.time_span import DAY as DAY
from producer_core._internal.time_span import HOUR as HOUR
from producer_core._internal.time_span import MINUTE as MINUTE
from producer_core._internal.time_span import span as span

By = Literal["topic", "producer", "store"]
"""The subjects of an alert: each topic, each producer, or the whole store."""

Section = Literal["sums", "latencies", "producers", "dead_letters", "decisions", "causes", "routes"]
"""A part of a snapshot. A rule is not evaluated while its part is missing."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a threshold can compare: its section, its possible subjects, and its text in an alert.

    `one`: the text for a value of 1, where it differs. `window`: the metric is measured over a window, not at a moment.
    """

    section: Section
    by: tuple[By, ...]
    text: str
    one: str = ""
    window: bool = True

    def says(self, value: float) -> str:
        """Return the text of a value in an alert."""
        return self.one if self.one and value == 1 else self.text.format(value=value, span=span(value))


_ALL: tuple[By, ...] = ("topic", "producer", "store")
_TOPICS: tuple[By, ...] = ("topic", "store")
_PRODUCERS: tuple[By, ...] = ("producer",)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "error_rate": Metric("sums", _ALL, "{value:.2%} of messages became dead letters"),
        "attempt_failure_rate": Metric("sums", _ALL, "{value:.2%} of attempts failed"),
        "dead": Metric(
            "sums", _ALL, "{value:,.0f} messages became dead letters", "1 message became a dead letter"
        ),
        "accepted": Metric("sums", _ALL, "{value:,.0f} messages were accepted", "1 message was accepted"),
        "acknowledged": Metric(
            "sums", _ALL, "{value:,.0f} messages were acknowledged", "1 message was acknowledged"
        ),
        "throughput": Metric("sums", _ALL, "{value:,.1f} messages per second are acknowledged"),
        "retried": Metric("sums", _ALL, "{value:,.0f} messages were retried", "1 message was retried"),
        "duplicates": Metric(
            "sums", _ALL, "{value:,.0f} duplicates were suppressed", "1 duplicate was suppressed"
        ),
        "possible_duplicates": Metric(
            "sums",
            _ALL,
            "{value:,.0f} messages may be on their topic twice",
            "1 message may be on its topic twice",
        ),
        "latency_mean": Metric("sums", _ALL, "acknowledgements take {value:.3g} s on average"),
        "latency_p50": Metric("latencies", _TOPICS, "50% of acknowledgements take over {value:.3g} s"),
        "latency_p95": Metric("latencies", _TOPICS, "5% of acknowledgements take over {value:.3g} s"),
        "latency_p99": Metric("latencies", _TOPICS, "1% of acknowledgements take over {value:.3g} s"),
        "latency_p999": Metric("latencies", _TOPICS, "0.1% of acknowledgements take over {value:.3g} s"),
        "dlq_size": Metric(
            "dead_letters",
            _TOPICS,
            "{value:,.0f} dead letters are pending",
            "1 dead letter is pending",
            window=False,
        ),
        "dlq_age": Metric(
            "dead_letters", _TOPICS, "the oldest dead letter has been pending for {span}", window=False
        ),
        "dlq_growth": Metric(
            "dead_letters",
            _TOPICS,
            "{value:,.0f} new dead letters are pending",
            "1 new dead letter is pending",
        ),
        "memory": Metric(
            "producers", _PRODUCERS, "the process uses {value:.0%} of its memory limit", window=False
        ),
        "pending": Metric(
            "producers",
            _PRODUCERS,
            "{value:,.0f} messages await acknowledgement",
            "1 message awaits acknowledgement",
            window=False,
        ),
        "waiting_retry": Metric(
            "producers",
            _PRODUCERS,
            "{value:,.0f} messages await a retry",
            "1 message awaits a retry",
            window=False,
        ),
        "queue_fill": Metric(
            "producers", _PRODUCERS, "the queue of the client is {value:.0%} full", window=False
        ),
        "disconnected": Metric(
            "producers", _PRODUCERS, "the producer has no connection to the brokers", window=False
        ),
    }
)
"""The metrics of thresholds by name. Times are in seconds; rates are between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A metric above or below a limit. It never fires with fewer than `min_events` messages in the window."""

    metric: str
    above: float | None = None
    below: float | None = None
    window: float = 5 * MINUTE
    by: By = "topic"
    min_events: int = 1

    def exceeded(self, value: float) -> bool:
        return (self.above is not None and value > self.above) or (
            self.below is not None and value < self.below
        )


@dataclass(frozen=True, slots=True)
class WindowPair:
    """Two windows that must both burn the error budget at least `factor` times as fast as the objective allows."""

    long: float
    short: float
    factor: float


FAST = (WindowPair(1 * HOUR, 5 * MINUTE, 14.4), WindowPair(6 * HOUR, 30 * MINUTE, 6.0))
"""2% of a month's budget within an hour, or 5% within six hours: page an operator."""
SLOW = (WindowPair(3 * DAY, 6 * HOUR, 1.0),)
"""The whole budget within the month: an operator reviews it within the week."""


@dataclass(frozen=True, slots=True)
class BurnRate:
    """The error budget burns too fast in any of the pairs of windows (SRE workbook, chapter 5).

    On a topic with little traffic, a single failure is a large share. The long window therefore needs at least
    `min_events` messages and `min_failures` failures.
    """

    objective: float = 0.999
    pairs: tuple[WindowPair, ...] = FAST
    by: By = "topic"
    min_events: int = 20
    min_failures: int = 10


@dataclass(frozen=True, slots=True)
class Absence:
    """An expected event does not happen for `after` seconds.

    `producer`: a producer that was not closed sends no heartbeat. `delivery`: a running producer has pending messages
    and settles none. `traffic`: a topic that was written to within `lookback` receives no message.
    """

    of: Literal["producer", "delivery", "traffic"]
    after: float
    lookback: float = DAY


@dataclass(frozen=True, slots=True)
class ObjectiveMissed:
    """A topic misses its objective for decisions, and at least `min_overdue` pending dead letters are past their deadline."""

    min_overdue: int = 1


@dataclass(frozen=True, slots=True)
class ObjectiveBurn:
    """The error budget of an objective for decisions burns too fast.

    The deadlines missed in the last hour and those of the next hour, of dead letters that are still pending, use at least
    this share of the budget of four weeks.
    """

    used: float = 0.25


@dataclass(frozen=True, slots=True)
class CauseReturned:
    """Messages fail for a cause that was marked as resolved, and at least `min_pending` of them are pending."""

    min_pending: int = 1


@dataclass(frozen=True, slots=True)
class RouteFailing:
    """Notifications via a route have failed for `after` seconds."""

    after: float = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class ReportedByProducer:
    """A producer reports the beginning and the end of the alert."""


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A replay waits for the approval of a second person."""


@dataclass(frozen=True, slots=True)
class InvalidRuleFile:
    """The rules file contains mistakes and is ignored."""


Condition = (
    Threshold
    | BurnRate
    | Absence
    | ObjectiveMissed
    | ObjectiveBurn
    | CauseReturned
    | RouteFailing
    | PendingApproval
    | InvalidRuleFile
    | ReportedByProducer
)


REPORTED = ReportedByProducer()


def sections_of(condition: Condition) -> frozenset[Section]:
    """Return the parts of a snapshot that the condition needs; none for a condition that is not evaluated."""
    match condition:
        case Threshold(metric=metric):
            return frozenset({METRICS[metric].section})
        case BurnRate() | Absence(of="traffic"):
            return frozenset({"sums"})
        case Absence(of="delivery"):
            return frozenset({"producers", "sums"})
        case Absence():
            return frozenset({"producers"})
        case ObjectiveMissed() | ObjectiveBurn():
            return frozenset({"decisions"})
        case CauseReturned():
            return frozenset({"causes"})
        case RouteFailing():
            return frozenset({"routes"})
        case PendingApproval() | InvalidRuleFile() | ReportedByProducer():
            return frozenset()


def windows_of(condition: Condition) -> tuple[float, ...]:
    """Return the windows of statistics that the condition needs."""
    match condition:
        case Threshold(metric=metric, window=window) if METRICS[metric].section == "sums":
            return (window,)
        case BurnRate(pairs=pairs):
            return tuple(window for pair in pairs for window in (pair.long, pair.short))
        case Absence(of="traffic", after=after, lookback=lookback):
            return after, lookback
        case Absence(of="delivery", after=after):
            return (after,)
        case _:
            return ()


def describe(condition: Condition) -> str:
    """Return the condition as text, for a list of rules."""
    match condition:
        case Threshold(metric=metric, window=window, by=by):
            sign, bound = (">", condition.above) if condition.above is not None else ("<", condition.below)
            over = f" over {span(window)}" if METRICS[metric].window else ""
            return f"{metric} {sign} {limit(metric, bound or 0.0)}{over}, by {by}"
        case BurnRate(objective=objective, pairs=pairs, by=by):
            factors = " or at ".join(
                f"{pair.factor:g}x over both {span(pair.long)} and {span(pair.short)}" for pair in pairs
            )
            return f"error budget of {100 - objective * 100:.4g}% burns at {factors}, by {by}"
        case Absence(of=of, after=after):
            return f"no {of} for {span(after)}" if of != "producer" else f"no heartbeat for {span(after)}"
        case ObjectiveMissed(min_overdue=least):
            return f"decision objective missed and overdue dead letters >= {least}, by topic"
        case ObjectiveBurn(used=used):
            return f"{used:.0%} of the budget of a decision objective burns within the last and the next hour, by topic"
        case CauseReturned(min_pending=least):
            return f"a resolved cause is back and its pending dead letters >= {least}, by cause"
        case RouteFailing(after=after):
            return f"notifications fail for {span(after)}"
        case PendingApproval():
            return "a replay waits for an approval"
        case InvalidRuleFile():
            return "mistakes in the rules file"
        case ReportedByProducer():
            return "reported by the producer"


_SHARES = ("error_rate", "attempt_failure_rate", "memory", "queue_fill")


def limit(metric: str, bound: float) -> str:
    """Return a limit with its unit."""
    if metric == "dlq_age":
        return span(bound)
    if metric.startswith("latency_"):
        return f"{bound:g} s"
    return f"{100 * bound:.4g}%" if metric in _SHARES else f"{bound:,g}"
