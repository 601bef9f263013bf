"""The look ahead of an operation: what its records would meet, looked at before the first of them is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from producer_core.replay.broker_check import BrokerCheck, Flag, Which, check
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.guarantee import ReplayGuarantee, never_compacts
from producer_core.replay.operation import Newer, Operation

_WHICH: Mapping[Newer, Which] = {"auto": "compacted", "skip": "all", "send": "none"}
NO_TOPIC = "its topic does not exist any more; create it and replay again"
NEWER_KEY = "its key has a newer record on the topic, and its old value would come last"


def look_ahead(
    claims: ReplayClaims,
    operation: Operation,
    settings: Mapping[str, Any],
    *,
    stopping: Callable[[], bool],
    promise: Callable[[], ReplayGuarantee] = ReplayGuarantee,
) -> None:
    """Writes down what was found, and leaves out what the plan says; at most once an operation, within bounds.

    Where the operator asked to see it first, every topic's keys are looked up; else only where the plan depends on
    it (`which_keys`). Records that look too large are sent all the same: compression may make them small enough.
    `promise` says how it would be delivered.
    """
    asked_first = operation.state == "checking"
    newer: Newer = operation.newer or "auto"  # type: ignore[assignment]  # the plan takes no other
    if operation.checked_at is None:
        found, flags = check(
            settings,
            claims.listed(),
            stopping=stopping,
            newer=which_keys(newer, operation.cluster_id, asked_first=asked_first),
            sends_at_most=int(settings.get("message.max.bytes", 1_000_000)),
        )
        if stopping():
            return
        said = promise()
        found = replace(found, delivery=said.delivery, why=said.why)
        claims.checked(found, flags, _sentence(found))
    if not asked_first:
        _leave_out(claims, newer)


def which_keys(newer: Newer, cluster_id: str, *, asked_first: bool) -> Which:
    """Return the topics whose keys are looked up for newer records.

    The embedded broker never compacts: there keys are looked up only where the operator chose to skip such records.
    """
    if newer != "skip" and never_compacts(cluster_id):
        return "none"
    return "all" if asked_first else _WHICH[newer]


def _leave_out(claims: ReplayClaims, newer: str) -> None:
    claims.skip_flagged("no_topic", NO_TOPIC)
    if newer == "skip":
        claims.skip_flagged("newer_key", NEWER_KEY)
    elif newer == "auto":
        found = BrokerCheck.from_json(claims.get().checked or '{"topics": [], "at": 0}')
        claims.skip_flagged(
            "newer_key", NEWER_KEY, [one.topic for one in found.topics if one.may_be_compacted]
        )


def _sentence(found: BrokerCheck) -> str:
    return " ".join(topic.text for topic in found.topics)[:500]


__all__ = ["NEWER_KEY", "NO_TOPIC", "Flag", "look_ahead", "which_keys"]
