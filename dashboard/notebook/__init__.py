"""The notebook's face of the dashboard: a live widget, and magics."""

from dashboard.notebook.widget import Monitor

__all__ = ["Monitor"]
