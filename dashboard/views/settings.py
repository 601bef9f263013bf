"""The settings page: the store, its retention, versions, and the doctor's findings."""

from __future__ import annotations

from pathlib import Path

from dashboard.views import header


def show(path: Path) -> None:
    header.title("Settings")
