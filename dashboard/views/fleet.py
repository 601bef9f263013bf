"""The fleet page: what a fleet of producers published."""

from __future__ import annotations

from pathlib import Path

from dashboard.views import header


def show(path: Path) -> None:
    header.title("Fleet")
