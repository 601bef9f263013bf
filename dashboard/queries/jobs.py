"""Queries for the pipeline's jobs: state, progress, lag and last success."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from producer_core.store import Store

State = Literal["running", "dead", "failed", "done"]

DEAD = 60.0
"""Seconds without a heartbeat after which a running job counts as dead; jobs write one every two seconds."""


@dataclass(frozen=True)
class JobState:
    """Holds a job of `producer-core pipeline`; `done`, `total` and `lag` count records, and are None where unknown."""

    name: str
    kind: str
    host: str
    pid: int
    started_at: float
    seen_at: float
    ended_at: float | None
    state: State
    done: int | None
    total: int | None
    lag: int | None
    last_success_at: float | None
    message: str

    @property
    def share(self) -> float | None:
        """Return the finished share, 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total and self.done is not None else None


def jobs(store: Store, now: float) -> tuple[JobState, ...]:
    """Return dead jobs first, then running ones, then the latest."""
    found = [_job(row, now) for row in store.rows("jobs")]
    order = {"dead": 0, "running": 1}
    return tuple(sorted(found, key=lambda job: (order.get(job.state, 2), -job.started_at, job.name)))


def state_of(state: str, silent: float) -> State:
    """Return the state of a job; `silent` is the seconds since its last heartbeat."""
    if state == "running":
        return "dead" if silent > DEAD else "running"
    return "failed" if state == "failed" else "done"


def _job(row: Mapping[str, Any], now: float) -> JobState:
    return JobState(
        name=row["name"],
        kind=row["kind"],
        host=row["host"],
        pid=row["pid"],
        started_at=row["started_at"],
        seen_at=row["seen_at"],
        ended_at=row["ended_at"],
        state=state_of(row["state"], now - row["seen_at"]),
        done=row["records_done"],
        total=row["records_total"],
        lag=row["lag"],
        last_success_at=row["last_success_at"],
        message=row["message"] or "",
    )
