"""The latency page: percentiles over time, where the time goes, and why it is slow."""

from __future__ import annotations

from pathlib import Path

from dashboard.views import header


def show(path: Path) -> None:
    header.title("Latency")
