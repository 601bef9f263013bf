"""The alerts page: alerts, their history, silences and rules."""

from __future__ import annotations

from pathlib import Path

from dashboard.views import header


def show(path: Path) -> None:
    header.title("Alerts")
