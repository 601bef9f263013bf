"""Return delivery statistics per time window as a frame."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from producer_core._internal.dataframe import Kind, make_frame
from producer_core.errors import ConfigError
from producer_core.metrics.histogram import quantiles

if TYPE_CHECKING:
    from producer_core.store import Store

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)(?![a-z])\s*")
_STEPS = (1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
_ROWS = 400
"""Approximate maximum number of windows without a `step`."""

_COUNTS = ("accepted", "acknowledged", "dead", "failed_attempts", "retried", "duplicates", "bytes")
_QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def history(
    store: Store,
    last: str | float = "1h",
    *,
    topic: str | None = None,
    application: str | None = None,
    cluster: str | None = None,
    by_topic: bool = False,
    step: int | None = None,
    kind: Kind | None = None,
    now: float | None = None,
) -> Any:
    """Return one row per non-empty window of `step` seconds: `at` (UTC), counts, rates and latencies.

    `by_topic` returns one row per window and topic, without percentiles: those exist for all topics together, or for the
    requested `topic`. `application` (an empty text for none) and `cluster` select producers.
    """
    import pyarrow

    now, seconds = time.time() if now is None else now, span(last)
    width = step or next((width for width in _STEPS if seconds / width <= _ROWS), _STEPS[-1])
    since = int(now - seconds) // width * width
    with store.borrow():
        chosen = {"since": since, "topic": topic, "application": application, "cluster": cluster}
        rows = store.rows("series", bucket=width, **chosen)
        buckets = store.rows("latency_buckets_by_window", bucket_seconds=width, **chosen)
    columns = _columns(rows if by_topic else _all_topics(rows), by_topic)
    if not by_topic:
        histograms: dict[int, dict[int, int]] = defaultdict(dict)
        for row in buckets:
            histograms[row["window_start"]][row["bucket"]] = row["count"]
        _percentiles(columns, histograms)
    columns["at"] = [datetime.fromtimestamp(at, UTC) for at in columns["at"]]
    kinds = {"at": pyarrow.timestamp("s", "UTC"), "topic": pyarrow.string()}
    kinds |= dict.fromkeys(("seconds", *_COUNTS), pyarrow.int64())
    arrays = {
        name: pyarrow.array(values, kinds.get(name, pyarrow.float64())) for name, values in columns.items()
    }
    return make_frame(pyarrow.table(arrays), kind)


def span(last: str | float) -> float:
    """Return a time range in seconds, from `"15m"`, `"1h30m"`, `"7 d"` or a number."""
    if isinstance(last, str):
        parts = _PART.findall(last)
        if parts and not _PART.sub("", last).strip():
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif not isinstance(last, bool) and last > 0:
        return float(last)
    raise ConfigError(f"{last!r} is not a time range.", fix='Write, for example, "15m", "1h" or "7d".')


def _all_topics(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum the rows of all topics per window."""
    windows: dict[int, dict[str, Any]] = {}
    for row in rows:
        sums = windows.setdefault(row["window_start"], {**row, **dict.fromkeys((*_COUNTS, "latency_sum"), 0)})
        sums["seconds"] = max(sums["seconds"], row["seconds"])
        for name in (*_COUNTS, "latency_sum"):
            sums[name] += row[name]
    return [windows[at] for at in sorted(windows)]


def _columns(rows: list[dict[str, Any]], by_topic: bool) -> dict[str, Any]:
    columns: dict[str, Any] = {"at": [row["window_start"] for row in rows]}
    if by_topic:
        columns["topic"] = [row["topic"] for row in rows]
    columns |= {name: [row[name] for row in rows] for name in ("seconds", *_COUNTS)}
    columns["per_second"] = [row["acknowledged"] / row["seconds"] for row in rows]
    columns["error_rate"] = [_share(row["dead"], row["acknowledged"] + row["dead"]) for row in rows]
    columns["mean_ms"] = [_share(1000 * row["latency_sum"], row["acknowledged"]) for row in rows]
    return columns


def _percentiles(columns: dict[str, Any], histograms: dict[int, dict[int, int]]) -> None:
    found = [quantiles(histograms.get(at, {}), _QUANTILES.values()) for at in columns["at"]]
    for index, name in enumerate(_QUANTILES):
        columns[name] = [None if (value := one[index]) is None else 1000 * value for one in found]


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
