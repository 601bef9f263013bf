"""The notebook integration: a live widget, and magics that also work without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer_core.dashboard.notebook.widget import MonitorWidget as MonitorWidget

__all__ = ["MonitorWidget"]


def __getattr__(name: str) -> Any:
    if name != "MonitorWidget":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from producer_core.dashboard.notebook.widget import MonitorWidget

    return MonitorWidget
