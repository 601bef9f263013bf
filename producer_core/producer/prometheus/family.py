"""Define a metric family as plain values, and convert it to a family of `prometheus_client`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.utils import floatToGoString

from producer_core.producer.prometheus.buckets import BOUNDARIES
from producer_core.producer.prometheus.definitions import FIXED, METRICS

BOUNDS = (*map(floatToGoString, BOUNDARIES), "+Inf")


class Distribution(NamedTuple):
    """A number of durations and their sum in seconds. A histogram has the cumulative count up to each of BOUNDS too."""

    total: int
    sum: float
    buckets: Sequence[int] = ()


class Family(NamedTuple):
    """The values of a metric by the values of the labels that vary. Its `METRICS` definition has the rest."""

    name: str
    values: Mapping[Any, float | Distribution]  # a key is a tuple of texts, also a named one


def label_values(name: str, varying: tuple[str, ...]) -> list[str]:
    """Return the values of all labels of a metric, in the order of its definition."""
    rest = iter(varying)
    return [FIXED[label] if label in FIXED else next(rest) for label in METRICS[name].labels]


def to_metric(family: Family) -> Metric:
    """Return the family as a collector of `prometheus_client` returns it."""
    name, values = family
    definition = METRICS[name]
    made: Any = _FAMILIES[definition.type](name, definition.help, labels=definition.labels)
    for varying, value in values.items():
        labels = label_values(name, varying)
        if not isinstance(value, Distribution):
            made.add_metric(labels, value)
        elif definition.type == "histogram":
            made.add_metric(labels, list(zip(BOUNDS, map(float, value.buckets), strict=True)), value.sum)
        else:
            made.add_metric(labels, value.total, value.sum)
    metric: Metric = made
    return metric


_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "summary": SummaryMetricFamily,
}
