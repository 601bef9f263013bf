"""Draw messages over time as an SVG element, for a page without script."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

BARS = 150
"""The approximate number of bars."""
_WIDTH, _HEIGHT, _FLOOR, _TOP = 960, 150, 132, 14
_BLUE, _RED, _GREY = "#2563eb", "#dc2626", "#7f7f7f"


def bar_seconds(seconds: float) -> int:
    """Return the width of a bar in seconds."""
    return max(1, math.ceil(seconds / BARS))


def bars(rows: Iterable[Mapping[str, Any]], since: float, until: float, step: int) -> str:
    """Return a chart of acknowledged messages with the failed ones on top, from rows of the query `series`."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        sums[row["window_start"]][0] += row["acknowledged"]
        sums[row["window_start"]][1] += row["dead"]
    highest = max((sum(pair) for pair in sums.values()), default=0)
    width = _WIDTH * step / (until - since)
    drawn = "".join(
        _bar(_WIDTH * (at - since) / (until - since), width, pair, highest)
        for at, pair in sorted(sums.items())
    )
    caption = f"Messages per {step} s, at most {highest:,}: acknowledged in blue, failed in red."
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img"><title>{html.escape(caption)}</title>{drawn}'
        f'<path d="M0 {_FLOOR}H{_WIDTH}" stroke="{_GREY}"/><g fill="{_GREY}" font-size="11">'
        f'<text x="0" y="10">{html.escape(caption)}</text><text x="0" y="{_HEIGHT - 4}">{_time(since)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{_time(until)}</text></g></svg>'
    )


def _bar(left: float, width: float, pair: list[int], highest: int) -> str:
    bottom, parts = float(_FLOOR), []
    for number, colour in zip(pair, (_BLUE, _RED), strict=True):
        if number:
            height = max(1.0, (_FLOOR - _TOP) * number / highest)
            bottom -= height
            parts.append(
                f'<rect x="{left:.1f}" y="{bottom:.1f}" width="{max(width * 0.85, 0.5):.1f}" height="{height:.1f}"'
                f' fill="{colour}"/>'
            )
    return "".join(parts)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
