"""The preflight check of an operation: check its topics and records before the first record is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from producer_core.replay.broker_check import BrokerCheck, Flag, Which, check
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.guarantee import ReplayGuarantee, never_compacts
from producer_core.replay.operation import Newer, Operation
from producer_core.replay.phrases import NEWER_KEY, NO_TOPIC

_WHICH: Mapping[Newer, Which] = {"auto": "compacted", "skip": "all", "send": "none"}


def run_preflight(
    claims: ReplayClaims,
    operation: Operation,
    settings: Mapping[str, Any],
    *,
    stopping: Callable[[], bool],
    promise: Callable[[], ReplayGuarantee] = ReplayGuarantee,
) -> None:
    """Store the result of the check and skip records as planned; at most once per operation, in bounded time.

    If the operator asked for the check first, it looks up the keys of every topic; otherwise only of topics on which the
    plan depends (`topics_to_scan`). Records that look too large are still sent, because compression may make them small
    enough. `promise` returns the expected delivery guarantee.
    """
    asked_first = operation.state == "checking"
    newer: Newer = operation.newer or "auto"  # type: ignore[assignment]  # the plan takes no other
    flagged = operation.checked is not None
    if operation.checked_at is None:
        found, flags = check(
            settings,
            claims.open_records(),
            stopping=stopping,
            newer=topics_to_scan(newer, operation.cluster_id, asked_first=asked_first),
            sends_at_most=int(settings.get("message.max.bytes", 1_000_000)),
        )
        if stopping():
            return
        guarantee = promise()
        found = replace(found, delivery=guarantee.delivery, why=guarantee.why)
        claims.save_check(found, flags, _sentence(found))
        flagged = flagged or bool(flags)
    if flagged and not asked_first:
        _skip_as_planned(claims, newer)


def topics_to_scan(newer: Newer, cluster_id: str, *, asked_first: bool) -> Which:
    """Return the topics that are scanned for records with newer keys.

    The embedded broker never compacts, so its topics are scanned only if the operator chose to skip such records.
    """
    if newer != "skip" and never_compacts(cluster_id):
        return "none"
    return "all" if asked_first else _WHICH[newer]


def _skip_as_planned(claims: ReplayClaims, newer: str) -> None:
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


__all__ = ["Flag", "run_preflight", "topics_to_scan"]
