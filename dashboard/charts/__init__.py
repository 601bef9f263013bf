"""Plotly figures, built only from the values passed in."""

from producer_core.dashboard.charts.chart import RenderedChart, rendered
from producer_core.dashboard.charts.latency import heat, percentiles, rtt_by_broker, time_spent
from producer_core.dashboard.charts.overview import (
    error_rate,
    latency,
    lines_of,
    overview_lines,
    throughput,
    waiting,
)
from producer_core.dashboard.charts.sparkline import spark
from producer_core.dashboard.charts.tile import Tile, key_tiles, other_tiles, tiles

__all__ = [
    "RenderedChart",
    "Tile",
    "error_rate",
    "heat",
    "key_tiles",
    "latency",
    "lines_of",
    "other_tiles",
    "overview_lines",
    "percentiles",
    "rendered",
    "rtt_by_broker",
    "spark",
    "throughput",
    "tiles",
    "time_spent",
    "waiting",
]
