"""The errors page: errors by kind, code, topic and over time."""

from __future__ import annotations

from pathlib import Path

from dashboard.views import header


def show(path: Path) -> None:
    header.title("Errors")
