"""Choose ranges of offsets for the second read: as few and as short as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Range = tuple[int, int]
"""The first offset and the offset after the last."""

MAX_READS = 16
"""Reads per partition in the second pass; each costs a task, and offsets between two reads are not read."""


def merged(intervals: Iterable[Range], most: int = MAX_READS) -> list[Range]:
    """Return at most `most` ordered, disjoint ranges that cover every interval and leave out the widest gaps."""
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
    """Return the ranges of all partitions as reads of one range per partition."""
    deepest = max((len(found) for found in ranges.values()), default=0)
    return [
        {partition: found[depth] for partition, found in ranges.items() if depth < len(found)}
        for depth in range(deepest)
    ]


def covered(ranges: Mapping[int, Sequence[Range]]) -> int:
    """Return the number of offsets in the ranges."""
    return sum(end - start for found in ranges.values() for start, end in found)


def split(ranges: Mapping[int, Range], size: int) -> tuple[dict[int, Range], dict[int, Range]]:
    """Return the first `size` offsets of the ranges, in even parts of all partitions, and the rest."""
    part, rest, left = {}, {}, size
    ordered = sorted(ranges.items(), key=lambda one: one[1][1] - one[1][0])
    for place, (partition, (start, end)) in enumerate(ordered):
        middle = min(end, start + -(-left // (len(ordered) - place)))
        left -= max(0, middle - start)
        if start < middle:
            part[partition] = (start, middle)
        if middle < end:
            rest[partition] = (middle, end)
    return part, rest
