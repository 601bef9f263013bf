"""Load the dashboard, a package above the core, through its entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Literal

GROUP = "producer_core.dashboard"


def load_dashboard(name: Literal["commands", "monitor", "extension"]) -> Any:
    """Return the dashboard's object of this name. Raise ImportError if the dashboard is not installed."""
    for entry in entry_points(group=GROUP, name=name):
        return entry.load()
    raise ImportError(
        f"No installed package has the entry point {name!r} of {GROUP!r}: install producer-core."
    )
