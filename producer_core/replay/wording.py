"""A replay's choices in words, for the shell and the page alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from producer_core.events import SAFE_VERDICTS

if TYPE_CHECKING:
    from producer_core.replay.broker_check import TopicCheck
    from producer_core.replay.dry_run import DryRun
    from producer_core.replay.operation import Operation

NEWER: Mapping[str, str] = {
    "auto": "records whose key has a newer one are skipped on topics that are, or may be, compacted",
    "skip": "records whose key has a newer one are skipped",
    "send": "records whose key has a newer one are sent all the same",
}
"""What becomes of old values, by the choice that was made."""


INCONCLUSIVE: Mapping[str, str] = {
    "keep": "records that may be on their topic and are not found there stay dead letters",
    "send": "records that may be on their topic and are not found there are sent anyway; a second copy is possible",
}
"""What becomes of inconclusive records, by the choice that was made."""


def rule(operation: Operation) -> str | None:
    """When it stops itself; None where it was planned before there were such rules."""
    if operation.stop_percent is None:
        return None
    first = f"a canary of {operation.canary:,} first; " if operation.canary else "no canary; "
    return f"{first}stops when more than {operation.stop_percent:g} % of the last {operation.stop_last:,} fail again"


def delivered(operation: Operation) -> str:
    """«at least once, because …»: the same as the dry run says; empty where nobody knows yet."""
    from producer_core.replay.broker_check import BrokerCheck
    from producer_core.replay.dry_run import promised

    found = promised(operation, BrokerCheck.from_json(operation.checked) if operation.checked else None)
    because = f", because {found.why}" if found.why and found.delivery == "at_least_once" else ""
    return f"{found.delivery.replace('_', ' ')}{because}" if found.delivery else ""


def done_about(verdict: str, *, send_inconclusive: bool = False) -> str:
    """What a replay does with records of this verdict."""
    if verdict in SAFE_VERDICTS:
        return "sent: no broker has them"
    then = "sent anyway" if send_inconclusive else "kept as dead letters"
    again = "looked for once more" if verdict == "inconclusive" else "looked for on their topics first"
    return f"{again}; {then} where they are not found"


def asked_for(run: DryRun, topic: str, *, most: int = 6) -> str:
    """The partitions that dead letters of a topic ask for: «any, 0, 3»."""
    asked = [one.partition for one in run.by_partition if one.topic == topic]
    named = [str(partition) for partition in asked if partition is not None]
    free = ["any"] if None in asked else []
    return ", ".join([*free, *named[:most], *(["…"] if len(named) > most else [])])


def there(found: TopicCheck | None) -> str:
    """What a look ahead found of a topic's partitions."""
    if found is None or found.partitions == 0:
        return "?"
    if found.partitions is None:
        return "no topic"
    return f"{found.partitions:,}{', compacted' if found.compacted else ''}"


def newer_keys(found: TopicCheck) -> str:
    """How many dead letters have a key with a newer record, as far as was looked."""
    if found.complete:
        return f"{found.newer_keys:,}"
    return f"{found.newer_keys:,} or more" if found.newer_keys else "not known"
