"""The notebook's face of the dashboard: a live widget, and magics that need no widget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer_core.dashboard.notebook.widget import Monitor as Monitor

__all__ = ["Monitor"]


def __getattr__(name: str) -> Any:
    if name != "Monitor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from producer_core.dashboard.notebook.widget import Monitor

    return Monitor
