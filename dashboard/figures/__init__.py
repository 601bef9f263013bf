"""The figures: values in, Plotly figures out; nothing else is read and nothing is invented."""

from dashboard.figures.latency import heat, percentiles, rtt_by_broker, spent
from dashboard.figures.overview import error_rate, latency, throughput, waiting

__all__ = [
    "error_rate",
    "heat",
    "latency",
    "percentiles",
    "rtt_by_broker",
    "spent",
    "throughput",
    "waiting",
]
