"""Ranges of offsets to read a second time: few, and as short as few can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Range = tuple[int, int]
"""From the first offset to the one after the last."""

MOST = 16
"""Reads of one partition in the second pass: each costs a task, and what lies between two is not read."""


def merged(intervals: Iterable[Range], most: int = MOST) -> list[Range]:
    """At most `most` ranges, in order and apart, that cover every interval; the widest gaps stay unread."""
    apart: list[list[int]] = []
    for start, end in sorted(one for one in intervals if one[0] < one[1]):
        if apart and start <= apart[-1][1]:
            apart[-1][1] = max(apart[-1][1], end)
        else:
            apart.append([start, end])
    gaps = sorted(range(1, len(apart)), key=lambda place: apart[place][0] - apart[place - 1][1], reverse=True)
    kept = sorted(gaps[: most - 1])
    firsts, lasts = [0, *kept], [*(place - 1 for place in kept), len(apart) - 1]
    return [(apart[a][0], apart[b][1]) for a, b in zip(firsts, lasts, strict=True)] if apart else []


def layers(ranges: Mapping[int, Sequence[Range]]) -> list[dict[int, Range]]:
    """The ranges of all partitions as reads of one range a partition each."""
    deepest = max((len(found) for found in ranges.values()), default=0)
    return [
        {partition: found[depth] for partition, found in ranges.items() if depth < len(found)}
        for depth in range(deepest)
    ]


def covered(ranges: Mapping[int, Sequence[Range]]) -> int:
    """Offsets that are read."""
    return sum(end - start for found in ranges.values() for start, end in found)
