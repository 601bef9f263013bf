"""Query how the outcomes of a replay added up over time."""

from __future__ import annotations

from dataclasses import dataclass

from producer_core.replay import Operation
from producer_core.store import Store

_POINTS = 150
_SHORTEST = 0.05
"""The smallest window, in seconds."""


@dataclass(frozen=True)
class ReplayCourse:
    """Holds the records of a replay that had succeeded and failed by each time.

    The first time is the start and the last one the end, or now. A record that was found on its topic succeeded. `total`
    counts all records of the replay, including those that are skipped or have no outcome yet.
    """

    total: int
    ats: tuple[float, ...]
    succeeded: tuple[int, ...]
    failed: tuple[int, ...]


def replay_course(store: Store, operation: Operation, now: float) -> ReplayCourse | None:
    """Return the course of a replay; None before it starts to send."""
    if operation.started_at is None:
        return None
    since, until = operation.started_at, max(operation.started_at, operation.finished_at or now)
    bucket = max(_SHORTEST, (until - since) / _POINTS)
    rows = store.rows("replay_course", operation=operation.operation_id, since=since, bucket=bucket)
    ats, succeeded, failed = [since], [0], [0]
    for row in rows:
        ats.append(min(until, since + (row["place"] + 1) * bucket))
        succeeded.append(succeeded[-1] + row["succeeded"])
        failed.append(failed[-1] + row["failed"])
    if ats[-1] < until:
        ats.append(until)
        succeeded.append(succeeded[-1])
        failed.append(failed[-1])
    return ReplayCourse(operation.total, tuple(ats), tuple(succeeded), tuple(failed))
