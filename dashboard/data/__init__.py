"""The data of the pages: what the store says, as frozen values; one visit to the store for each."""

from dashboard.data.latency import (
    LATENCY_QUANTILES,
    Heat,
    Latency,
    Percentiles,
    Spent,
    TopicLatency,
    connected,
    latency,
    per_batch,
    repeated,
)
from dashboard.data.letters import (
    LISTED,
    DeadLetterPage,
    Scope,
    choices,
    dead_letters,
    letter,
    scope,
)
from dashboard.data.overview import QUANTILES, Overview, Sums, overview
from dashboard.data.replays import operations
from dashboard.data.situation import GONE
from dashboard.data.topics import Point, TopicRow
from dashboard.data.view import DEFAULT, POINTS, RANGES, STEPS, View, chosen, refresh, step_of

__all__ = [
    "DEFAULT",
    "GONE",
    "LATENCY_QUANTILES",
    "LISTED",
    "POINTS",
    "QUANTILES",
    "RANGES",
    "STEPS",
    "DeadLetterPage",
    "Heat",
    "Latency",
    "Overview",
    "Percentiles",
    "Point",
    "Scope",
    "Spent",
    "Sums",
    "TopicLatency",
    "TopicRow",
    "View",
    "choices",
    "chosen",
    "connected",
    "dead_letters",
    "latency",
    "letter",
    "operations",
    "overview",
    "per_batch",
    "refresh",
    "repeated",
    "scope",
    "step_of",
]
