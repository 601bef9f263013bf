"""Draw lines over a few points as a small SVG that is readable in light and dark themes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median

_WIDTH, _HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 16, 58, 50
_COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626")
_WIDE = 20.0
"""The ratio of highest to lowest value from which the axis is logarithmic."""

Line = Mapping[str, Sequence[float]]
"""The measured values by point."""


def draw(
    path: Path, *, title: str, places: Sequence[str], across: str, up: str, lines: Mapping[str, Line]
) -> None:
    """Write an SVG with the medians as a line and the range as bars; points without values are omitted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(title=title, places=places, across=across, up=up, lines=lines))


def svg(*, title: str, places: Sequence[str], across: str, up: str, lines: Mapping[str, Line]) -> str:
    numbers = [number for line in lines.values() for found in line.values() for number in found]
    scale = _Scale(numbers or [1.0])
    x = {
        place: _LEFT + (at + 0.5) * (_WIDTH - _LEFT - _RIGHT) / len(places) for at, place in enumerate(places)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 20, title, weight="600", size=14),
        _text(_WIDTH / 2, _HEIGHT - 8, across, anchor="middle"),
        _text(_LEFT, 50, up, colour="#475569", anchor="end" if len(up) < 12 else "start"),
    ]
    for tick in scale.ticks():
        at = scale.at(tick)
        parts.append(
            f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#e2e8f0"/>'
        )
        parts.append(_text(_LEFT - 6, at + 4, _short(tick), anchor="end"))
    parts += [_text(x[place], _HEIGHT - _BOTTOM + 18, place, anchor="middle") for place in places]
    for number, (name, line) in enumerate(lines.items()):
        parts += _line(name, line, x, scale, number)
    return "\n".join([*parts, "</svg>\n"])


def _line(name: str, line: Line, x: Mapping[str, float], scale: _Scale, number: int) -> list[str]:
    colour, parts = _COLOURS[number % len(_COLOURS)], []
    known = [(x[place] + 3 * number, line[place]) for place in x if line.get(place)]
    points = " ".join(f"{at:.1f},{scale.at(median(found)):.1f}" for at, found in known)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for at, found in known:
        low, high, middle = scale.at(min(found)), scale.at(max(found)), scale.at(median(found))
        parts.append(
            f'<line x1="{at:.1f}" y1="{low:.1f}" x2="{at:.1f}" y2="{high:.1f}" stroke="{colour}" opacity="0.5"/>'
        )
        parts.append(f'<circle cx="{at:.1f}" cy="{middle:.1f}" r="3.5" fill="{colour}"/>')
    left = _LEFT + 190 * number
    parts.append(f'<rect x="{left}" y="28" width="12" height="4" fill="{colour}"/>')
    parts.append(_text(left + 17, 35, name))
    return parts


class _Scale:
    """A linear scale from zero if the values are close together, else a logarithmic one."""

    def __init__(self, numbers: Sequence[float]) -> None:
        low, high = min(numbers), max(numbers)
        self._logarithmic = low > 0 and high / low > _WIDE
        if self._logarithmic:
            self._low, self._high = (
                math.floor(math.log10(low)),
                max(math.ceil(math.log10(high)), 1 + math.floor(math.log10(low))),
            )
        else:
            self._low, self._step = 0.0, _step(high or 1.0)
            self._high = math.ceil((high or 1.0) / self._step) * self._step

    def at(self, number: float) -> float:
        value = math.log10(number) if self._logarithmic else number
        share = (value - self._low) / (self._high - self._low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    def ticks(self) -> list[float]:
        if self._logarithmic:
            return [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        return [step * self._step for step in range(round(self._high / self._step) + 1)]


def _step(high: float) -> float:
    """Return a round step that fits four to ten times into the highest value."""
    decade = 10.0 ** math.floor(math.log10(high / 4))
    return next(decade * factor for factor in (1, 2, 2.5, 5, 10) if high / (decade * factor) <= 8)


def _short(number: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", weight: str = "400", size: int = 12, colour: str = "#0f172a"
) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" '
        f'fill="{colour}">{escape(words)}</text>'
    )
