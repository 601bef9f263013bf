"""The still: what remains of the monitor where no script runs, in an export, on GitHub, in an e-mail."""

from __future__ import annotations

import html
from base64 import b64encode

from producer_core._internal.html import text
from producer_core.dashboard.notebook.widget_state import Series, WidgetState, spark

BLUE, RED, GREY = "#2563eb", "#dc2626", "#7f7f7f"
_LEFT = "text-align:left;vertical-align:top"


def page(seen: WidgetState, name: str) -> str:
    """HTML of plain tables and one picture; the live widget hides it."""
    tiles = "".join(
        f"<td style='{_LEFT};padding:2px 16px 2px 0'>{text(key)}<br><b>{text(value)}</b></td>"
        for key, value in seen.tiles
    )
    lines = "".join(f"<div>{text(line)}</div>" for line in (*seen.alerts, *seen.producers) if line)
    return (
        f"<div class='pc-static-{name}'><div><b>{text(seen.sentence)}</b></div>{lines}"
        f"<table><tr>{tiles}</tr></table>{_chart(seen)}{_causes(seen)}{_dead(seen)}"
        f"<small>A still picture, as of {text(seen.as_of)}.</small></div>"
    )


def _chart(seen: WidgetState) -> str:
    """As an image: GitHub takes SVG out of HTML, and images it shows."""
    image = b64encode(picture(seen.series, seen.caption).encode()).decode()
    return (
        f"<div><img src='data:image/svg+xml;base64,{image}' width='640' height='100' "
        f"alt='{text(f'{spark(seen.series.sent, seen.series.top)} {seen.caption}')}'></div>"
        f"<div><small>{text(seen.caption)}</small></div>"
    )


def _causes(seen: WidgetState) -> str:
    rows = "".join(
        f"<tr><td style='{_LEFT}'><b>{one.count:,}</b></td><td style='{_LEFT}'><b>{text(one.name)}</b><br>"
        f"{text(one.error)}<br>{text(one.advice)}</td></tr>"
        for one in seen.causes
    )
    return f"<table>{rows}</table>" if rows else ""


def _dead(seen: WidgetState) -> str:
    return f"<div>{text(seen.dead_text)}</div>" if seen.dead_text else ""


def picture(series: Series, caption: str, width: int = 640, height: int = 100) -> str:
    """Messages a second as bars, the failed ones red on top; an SVG document of its own."""
    top, step, floor = series.top or 1.0, width / max(len(series.sent), 1), height - 14
    bars = []
    for place, pair in enumerate(zip(series.sent, series.failed, strict=True)):
        foot = float(floor)
        for value, colour in zip(pair, (BLUE, RED), strict=True):
            if value:
                tall = max(1.0, (floor - 12) * value / top)
                foot -= tall
                bars.append(
                    f"<rect x='{place * step:.1f}' y='{foot:.1f}' width='{max(step * 0.85, 0.5):.1f}' height='{tall:.1f}' fill='{colour}'/>"
                )
    words = f"<text x='0' y='10'>{top:,.4g} /s</text><text x='{width}' y='{height - 2}' text-anchor='end'>now</text>"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
        f"<title>{html.escape(caption)}</title>{''.join(bars)}"
        f"<path d='M0 {floor}H{width}' stroke='{GREY}'/><g fill='{GREY}' font-size='10' font-family='sans-serif'>{words}</g></svg>"
    )
