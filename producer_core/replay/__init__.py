"""Replay: dead letters sent again, as a durable operation that any process can plan and one carries out."""

from producer_core.replay.operation import (
    ALIVE,
    Operation,
    cancel,
    get,
    list_operations,
    pause,
    plan,
    resume,
    runners,
)
from producer_core.replay.operation import list_operations as list  # read as replay.list(store)
from producer_core.replay.runner import LEASE, ReplayRunner
from producer_core.replay.work import Sender
from producer_core.reports import Resent

__all__ = [
    "ALIVE",
    "LEASE",
    "Operation",
    "ReplayRunner",
    "Resent",
    "Sender",
    "cancel",
    "get",
    "list",
    "list_operations",
    "pause",
    "plan",
    "resume",
    "runners",
]
