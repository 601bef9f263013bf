"""The way from the core to the dashboard, which is a package above it: its entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Literal

GROUP = "producer_core.dashboard"


def load_dashboard(name: Literal["commands", "monitor", "extension"]) -> Any:
    """Return what the dashboard offers under this name; ImportError where the package is not installed."""
    for entry in entry_points(group=GROUP, name=name):
        return entry.load()
    raise ImportError(
        f"No installed package has the entry point {name!r} of {GROUP!r}: install producer-core."
    )
