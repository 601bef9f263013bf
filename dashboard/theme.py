"""The colors, style sheets and scripts of the dashboard."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

COLOURS = (
    "#2563eb", "#dc2626", "#d97706", "#059669", "#7c3aed", "#0891b2", "#db2777", "#65a30d", "#475569", "#b45309",
)  # fmt: skip
"""The colors of a chart's series, distinguishable by color-blind readers. Streamlit ignores fewer than ten."""
PERCENTILE_COLOURS = ("#059669", "#7c3aed", "#db2777", "#b45309")
"""The colors of p50, p95, p99 and p99.9 in every chart of every page."""


@cache
def asset(path: str) -> str:
    """Return the text of a file in the dashboard's package, for example `components/live_dom.js`."""
    return files(__package__).joinpath(path).read_text(encoding="utf-8")


def style_sheet(name: str) -> str:
    """Return the text of a style sheet in `static/`."""
    return asset(f"static/{name}.css")
