"""Small charts of the key figures as values with axes, for a notebook, which draws them itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from producer_core.dashboard.charts.chart import powers_of_ten
from producer_core.dashboard.charts.lines import (
    NO_ERROR_RATE,
    NO_LATENCY,
    NO_THROUGHPUT,
    ChartLine,
    error_rate_lines,
    latency_lines,
    throughput_lines,
)
from producer_core.dashboard.charts.overview import lines_of
from producer_core.dashboard.charts.tile import Tile, key_tiles
from producer_core.dashboard.queries import OverviewPage
from producer_core.dashboard.wording import NumberChange, compact, milliseconds, short
from producer_core.producer.chart_selection import Chart

Unit = Literal["rate", "percent", "milliseconds"]

_TICKS = 3
"""The approximate number of labels of a linear axis."""
_DECADES = 4
"""The number of powers of ten from which on a logarithmic axis labels every second one."""
_LEAST: dict[Unit, float] = {"rate": 1.0, "percent": 5.0}
"""The lowest maximum of a linear axis, so that small values do not look large."""


@dataclass(frozen=True)
class Axis:
    """Holds the range of an axis and its labelled ticks; `log` is set for a logarithmic one."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class SmallChart:
    """Holds a chart of one key figure; `name` is the one of `ChartSelection`.

    `value` is the figure now and `change` its change since the previous period, with a tone (better, worse or empty).
    Each line has a text in `legend`. `course` has the figure over the range, over all topics, as a share, a rate or
    seconds. `empty` replaces the lines where none has a value.
    """

    name: Chart
    title: str
    value: str
    change: str
    tone: str
    unit: Unit
    lines: tuple[ChartLine, ...]
    legend: tuple[str, ...]
    axis: Axis
    course: tuple[float | None, ...]
    empty: str


def small_charts(page: OverviewPage) -> tuple[SmallChart, ...]:
    """Return throughput, error rate and latency percentiles, with the words and the colors of the overview."""
    tiles, lines = {tile.label: _tile(tile, page) for tile in key_tiles(page)}, lines_of(page)
    percentiles = latency_lines(lines)
    latencies = [
        f"{line.name} {milliseconds(value)}"
        for line, value in zip(percentiles, page.sums.latency, strict=True)
    ]
    return (
        _by_topic("throughput", tiles["Throughput"], "rate", throughput_lines(lines), NO_THROUGHPUT),
        _by_topic("error_rate", tiles["Error rate"], "percent", error_rate_lines(lines), NO_ERROR_RATE),
        _chart("latency", tiles["Latency p99"], "milliseconds", percentiles, latencies, NO_LATENCY),
    )


def _tile(tile: Tile, page: OverviewPage) -> Tile:
    """Leave out the change where the previous period has no data, as with the first messages of a notebook."""
    return tile if page.before.known else tile._replace(change=NumberChange("", "", ""))


def _by_topic(name: Chart, tile: Tile, unit: Unit, lines: Sequence[ChartLine], empty: str) -> SmallChart:
    return _chart(name, tile, unit, lines, [short(line.name) for line in lines], empty)


def _chart(
    name: Chart, tile: Tile, unit: Unit, lines: Sequence[ChartLine], legend: Sequence[str], empty: str
) -> SmallChart:
    values = [value for line in lines for value in line.values if value is not None]
    drawn = lines if values else ()
    return SmallChart(
        name=name,
        title=tile.label,
        value=tile.value,
        change=tile.change.text,
        tone=tile.change.tone,
        unit=unit,
        lines=tuple(ChartLine(line.name, line.colour, _rounded(line.values)) for line in drawn),
        legend=tuple(legend) if values else (),
        axis=_logarithmic(values) if unit == "milliseconds" else _linear(values, unit),
        course=tile.course,
        empty="" if values else empty,
    )


def _linear(values: Sequence[float], unit: Unit) -> Axis:
    high = max(_LEAST[unit], 1.08 * max(values, default=0.0))
    step = _nice(high / _TICKS)
    ticks = [place * step for place in range(math.floor(high / step) + 1)]
    labels = [f"{tick:g}%" if unit == "percent" else compact(tick) for tick in ticks]
    return Axis(0.0, high, False, tuple(zip(ticks, labels, strict=True)))


def _logarithmic(values: Sequence[float]) -> Axis:
    low, high = (round(power) for power in powers_of_ten([value for value in values if value > 0]))
    shown = range(low, high + 1, 2 if high - low >= _DECADES else 1)
    labels = [milliseconds(10.0 ** (power - 3)).replace(".0 ", " ") for power in shown]
    return Axis(
        10.0**low,
        10.0**high,
        True,
        tuple((10.0**power, label) for power, label in zip(shown, labels, strict=True)),
    )


def _nice(number: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that is not below a number."""
    power = 10.0 ** math.floor(math.log10(number))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= number)


def _rounded(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Round to four digits, because a notebook keeps the values in its file."""
    return tuple(None if value is None else float(f"{value:.4g}") for value in values)
