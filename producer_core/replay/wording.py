"""The sentences about replays that the command line and the dashboard share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from producer_core.events import SAFE_VERDICTS

if TYPE_CHECKING:
    from producer_core.replay.broker_check import TopicCheck
    from producer_core.replay.dry_run import DryRun
    from producer_core.replay.operation import Operation

STATES: Mapping[str, str] = {
    "checking": "checking topics",
    "ready": "awaiting decision",
    "planned": "queued",
    "running": "running",
    "paused": "paused",
    "done": "done",
    "stopped": "stopped automatically",
    "cancelled": "cancelled",
    "failed": "failed",
}
"""The state as a short label."""

STATE_MEANINGS: Mapping[str, str] = {
    "checking": "the topics are being checked; then it starts, or waits for your decision",
    "ready": "waiting for your decision: replay go starts it, replay cancel ends it",
    "planned": "waiting for a runner: a live producer that uses this store, or dlq replay with --bootstrap-servers",
    "running": "records are being sent",
    "paused": "replay resume continues it",
    "done": "every record has an outcome",
    "stopped": "stopped automatically; the other records remain dead letters, those in flight after a search",
    "cancelled": "cancelled by an operator; the other records remain dead letters, those in flight after a search",
    "failed": "the replay could not continue",
}
"""The meaning of each state for the operator."""

NEWER: Mapping[str, str] = {
    "auto": "records superseded by a newer one are skipped on topics that are, or may be, compacted",
    "skip": "records superseded by a newer one are skipped",
    "send": "records superseded by a newer one are sent anyway",
}
"""How records with newer keys are handled, by choice."""

INCONCLUSIVE: Mapping[str, str] = {
    "keep": "records that may be on their topic but are not found there remain dead letters",
    "send": "records that may be on their topic but are not found there are sent anyway; duplicates are possible",
}
"""How inconclusive records are handled, by choice."""


def rule(operation: Operation) -> str | None:
    """Return when the replay stops itself; None for a plan of an older version without such a rule."""
    if operation.stop_percent is None:
        return None
    first = f"a canary of {operation.canary:,} first; " if operation.canary else "no canary; "
    if operation.stop_last == 1:
        return f"{first}stops when a record fails again"
    return f"{first}stops when more than {operation.stop_percent:g}% of the last {operation.stop_last:,} fail again"


def delivered(operation: Operation) -> str:
    """Return "at least once, because …" as the dry run says it; empty if it is not known yet."""
    from producer_core.replay.broker_check import BrokerCheck
    from producer_core.replay.dry_run import expected_guarantee

    check = BrokerCheck.from_json(operation.checked) if operation.checked else None
    found = expected_guarantee(operation, check)
    because = f", because {found.why}" if found.why and found.delivery == "at_least_once" else ""
    return f"{found.delivery.replace('_', ' ')}{because}" if found.delivery else ""


def done_of_total(operation: Operation) -> str:
    """Return how many records have an outcome, such as "120 of 500"."""
    return f"{operation.total - operation.left:,} of {operation.total:,}"


def done_about(verdict: str, *, send_inconclusive: bool = False) -> str:
    """Return how a replay handles records with this verdict."""
    if verdict in SAFE_VERDICTS:
        return "sent: no broker has them"
    then = "sent anyway" if send_inconclusive else "kept as dead letters"
    search = "looked up once more" if verdict == "inconclusive" else "looked up on their topics first"
    return f"{search}; {then} if not found"


def requested_partitions(run: DryRun, topic: str, *, most: int = 6) -> str:
    """Return the partitions that the dead letters of a topic request, such as "any, 0, 3"."""
    requested = [one.partition for one in run.by_partition if one.topic == topic]
    named = [str(partition) for partition in requested if partition is not None]
    free = ["any"] if None in requested else []
    return ", ".join([*free, *named[:most], *(["…"] if len(named) > most else [])])


def existing_partitions(found: TopicCheck | None) -> str:
    """Return the partition count that the preflight check found for a topic."""
    if found is None or found.partitions == 0:
        return "?"
    if found.partitions is None:
        return "no topic"
    return f"{found.partitions:,}{', compacted' if found.compacted else ''}"


def newer_keys(found: TopicCheck) -> str:
    """Return how many dead letters have a newer record with their key, as far as the check read."""
    if not found.scanned:
        return "not checked"
    if found.complete:
        return f"{found.newer_keys:,}"
    return f"{found.newer_keys:,} or more" if found.newer_keys else "unknown"
