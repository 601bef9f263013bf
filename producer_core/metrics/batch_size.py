"""Limit the size of batches: sum two batches when too many wait, and split a batch that is too large for a record."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from producer_core.metrics.batch import KINDS, Batch, RowKind

LIMIT = 480_000
"""The most bytes of rows in one batch, as JSON; with the other fields a record has at most about 512 kB."""

_MAX_ROW_BYTES, _MAX_ENTRY_BYTES = 600, 16
"""Upper bounds for a row, and for an acknowledgement in a row, so that a small batch need not be measured."""

_ROW_FIELDS = (*KINDS, "ledger", "given_up")


def concatenate(first: Batch, second: Batch) -> Batch:
    """Return one batch with all rows of both under the second's sequence. No detail is lost."""
    rows: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in _ROW_FIELDS}
    return replace(
        second,
        notices=(first.notices + second.notices)[-100:],
        first=first.begins,
        ledger_lost=first.ledger_lost + second.ledger_lost,
        **rows,
    )


def sum_by_minute(first: Batch, second: Batch) -> Batch:
    """Return one batch under the second's sequence, in which rows of the same minute and key are summed."""
    both = concatenate(first, second)
    rows: dict[str, Any] = {name: _sum_rows(getattr(both, name), kind) for name, kind in KINDS.items()}
    return replace(both, resolution=60, **rows)


def _sum_rows(rows: Sequence[tuple[Any, ...]], kind: RowKind) -> tuple[Any, ...]:
    """Merge rows of any kind by minute and key: sums are added, and for maxima the higher one is kept."""
    merges = [operator.add] * len(kind.sums) + [max] * len(kind.highest)
    minutes: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        key = (row[0] // 60 * 60, *row[1 : kind.keys])
        values = minutes.get(key)
        new = row[kind.keys :]
        minutes[key] = (
            list(new)
            if values is None
            else [merge(a, b) for merge, a, b in zip(merges, values, new, strict=True)]
        )
    return tuple(kind.row(*key, *values) for key, values in minutes.items())


def split(batch: Batch, limit: int = LIMIT) -> list[Batch]:
    """Return the batch, or several with consecutive sequences if its rows exceed `limit` bytes. A row is never split."""
    rows = sum(len(getattr(batch, name)) for name in _ROW_FIELDS)
    if rows * _MAX_ROW_BYTES + batch.acknowledgements * _MAX_ENTRY_BYTES <= limit:
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
    for name in _ROW_FIELDS:
        for row in getattr(batch, name):
            yield name, row, len(orjson.dumps(tuple(row))) + 1


def _part(batch: Batch, number: int, part: dict[str, list[Any]]) -> Batch:
    """Return one part of a batch. Only the first part has the fields that must not be repeated."""
    cleared: dict[str, Any] = {} if number == 0 else {"notices": (), "ledger_lost": 0}
    rows: dict[str, Any] = {name: tuple(part.get(name, ())) for name in _ROW_FIELDS}
    return replace(batch, sequence=batch.sequence + number, **cleared, **rows)
