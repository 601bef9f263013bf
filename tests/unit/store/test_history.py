"""The history frame: the store's statistics by window, without invented values for empty windows."""

from __future__ import annotations

import pandas as pd
import pytest

from producer_core import Monitor
from producer_core.errors import ConfigError
from producer_core.store import Batch, StatisticsRow, Store
from producer_core.store.history import history, span
from tests.fixtures import notebook as parts

store, now = parts.store, parts.now


def test_a_window_has_its_counts_rates_and_latencies(store, now):
    frame = history(store, "10m", now=now, step=60)

    assert isinstance(frame, pd.DataFrame) and len(frame) == 1
    row = frame.iloc[0]
    assert (row["acknowledged"], row["dead"], row["error_rate"]) == (90, 10, 0.1)
    assert row["at"] == pd.Timestamp(int(now - 5) // 60 * 60, unit="s", tz="UTC")
    assert row["per_second"] == pytest.approx(90 / 60)
    assert row["p99_ms"] == pytest.approx(20, rel=0.1)


def test_topics_are_returned_side_by_side_or_one_alone(store, now):
    store.append(
        Batch(
            "p",
            2,
            (StatisticsRow(int(now) - 5, "c", "p", "payments", 8, 8, 0, 0, 0, 0, 0, 0, 1, 0.4),),
            (),
            (),
        )
    )
    assert history(store, "10m", now=now, step=60)["acknowledged"].tolist() == [98]
    by_topic = history(store, "10m", now=now, step=60, by_topic=True)
    assert dict(zip(by_topic["topic"], by_topic["acknowledged"], strict=True)) == {
        "orders": 90,
        "payments": 8,
    }
    assert "p99_ms" not in by_topic
    alone = history(store, "10m", now=now, step=60, topic="payments")
    assert alone["acknowledged"].tolist() == [8] and alone["mean_ms"].tolist() == [50.0]


def test_an_empty_range_is_an_empty_frame_with_its_columns(tmp_path):
    frame = Monitor(Store.open(tmp_path / "empty.duckdb")).history("1h")
    assert frame.empty and {"at", "acknowledged", "p99_ms"} <= set(frame.columns)


def test_older_windows_are_left_out(store, now):
    assert history(store, "1m", now=now + 3600).empty


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("15 min", 900), ("1h30m", 5400), ("7 d", 604_800), ("2w", 1_209_600), (90, 90.0)],
)
def test_ranges_are_parsed(text, seconds):
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5", "1 hour ago", "-1h", 0, True])
def test_an_invalid_range_raises_an_error(text):
    with pytest.raises(ConfigError, match="not a time range"):
        span(text)
