"""The replays page: every replay, its progress and its outcome."""

from __future__ import annotations

from pathlib import Path

from dashboard.views import header


def show(path: Path) -> None:
    header.title("Replays")
