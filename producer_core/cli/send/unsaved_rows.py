"""The rows of an at_least_once send that reached the topic after its state was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from producer_core.cli.send.fingerprint import session_of
from producer_core.cli.send.recover_position import PositionSearch, RecoveredPosition, read_rows
from producer_core.cli.send.state_file import SendState
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import BrokerError
from producer_core.kafka.newer_keys import LaterRecords
from producer_core.kafka.topic_config import cleanup_policies, may_compact
from producer_core.messages import MessageIds

_POLICY_TIMEOUT = 10.0
"""Seconds for the query of the topic's cleanup.policy."""


@dataclass
class UnsavedRows:
    """The rows above the offsets of a state, up to the end of the topic."""

    rows: Ranges = field(default_factory=Ranges)
    copies: int = 0
    """Records of these rows beyond the first of each."""
    newer: LaterRecords | None = None
    """The newest record of each key there, if the topic may be compacted and all keys could be read."""
    compacted: bool = False
    """Whether the topic may be compacted."""
    unread: str = ""
    """The reason why the topic was not read, or not whole."""


def find_unsaved_rows(
    settings: Mapping[str, Any],
    state: SendState,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> UnsavedRows:
    """Read the records above the state's offsets. `report` gets the offsets passed and their total.

    A record of another producer counts as newer only in a partition with a saved offset: elsewhere it may be older than
    the send.
    """
    topic, session = state.job.topic, session_of(state.job, state.run)
    compacted = may_compact(cleanup_policies(settings, [topic], _POLICY_TIMEOUT)[topic])
    newer = LaterRecords(MessageIds(session).number) if compacted else None
    chosen = state.job.options.get("partition")
    partition = None if chosen is None else int(chosen)

    def observe(message: Any) -> None:
        if newer is not None:
            newer.observe(message, own_only=(topic, message.partition()) not in state.offsets)

    try:
        found = read_rows(
            settings, topic, session, after=state.offsets, partition=partition, observe=observe, report=report
        )
    except BrokerError as error:
        return UnsavedRows(compacted=compacted, unread=error.what.rstrip("."))
    run = found.runs.get(state.run, PositionSearch())
    known = newer if newer is None or newer.complete else None
    return UnsavedRows(run.rows, run.records - len(run.rows), known, compacted, _removed(found, state))


def _removed(found: RecoveredPosition, state: SendState) -> str:
    """Return a sentence if retention removed records above the state's offsets."""
    for (topic, partition), offset in state.offsets.items():
        if found.lows.get(partition, 0) > offset + 1:
            return f"Retention removed records of {topic} [{partition}] above the saved position"
    return ""
