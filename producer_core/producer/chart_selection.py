"""The time range that is brushed in a chart of the monitor, and the rows behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

if TYPE_CHECKING:
    from producer_core._internal.dataframe import Kind
    from producer_core.store import Store

Chart = Literal["throughput", "error_rate", "latency", "causes"]

_NOTHING = "Nothing is brushed. Drag over a chart of the monitor to select a time range."
_NAMES: Mapping[Chart, str] = {"throughput": "Throughput", "error_rate": "Error rate", "latency": "Latency", "causes": "Cause"}  # fmt: skip


@dataclass(frozen=True)
class ChartSelection:
    """The brushed part of a chart: `chart` and the range [`since`, `until`), in seconds since 1970. None: nothing is brushed.

    `group` is the fingerprint of the cause whose dead letters are brushed, for the chart `causes`.
    """

    chart: Chart | None = None
    since: float | None = None
    until: float | None = None
    group: str | None = None
    _step: int = field(default=1, repr=False)
    _store: Store | None = field(default=None, repr=False, compare=False)
    _origin: Mapping[str, str | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, brush: Mapping[str, Any], store: Store, origin: Mapping[str, str | None]) -> ChartSelection:
        """Return the selection that the browser reports. Anything else than a range of a chart selects nothing.

        `origin` has the application and the cluster of the monitor.
        """
        chart, since, until = brush.get("chart"), brush.get("since"), brush.get("until")
        group, step = brush.get("group"), brush.get("step")
        nothing = cls(_store=store, _origin=origin)
        if chart not in get_args(Chart) or (chart == "causes") != bool(group):
            return nothing
        if not (_is_time(since) and _is_time(until) and _is_time(step)) or not since < until or step < 1:
            return nothing
        return cls(chart, float(since), float(until), str(group) if group else None, int(step), store, origin)

    def __bool__(self) -> bool:
        """Whether a range is brushed."""
        return self.chart is not None

    def to_frame(self, *, kind: Kind | None = None) -> Any:
        """Return the rows behind the brushed range as a data frame (`kind`: pandas, polars or arrow).

        Throughput and error rate have a row for each window and topic, and latency one for each window of all topics. All
        have the same columns: counts, rates, and percentiles of merged histograms. A cause has its pending dead letters,
        masked, with the columns of `Monitor.to_frame`. Nothing brushed is an empty frame with the columns of a chart.
        """
        if self.chart == "causes":
            return self._dead_letters(kind)
        from producer_core.store.history import window_frame

        assert self._store is not None
        since, until = (self.since, self.until) if self else (0, 0)
        return window_frame(
            self._store,
            since=since or 0,
            until=until or 0,
            step=self._step,
            by_topic=self.chart != "latency",
            kind=kind,
            **self._origin,
        )

    def _dead_letters(self, kind: Kind | None) -> Any:
        from producer_core.dlq import DeadLetterFilter, DeadLetters

        assert self._store is not None
        where = DeadLetterFilter(
            group=self.group,
            since=self.since,
            until=self.until,
            application=self._origin.get("application"),
            cluster_id=self._origin.get("cluster"),
        )
        return DeadLetters(self._store).to_frame(where, kind=kind)

    def __repr__(self) -> str:
        if self.chart is None or self.since is None or self.until is None:
            return _NOTHING
        of = f" {self.group}" if self.group else ""
        return f"{_NAMES[self.chart]}{of}, {_moment(self.since)} to {_moment(self.until)} UTC. to_frame() returns its rows."


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
