"""Render the monitor without scripts, for notebook exports, GitHub and email."""

from __future__ import annotations

import html
from base64 import b64encode

from producer_core._internal.html import text
from producer_core.dashboard.notebook.widget_state import Series, WidgetState, spark

BLUE, RED, GREY = "#2563eb", "#dc2626", "#7f7f7f"
_CELL_STYLE = "text-align:left;vertical-align:top"


def page(state: WidgetState, name: str) -> str:
    """Return HTML with plain tables and one image; the live widget hides it."""
    tiles = "".join(
        f"<td style='{_CELL_STYLE};padding:2px 16px 2px 0'>{text(key)}<br><b>{text(value)}</b></td>"
        for key, value in state.tiles
    )
    lines = "".join(f"<div>{text(line)}</div>" for line in (*state.alerts, *state.producers) if line)
    return (
        f"<div class='pc-static-{name}'><div><b>{text(state.sentence)}</b></div>{lines}"
        f"<table><tr>{tiles}</tr></table>{_chart(state)}{_causes(state)}{_dead(state)}"
        f"<small>Static snapshot as of {text(state.as_of)}.</small></div>"
    )


def _chart(state: WidgetState) -> str:
    """Return the chart as an image, because GitHub strips inline SVG but shows images."""
    image = b64encode(picture(state.series, state.caption).encode()).decode()
    return (
        f"<div><img src='data:image/svg+xml;base64,{image}' width='640' height='100' "
        f"alt='{text(f'{spark(state.series.sent, state.series.top)} {state.caption}')}'></div>"
        f"<div><small>{text(state.caption)}</small></div>"
    )


def _causes(state: WidgetState) -> str:
    rows = "".join(
        f"<tr><td style='{_CELL_STYLE}'><b>{one.count:,}</b></td><td style='{_CELL_STYLE}'><b>{text(one.name)}</b><br>"
        f"{text(one.error)}<br>{text(one.advice)}</td></tr>"
        for one in state.causes
    )
    return f"<table>{rows}</table>" if rows else ""


def _dead(state: WidgetState) -> str:
    return f"<div>{text(state.dead_text)}</div>" if state.dead_text else ""


def picture(series: Series, caption: str, width: int = 640, height: int = 100) -> str:
    """Return a standalone SVG document with messages per second as bars, failed ones in red on top."""
    top, step, floor = series.top or 1.0, width / max(len(series.sent), 1), height - 14
    bars = []
    for place, pair in enumerate(zip(series.sent, series.failed, strict=True)):
        bottom = float(floor)
        for value, colour in zip(pair, (BLUE, RED), strict=True):
            if value:
                bar_height = max(1.0, (floor - 12) * value / top)
                bottom -= bar_height
                bars.append(
                    f"<rect x='{place * step:.1f}' y='{bottom:.1f}' width='{max(step * 0.85, 0.5):.1f}' height='{bar_height:.1f}' fill='{colour}'/>"
                )
    labels = f"<text x='0' y='10'>{top:,.4g}/s</text><text x='{width}' y='{height - 2}' text-anchor='end'>now</text>"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
        f"<title>{html.escape(caption)}</title>{''.join(bars)}"
        f"<path d='M0 {floor}H{width}' stroke='{GREY}'/><g fill='{GREY}' font-size='10' font-family='sans-serif'>{labels}</g></svg>"
    )
