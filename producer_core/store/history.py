"""Return delivery statistics per time window as a frame."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    now, seconds = time.time() if now is None else now, span(last)
    width = step or next((width for width in _STEPS if seconds / width <= _ROWS), _STEPS[-1])
    since = int(now - seconds) // width * width
    with store.borrow():
        chosen = {"since": since, "topic": topic, "application": application, "cluster": cluster}
        rows = store.rows("series", bucket=width, **chosen)
        buckets = store.rows("latency_buckets_by_window", bucket_seconds=width, **chosen)
    columns = _columns(rows if by_topic else _all_topics(rows), by_topic)
    if not by_topic:
        _percentiles(columns, buckets)
    return _frame(columns, kind)


def window_frame(
    store: Store,
    *,
    since: float,
    until: float,
    step: int,
    application: str | None = None,
    cluster: str | None = None,
    by_topic: bool = True,
    kind: Kind | None = None,
) -> Any:
    """Return the columns of `history` and `topic` for the windows that begin in [since, until), one row a window and topic.

    Percentiles are those of the merged histograms of the row. Without `by_topic`, a row is a window of all topics, and its
    `topic` is missing.
    """
    chosen = {"since": since, "until": until, "application": application, "cluster": cluster}
    latencies = "latency_buckets_by_window_and_topic" if by_topic else "latency_buckets_by_window"
    with store.borrow():
        rows = store.rows("series", bucket=step, **chosen)
        buckets = store.rows(latencies, bucket_seconds=step, **chosen)
    columns = _columns(rows if by_topic else _all_topics(rows), True)
    _percentiles(columns, buckets)
    return _frame(columns, kind)


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
        zero = {"topic": None, **dict.fromkeys((*_COUNTS, "latency_sum"), 0)}
        sums = windows.setdefault(row["window_start"], {**row, **zero})
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


def _percentiles(columns: dict[str, Any], buckets: Sequence[Mapping[str, Any]]) -> None:
    """Add the percentiles of each row from the histogram of its window, and of its topic where the buckets have one."""
    histograms: dict[tuple[int, str | None], dict[int, int]] = defaultdict(dict)
    for row in buckets:
        histograms[row["window_start"], row.get("topic")][row["bucket"]] = row["count"]
    places = zip(columns["at"], columns.get("topic", [None] * len(columns["at"])), strict=True)
    found = [quantiles(histograms.get(place, {}), _QUANTILES.values()) for place in places]
    for index, name in enumerate(_QUANTILES):
        columns[name] = [None if (value := one[index]) is None else 1000 * value for one in found]


def _frame(columns: Mapping[str, Any], kind: Kind | None) -> Any:
    import pyarrow

    columns = {**columns, "at": [datetime.fromtimestamp(at, UTC) for at in columns["at"]]}
    kinds = {"at": pyarrow.timestamp("s", "UTC"), "topic": pyarrow.string()}
    kinds |= dict.fromkeys(("seconds", *_COUNTS), pyarrow.int64())
    arrays = {
        name: pyarrow.array(values, kinds.get(name, pyarrow.float64())) for name, values in columns.items()
    }
    return make_frame(pyarrow.table(arrays), kind)


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
