"""Decide whether a message that was not found on its topic may have been written and compacted away.

Compaction keeps the last record of each key. So a message that is not on the topic was compacted away only if a newer
record of its key is there; without one it was never written. A tombstone that compaction has removed, a day after it was
written (`delete.retention.ms`), can no longer be detected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import CLOCK_SLACK_S, KeyIndex, SequenceLookup, scan_topic
from producer_core.kafka.topic_config import TimeLimit, cleanup_policies, may_compact

_MAX_RECORDS = 1_000_000
"""The maximum number of records that one search for newer keys reads."""
_POLICY_VALID_S = 300.0
"""Seconds for which a topic's policy from the broker is used."""
_POLICY_RETRY_S = 30.0
"""Seconds until a policy that could not be read is queried again."""


class MissingRecord(NamedTuple):
    """A message that was not found. `partition` is the requested one, or None when the partitioner chooses."""

    message_id: str
    key: bytes
    accepted_at: float
    partition: int | None


@dataclass(frozen=True, slots=True)
class NewerRecords:
    """The missing messages that have a newer record of their key, and those for which it is `unknown`, with the reason.

    `compacted` is true when the topic's settings say so. `unanswered` means that no broker responded, so a later search
    may succeed.
    """

    ids: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    compacted: bool = False
    unanswered: bool = False
    reason: str = ""


NONE_NEWER = NewerRecords()


class Compaction:
    """Query the cluster of a client's settings. Any thread may call it; it blocks up to the given timeout."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # guards the field below
        self._policies: dict[str, tuple[str | None, float]] = {}

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: SequenceLookup, timeout: float
    ) -> NewerRecords:
        """Search for newer records of these keys if the topic may be compacted.

        `number` maps the producer's own ids to their sequences. A broker's response never raises an exception.
        """
        limit = TimeLimit(timeout)
        policy = self._policy(topic, limit)
        if not missing or not may_compact(policy):
            return NONE_NEWER
        keys = KeyIndex(number, slack=CLOCK_SLACK_S)
        for one in missing:
            keys.add(one.message_id, one.key, one.accepted_at, partition=one.partition)
        complete, reason, unanswered = self._search(topic, keys, limit)
        newer = frozenset(keys.newer())
        unknown = frozenset() if complete else frozenset(one.message_id for one in missing) - newer
        return NewerRecords(newer, unknown, policy is not None, unanswered, reason)

    def _policy(self, topic: str, limit: TimeLimit) -> str | None:
        """Return the topic's cleanup.policy, cached for a while; None when it cannot be read."""
        with self._lock:
            policy, expires = self._policies.get(topic, (None, 0.0))
        if time.monotonic() >= expires:
            policy = cleanup_policies(self._settings, [topic], limit.question(5.0))[topic]
            valid_for = _POLICY_RETRY_S if policy is None else _POLICY_VALID_S
            with self._lock:
                self._policies[topic] = (policy, time.monotonic() + valid_for)
        return policy

    def _search(self, topic: str, keys: KeyIndex, limit: TimeLimit) -> tuple[bool, str, bool]:
        """Return whether everything was read, the reason if not, and whether no broker responded."""
        try:
            with reader(self._settings, {"isolation.level": "read_uncommitted"}) as handle:
                described = handle.list_topics(topic, timeout=limit.question()).topics[topic]
                if described.error is not None:
                    return False, str(described.error.str()), False
                scan = scan_topic(
                    self._settings,
                    handle,
                    topic,
                    len(described.partitions),
                    keys,
                    limit=limit,
                    max_records=_MAX_RECORDS,
                )
        except KafkaException as error:
            return False, str(error.args[0].str()), error.args[0].code() in _UNAVAILABLE
        return scan.complete, scan.trouble, False


_UNAVAILABLE = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
