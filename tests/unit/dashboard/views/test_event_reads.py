"""Test the reading of the events of charts."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_core.dashboard.queries.view import View
from producer_core.dashboard.views import event_reads
from producer_core.errors import StoreLocked


@pytest.mark.parametrize("window", ["15 min", "30 days"])
def test_a_read_that_fails_is_not_repeated_at_each_refresh(monkeypatch, window):
    reads = []

    def fail(*given):
        reads.append(given)
        raise StoreLocked("another process holds the store")

    monkeypatch.setattr(event_reads, "open_store", lambda path: None)
    monkeypatch.setattr(event_reads, "chart_events", fail)
    path = Path(f"/nowhere/{window}")
    assert event_reads.chart_marks(path, View(window)) == event_reads.chart_marks(path, View(window)) == []
    assert len(reads) == 1
