"""The figures: values in, Plotly figures out; nothing else is read and nothing is invented."""

from dashboard.figures.overview import error_rate, latency, throughput, waiting

__all__ = ["error_rate", "latency", "throughput", "waiting"]
