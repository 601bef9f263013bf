"""A condition: what a rule looks at, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

By = Literal["topic", "producer", "store"]
"""What an alert is about: each topic, each producer, or the whole store."""

Section = Literal["sums", "latencies", "producers", "letters", "routes"]
"""A part of a reading; a rule is not judged while its part could not be read."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that a threshold can watch: where it is read, whom it can be about, and how it is said."""

    section: Section
    by: tuple[By, ...]
    says: str
    window: bool = True


_EVERY: tuple[By, ...] = ("topic", "producer", "store")
_TOPICS: tuple[By, ...] = ("topic", "store")
_PRODUCERS: tuple[By, ...] = ("producer",)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "error_rate": Metric("sums", _EVERY, "{value:.2%} of the messages became dead letters"),
        "attempt_failure_rate": Metric("sums", _EVERY, "{value:.2%} of the attempts failed"),
        "dead": Metric("sums", _EVERY, "{value:,.0f} messages became dead letters"),
        "accepted": Metric("sums", _EVERY, "{value:,.0f} messages were accepted"),
        "acknowledged": Metric("sums", _EVERY, "{value:,.0f} messages were acknowledged"),
        "throughput": Metric("sums", _EVERY, "{value:,.1f} messages a second are acknowledged"),
        "retried": Metric("sums", _EVERY, "{value:,.0f} messages were sent again"),
        "duplicates": Metric("sums", _EVERY, "{value:,.0f} duplicates were suppressed"),
        "possible_duplicates": Metric("sums", _EVERY, "{value:,.0f} messages may be on their topic twice"),
        "latency_mean": Metric("sums", _EVERY, "acknowledgements take {value:.3g} s on average"),
        "latency_p50": Metric("latencies", _TOPICS, "half of the acknowledgements take over {value:.3g} s"),
        "latency_p95": Metric("latencies", _TOPICS, "5 % of the acknowledgements take over {value:.3g} s"),
        "latency_p99": Metric("latencies", _TOPICS, "1 % of the acknowledgements take over {value:.3g} s"),
        "latency_p999": Metric("latencies", _TOPICS, "0.1 % of the acknowledgements take over {value:.3g} s"),
        "dlq_size": Metric("letters", _TOPICS, "{value:,.0f} dead letters wait", window=False),
        "dlq_age": Metric("letters", _TOPICS, "the oldest dead letter has waited for {span}", window=False),
        "dlq_growth": Metric("letters", _TOPICS, "{value:,.0f} dead letters came and still wait"),
        "memory": Metric(
            "producers", _PRODUCERS, "the process uses {value:.0%} of the memory it may have", window=False
        ),
        "pending": Metric(
            "producers", _PRODUCERS, "{value:,.0f} messages wait for their acknowledgement", window=False
        ),
        "waiting_retry": Metric(
            "producers", _PRODUCERS, "{value:,.0f} messages wait to be sent again", window=False
        ),
        "queue_fill": Metric("producers", _PRODUCERS, "the client's queue is {value:.0%} full", window=False),
        "disconnected": Metric(
            "producers", _PRODUCERS, "the producer has no connection to the brokers", window=False
        ),
    }
)
"""What a threshold can watch, by name. Times are seconds, rates are shares between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A figure above or below a limit. With fewer than `min_events` messages in the window nothing is said."""

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
    """Both windows must burn at least `factor` times as fast as the objective allows."""

    long: float
    short: float
    factor: float


FAST = (WindowPair(1 * HOUR, 5 * MINUTE, 14.4), WindowPair(6 * HOUR, 30 * MINUTE, 6.0))
"""2 % of a month's budget within an hour, 5 % within six: somebody has to come."""
SLOW = (WindowPair(3 * DAY, 6 * HOUR, 1.0),)
"""The whole budget within the month: somebody has to look at it this week."""


@dataclass(frozen=True, slots=True)
class BurnRate:
    """The error budget is used up too fast (SRE workbook, chapter 5): any pair of windows suffices.

    In a quiet topic one failure is a large share. So the long window needs `min_events` messages and
    `min_failures` failures.
    """

    objective: float = 0.999
    pairs: tuple[WindowPair, ...] = FAST
    by: By = "topic"
    min_events: int = 20
    min_failures: int = 10


@dataclass(frozen=True, slots=True)
class Absence:
    """Something that should be there is not.

    `producer`: no sign of life from one that was not closed. `delivery`: messages of a living producer wait and none
    was settled. `traffic`: a topic that was written to within `lookback` is no longer.
    """

    of: Literal["producer", "delivery", "traffic"]
    after: float
    lookback: float = DAY


@dataclass(frozen=True, slots=True)
class RouteFailing:
    """People cannot be told over a route for so long."""

    after: float = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class ReportedByProducer:
    """A producer says itself when it begins and when it ends."""


@dataclass(frozen=True, slots=True)
class InvalidRuleFile:
    """The file of rules holds mistakes, so it does not count."""


Condition = Threshold | BurnRate | Absence | RouteFailing | InvalidRuleFile | ReportedByProducer


REPORTED = ReportedByProducer()


def sections_of(condition: Condition) -> frozenset[Section]:
    """The parts of a reading that the condition is judged by; none: it is told, not judged."""
    match condition:
        case Threshold(metric=metric):
            return frozenset({METRICS[metric].section})
        case BurnRate() | Absence(of="traffic"):
            return frozenset({"sums"})
        case Absence(of="delivery"):
            return frozenset({"producers", "sums"})
        case Absence():
            return frozenset({"producers"})
        case RouteFailing():
            return frozenset({"routes"})
        case InvalidRuleFile() | ReportedByProducer():
            return frozenset()


def windows_of(condition: Condition) -> tuple[float, ...]:
    """The windows of statistics that the condition needs."""
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


def in_words(condition: Condition) -> str:
    """The condition as a person reads it in a list of rules."""
    match condition:
        case Threshold(metric=metric, window=window, by=by):
            sign, bound = (">", condition.above) if condition.above is not None else ("<", condition.below)
            over = f" over {span(window)}" if METRICS[metric].window else ""
            return f"{metric} {sign} {limit(metric, bound or 0.0)}{over}, by {by}"
        case BurnRate(objective=objective, pairs=pairs, by=by):
            factors = ", ".join(
                f"{pair.factor:g}x in {span(pair.long)} and {span(pair.short)}" for pair in pairs
            )
            return f"error budget of {100 - objective * 100:.4g} % burns {factors}, by {by}"
        case Absence(of=of, after=after):
            return f"no {of} for {span(after)}" if of != "producer" else f"no sign of life for {span(after)}"
        case RouteFailing(after=after):
            return f"notifications fail for {span(after)}"
        case InvalidRuleFile():
            return "mistakes in the file of rules"
        case ReportedByProducer():
            return "told by the producer"


_SHARES = ("error_rate", "attempt_failure_rate", "memory", "queue_fill")


def limit(metric: str, bound: float) -> str:
    """A limit with its unit."""
    if metric == "dlq_age":
        return span(bound)
    if metric.startswith("latency_"):
        return f"{bound:g} s"
    return f"{100 * bound:.4g} %" if metric in _SHARES else f"{bound:,g}"


def span(seconds: float) -> str:
    """A length of time: `90 s`, `5 min`, `6 h`, `3 d`."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size and (seconds % size == 0 or seconds >= 3 * size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
