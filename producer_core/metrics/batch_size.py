"""The size of batches: two added up where too many wait, several made of one that is too large for a record."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from producer_core.metrics.batch import KINDS, Batch, RowKind

LIMIT = 480_000
"""Bytes of rows, as JSON, that one batch has at most: with its head about 512 kB at the very most."""

_ROW, _ENTRY = 600, 16
"""No row takes more, nor an acknowledgement within one: what is surely small is not measured."""

_LISTS = (*KINDS, "ledger", "given_up")


def joined(first: Batch, second: Batch) -> Batch:
    """Two batches as one, under the second's sequence, with all rows of both: nothing is coarser, only heads are saved."""
    rows: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in _LISTS}
    return replace(
        second,
        notices=(first.notices + second.notices)[-100:],
        first=first.begins,
        ledger_lost=first.ledger_lost + second.ledger_lost,
        **rows,
    )


def added_up(first: Batch, second: Batch) -> Batch:
    """Two batches as one, under the second's sequence: rows of one minute and topic are summed."""
    both = joined(first, second)
    rows: dict[str, Any] = {name: _sum_rows(getattr(both, name), kind) for name, kind in KINDS.items()}
    return replace(both, resolution=60, **rows)


def _sum_rows(rows: Sequence[tuple[Any, ...]], kind: RowKind) -> tuple[Any, ...]:
    """Rows by minute, summed, or of maxima the higher: one body for all kinds of rows."""
    ways = [operator.add] * len(kind.sums) + [max] * len(kind.highest)
    minutes: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        key = (row[0] // 60 * 60, *row[1 : kind.keys])
        found = minutes.get(key)
        new = row[kind.keys :]
        minutes[key] = (
            list(new) if found is None else [way(a, b) for way, a, b in zip(ways, found, new, strict=True)]
        )
    return tuple(kind.row(*key, *values) for key, values in minutes.items())


def split(batch: Batch, limit: int = LIMIT) -> list[Batch]:
    """The batch, or as many as its rows need, numbered on from its sequence. A row is never cut."""
    rows = sum(len(getattr(batch, name)) for name in _LISTS)
    if rows * _ROW + batch.acknowledgements * _ENTRY <= limit:
        return [batch]
    parts: list[dict[str, list[Any]]] = [{}]
    room = limit
    for name, row, size in _sizes(batch):
        if size > room and parts[-1]:
            parts.append({})
            room = limit
        parts[-1].setdefault(name, []).append(row)
        room -= size
    return [_part(batch, number, part) for number, part in enumerate(parts)]


def _sizes(batch: Batch) -> Iterator[tuple[str, Any, int]]:
    for name in _LISTS:
        for row in getattr(batch, name):
            yield name, row, len(orjson.dumps(tuple(row))) + 1


def _part(batch: Batch, number: int, part: dict[str, list[Any]]) -> Batch:
    """What is told once is in the first."""
    once: dict[str, Any] = {} if number == 0 else {"notices": (), "ledger_lost": 0}
    rows: dict[str, Any] = {name: tuple(part.get(name, ())) for name in _LISTS}
    return replace(batch, sequence=batch.sequence + number, **once, **rows)
