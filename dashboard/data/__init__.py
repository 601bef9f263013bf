"""The data of the pages: what the store says, as frozen values; one visit to the store for each."""

from dashboard.data.letters import (
    LISTED,
    DeadLetterPage,
    Scope,
    choices,
    dead_letters,
    letter,
    scope,
)
from dashboard.data.overview import GONE, QUANTILES, Overview, Point, overview
from dashboard.data.replays import operations
from dashboard.data.view import DEFAULT, POINTS, RANGES, STEPS, View, refresh, step_of

__all__ = [
    "DEFAULT",
    "GONE",
    "LISTED",
    "POINTS",
    "QUANTILES",
    "RANGES",
    "STEPS",
    "DeadLetterPage",
    "Overview",
    "Point",
    "Scope",
    "View",
    "choices",
    "dead_letters",
    "letter",
    "operations",
    "overview",
    "refresh",
    "scope",
    "step_of",
]
