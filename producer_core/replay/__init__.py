"""Replay dead letters as a durable operation, which any process can plan and one process runs.

The store holds the operation and the ids of its records. One runner at a time holds its lease, claims records, sends
them under their own ids, and settles each record on its delivery report. If a record may already be on its topic (by
its verdict, or because a runner died between sending and settling), the runner searches the topic first. A record found
there is settled as landed. A record not found may still arrive late, so it remains a dead letter with the verdict
inconclusive, unless the plan says inconclusive="send".
"""

from producer_core._internal.lease_watch import LEASE
from producer_core.delivery.reports import ReplayResult
from producer_core.metrics.heartbeat import ALIVE
from producer_core.replay.at_least_once import ReplayProducer
from producer_core.replay.operation import (
    Inconclusive,
    Newer,
    Operation,
    cancel,
    doubtful,
    get,
    go,
    list_operations,
    live,
    pause,
    resume,
)
from producer_core.replay.operation import list_operations as list  # read as replay.list(store)
from producer_core.replay.planner import plan, refusal, runners, selection_text, under_way
from producer_core.replay.runner import ReplayRunner

__all__ = [
    "ALIVE",
    "LEASE",
    "Inconclusive",
    "Newer",
    "Operation",
    "ReplayProducer",
    "ReplayResult",
    "ReplayRunner",
    "cancel",
    "doubtful",
    "get",
    "go",
    "list",
    "list_operations",
    "live",
    "pause",
    "plan",
    "refusal",
    "resume",
    "runners",
    "selection_text",
    "under_way",
]
