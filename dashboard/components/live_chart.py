"""Draw a Plotly figure that updates in place, so that zoom, hover and legend survive each refresh, without a CDN.

`st.plotly_chart` of Streamlit 1.67 includes a hash of the figure in the element's id, so new data creates a new element.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.charts.chart import RenderedChart, rendered
from producer_core.dashboard.server.command import PLOTLY_JS
from producer_core.dashboard.theme import asset


@cache
def _component() -> Any:
    return st.components.v2.component(
        "live_plotly",
        html="<div class='live-plot' style='width:100%'></div>",
        js=asset("components/live_chart.js").replace("PLOTLY_JS", PLOTLY_JS),
        isolate_styles=False,
    )


def live_plotly(figure: Any, *, key: str, alt: str, marks: Sequence[dict[str, Any]] = ()) -> None:
    """Draw a figure or a rendered chart under a stable key; `alt` describes it for screen readers.

    `marks` are Plotly shapes with times in UTC, drawn below the lines; a chart without data shows none.
    """
    spec, height = figure if isinstance(figure, RenderedChart) else rendered(figure)
    _component()(data={"spec": spec, "alt": alt, "height": height, "marks": list(marks)}, key=key)
