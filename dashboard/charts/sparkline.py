"""Draw sparklines: a value over the range as a line, and failures as bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from producer_core.dashboard.html import Node, node

WIDTH, HEIGHT = 132.0, 24.0
_BARS = 7.0
"""The height of the bars of failures, at the bottom of a line."""


def spark(rates: Sequence[float | None], failures: Sequence[int | None], label: str) -> Node:
    """Return an SVG: a line of values with gaps for missing data, and bars for failures, which alone use its height."""
    step = WIDTH / max(1, len(rates), len(failures))
    return node(
        "svg",
        *(node("path", d=path, class_="pc-spark-line") for path in _paths(rates, step)),
        *_bars(failures, step, _BARS if rates else HEIGHT),
        class_="pc-spark",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _paths(rates: Sequence[float | None], step: float) -> Iterator[str]:
    """Yield a path for each run without a gap; a single point becomes a short dash."""
    top = max((rate for rate in rates if rate is not None), default=0.0) or 1.0
    run: list[str] = []
    for place, rate in enumerate((*rates, None)):
        if rate is not None:
            run.append(f"{(place + 0.5) * step:.1f} {1.5 + (HEIGHT - 3) * (1 - rate / top):.1f}")
        elif run:
            yield f"M{'L'.join(run)}" if len(run) > 1 else f"M{run[0]}h{step / 2:.1f}"
            run = []


def _bars(failures: Sequence[int | None], step: float, most: float) -> Iterator[Node]:
    """Yield bars in proportion to the failures, with a visible minimum height."""
    top = max((count or 0 for count in failures), default=0)
    for place, count in enumerate(failures):
        if count:
            height = 3 + (most - 3) * count / top
            yield node(
                "rect", x=f"{place * step:.1f}", y=f"{HEIGHT - height:.1f}", width=f"{max(step - 0.4, 1):.1f}",
                height=f"{height:.1f}", class_="pc-spark-bar",
            )  # fmt: skip
