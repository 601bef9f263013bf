"""Replay: dead letters sent again, as a durable operation that any process can plan and one carries out.

The operation and the ids of its records live in the store. One runner at a time holds it under a lease,
claims records, sends them under their own ids, and settles each on its own delivery report. Where it is not
known whether a record is on its topic (its verdict says so, or a runner died between sending and settling),
the topic is looked at first: found is settled as landed. Not found proves nothing, because a late request may still
arrive: it stays a dead letter with the verdict inconclusive, unless the plan says inconclusive="send".
"""

from producer_core._internal.lease_watch import LEASE
from producer_core.delivery.reports import ReplayResult
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
from producer_core.replay.planner import ALIVE, plan, refusal, runners, selection_text, under_way
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
