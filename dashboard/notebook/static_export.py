"""Render the monitor without scripts, for notebook exports, GitHub and email."""

from __future__ import annotations

from base64 import b64encode

from producer_core._internal.html import text
from producer_core.dashboard.notebook.chart_picture import WIDTH, height, picture
from producer_core.dashboard.notebook.widget_state import CauseLine, WidgetState, spark

_CELL_STYLE = "text-align:left;vertical-align:top"


def page(state: WidgetState, name: str) -> str:
    """Return HTML with plain tables and one image; the live widget hides it."""
    tiles = "".join(
        f"<td style='{_CELL_STYLE};padding:2px 16px 2px 0'>{text(label)}<br><b>{text(value)}</b></td>"
        for label, value in state.numbers
    )
    alerts = "".join(f"<div>{text(f'{one.text} {one.advice}'.strip())}</div>" for one in state.alerts)
    return (
        f"<div class='pc-static-{name}'><div><b>{text(state.sentence)}</b></div>{alerts}"
        f"<table><tr>{tiles}</tr></table>{_charts(state)}{_causes(state)}{_dead(state)}{_producers(state)}"
        f"<small>Static snapshot as of {text(state.as_of)}.</small></div>"
    )


def _charts(state: WidgetState) -> str:
    """Return the charts as an image, because GitHub strips inline SVG but shows images."""
    image = b64encode(picture(state).encode()).decode()
    return (
        f"<div><img src='data:image/svg+xml;base64,{image}' width='{WIDTH}' height='{height(state)}' "
        f"style='max-width:100%;height:auto' alt='{text(state.caption)}'></div>"
    )


def _causes(state: WidgetState) -> str:
    rows = "".join(
        f"<tr><td style='{_CELL_STYLE}'><b>{one.count:,}</b>{_trend(one)}</td>"
        f"<td style='{_CELL_STYLE}'><b>{text(one.name)}</b><br>{text(one.error)}<br>{text(one.advice)}</td></tr>"
        for one in state.causes
    )
    return f"<table>{rows}</table>" if rows else ""


def _trend(cause: CauseLine) -> str:
    """Return the dead letters over time in block characters; empty where one bar has them all."""
    if len(cause.trend) < 2:
        return ""
    bars = spark(cause.trend, max(cause.trend), width=16)
    return f"<br><span title='{text(cause.trend_text)}' style='color:#dc2626;font-size:10px'>{bars}</span>"


def _dead(state: WidgetState) -> str:
    return f"<div>{text(state.dead_text)}</div>" if state.dead_text else ""


def _producers(state: WidgetState) -> str:
    return "".join(f"<div><small>{text(line)}</small></div>" for line in state.producers)
