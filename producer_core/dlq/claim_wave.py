"""Claim the next records of a replay as an open wave: one row claims them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import replay_waves
from producer_core.dlq.claim_position import ClaimPosition
from producer_core.dlq.codec import read_headers
from producer_core.dlq.replay_waves import Wave
from producer_core.dlq.revisions import revision as revisions
from producer_core.dlq.wave_records import is_scanned, read_wave
from producer_core.events import SAFE_VERDICTS
from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb

_ROWS_BETWEEN_WAVES = 4_000
"""Fewer plain records between two others are claimed one by one with these: a wave of its own would cost more."""


def claim_wave(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, limits: Mapping[str, Any], *, now: float
) -> RecordBatch | None:
    """Claim the next records within the limits as an open wave, up to the first one that must be claimed alone. Return None
    if the next one must be.

    The limits are those of `claim_next`. A record must be claimed alone if it needs a search, if its dead letter cannot be
    claimed any more, or if the limit of bytes is smaller.
    """
    start = _next_pending(connection, position, limits)
    if start is None or start <= position.alone_up_to:
        return None
    wave = Wave(start, start + limits["count"] - 1)
    if (batch := _claim(connection, position, limits, wave, now)) is not None:
        return batch
    first, _ = _claimed_alone(connection, limits, wave)
    if first is None or first == start:
        return None
    return _claim(connection, position, limits, Wave(start, first - 1), now)


def single_records(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, limits: Mapping[str, Any]
) -> int:
    """Return how many of the next records to claim one by one, at most the `count` of the limits, before the next wave."""
    start, count = _next_pending(connection, position, limits), int(limits["count"])
    if start is None:
        return count
    if start > position.alone_up_to:
        first, last = _claimed_alone(connection, limits, Wave(start, start + count + _ROWS_BETWEEN_WAVES))
        if first != start or last is None:
            return count
        position.alone_up_to = last
    ((single, *_),) = run(
        connection,
        "replay_wave_records",
        operation=limits["operation"],
        first=start,
        last=position.alone_up_to,
    ).fetchall()
    return int(min(single, count))


def _next_pending(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, limits: Mapping[str, Any]
) -> int | None:
    operation = limits["operation"]
    first = max(position.first, replay_waves.first_after(connection, operation))
    ((start,),) = run(connection, "replay_next_pending", operation=operation, first=first).fetchall()
    return None if start is None else int(start)


def _claimed_alone(
    connection: duckdb.DuckDBPyConnection, limits: Mapping[str, Any], wave: Wave
) -> tuple[int | None, int | None]:
    """Return the number of the first record in the range that must be claimed alone, and of the last one before a longer
    part without such records; None without one, if no record fits, or if finding out would take longer than single claims.

    The plan of the operation says most of it. Only the scan of a table finds dead letters that changed since then.
    """
    numbers = {"operation": limits["operation"], "first": wave.first, "last": wave.last}
    between = _ROWS_BETWEEN_WAVES
    ((first, last),) = run(connection, "replay_alone_by_plan", **numbers, between=between).fetchall()
    if first == wave.first:
        return first, last
    count, _ = _fitting(connection, wave, limits)
    if not count or not is_scanned(connection, count):
        return None, None
    ((first, last),) = run(
        connection, "replay_claimed_alone", **numbers, between=between, safe=list(SAFE_VERDICTS)
    ).fetchall()
    return first, last


def _claim(
    connection: duckdb.DuckDBPyConnection,
    position: ClaimPosition,
    limits: Mapping[str, Any],
    wave: Wave,
    now: float,
) -> RecordBatch | None:
    """Claim the records of the range that fit, if all of them can be claimed and sent without a search, else None."""
    operation = limits["operation"]
    count, last = _fitting(connection, wave, limits)
    found = read_wave(connection, position, operation, Wave(wave.first, last), count) if count else None
    if found is None or not found.facts.is_safe:
        return None
    if revisions.any_in(connection, "wave", found.table):
        return None  # an edit marks its records; this is the case of one that is not marked
    batch = RecordBatch(found.table, read_headers)
    batch.note(size=found.facts.size, is_safe=True)
    position.claimed(last)
    replay_waves.open_wave(connection, operation, Wave(*found.facts.ord), now=now)
    return batch


def _fitting(connection: duckdb.DuckDBPyConnection, wave: Wave, limits: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many plain pending records of the range fit into the limit of bytes, and the number of the last one.

    Only these are read: all records of a range may be much larger than the limit.
    """
    operation, last = limits["operation"], wave.last
    while True:
        ((count, size, found, other),) = run(
            connection, "replay_wave_records", operation=operation, first=wave.first, last=last
        ).fetchall()
        if other is None:
            break
        last = other - 1
    if size <= limits["max_bytes"]:
        return count, found
    ((count, last),) = run(
        connection, "replay_wave_fitting", operation=operation, first=wave.first, last=last,
        max_bytes=limits["max_bytes"], allow_oversized=limits["allow_oversized"],
    ).fetchall()  # fmt: skip
    return count, last
