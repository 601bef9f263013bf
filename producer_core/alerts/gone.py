"""Producers that gave no sign of life: noticed by one process a store, by lease."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from producer_core.alerts.life import Alert, Change, alert, follow
from producer_core.alerts.log import AlertLog

if TYPE_CHECKING:
    from producer_core.store import Store

GONE_AFTER = 40.0
"""Seconds without a sign of life after which a producer that was not closed counts as gone."""

FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds after which a gone producer is history, no longer an alert."""

LEASE = 15.0


def this_process() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


def evaluate_store(store: Store, now: float, *, owner: str | None = None) -> list[Change]:
    """Notices producers that died, in whichever process holds the lease; [] in every other one.

    Call it every few seconds from any process that has the store; one of them does the work.
    """
    if not _leads(store, now, owner or this_process()):
        return []
    log = AlertLog(store, clock=lambda: now)
    firing = {key: item for key, item in log.firing().items() if item.rule == "producer_gone"}
    changes = follow(firing, _gone(store, now), now)
    log.record(changes)
    return changes


def _leads(store: Store, now: float, owner: str) -> bool:
    """The lease, looked at before it is written: a second of leading or following costs one read."""
    for held in store.rows("alerts_lease_holder", now=now):
        if held["owner"] != owner or held["lease_until"] - now > LEASE / 2:
            return bool(held["owner"] == owner)
    return store.take_lease("alerts", owner, LEASE, now)


def _gone(store: Store, now: float) -> list[Alert]:
    rows = store.rows("alerts_gone_producers", silent_since=now - GONE_AFTER, forgotten=now - FORGOTTEN_AFTER)
    return [
        alert(
            "producer_gone",
            row["producer_id"],
            now,
            threshold=GONE_AFTER,
            seen=datetime.fromtimestamp(row["seen_at"], UTC).strftime("%Y-%m-%d %H:%M:%S"),
            client=f"{row['client_id']} ({row['host']}, process {row['pid']})",
            pending=row["pending"],
        )
        for row in rows
    ]
