"""Decide whether a message that was not found on its topic may have been written and compacted away.

Compaction keeps the last record of each key. So a message that is not there was compacted away only if a newer record
of its key is there; where there is none it was never written. A tombstone that compaction has removed, a day after it
was written (`delete.retention.ms`), cannot be seen any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import SLACK, KeyIndex, Number, look
from producer_core.kafka.topic_config import TimeLimit, cleanup_policies, may_compact

_MOST = 1_000_000
"""Records that are read in one search for newer keys."""
_FRESH = 300.0
"""Seconds for which a policy counts that a broker told."""
_ASK_AGAIN = 30.0
"""Seconds until a policy that could not be read is asked for again."""


class MissingRecord(NamedTuple):
    """A message that was not found; `partition` is the one asked for, None when the partitioner was to choose."""

    message_id: str
    key: bytes
    accepted_at: float
    partition: int | None


@dataclass(frozen=True, slots=True)
class NewerRecords:
    """Which of the missing messages have a newer record of their key, and of which that is `unknown`, for what reason.

    `compacted`: the topic is, by its own settings. `unanswered`: no broker answered, so a later search may know.
    """

    ids: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    compacted: bool = False
    unanswered: bool = False
    reason: str = ""


NONE_NEWER = NewerRecords()


class Compaction:
    """Asks the cluster of a client's settings. For any thread; it blocks up to the timeout that it is given."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # guards what follows
        self._policies: dict[str, tuple[str | None, float]] = {}

    def newer_records(
        self, topic: str, missing: Sequence[MissingRecord], *, number: Number, timeout: float
    ) -> NewerRecords:
        """Search for newer records of these keys, where the topic may be compacted.

        `number` knows the sequences of the producer's own ids. Never raises for what a broker answers.
        """
        bound = TimeLimit(timeout)
        policy = self._policy(topic, bound)
        if not missing or not may_compact(policy):
            return NONE_NEWER
        keys = KeyIndex(number, slack=SLACK)
        for one in missing:
            keys.add(one.message_id, one.key, one.accepted_at, partition=one.partition)
        complete, reason, unanswered = self._search(topic, keys, bound)
        newer = frozenset(keys.newer())
        unknown = frozenset() if complete else frozenset(one.message_id for one in missing) - newer
        return NewerRecords(newer, unknown, policy is not None, unanswered, reason)

    def _policy(self, topic: str, bound: TimeLimit) -> str | None:
        """Return the topic's cleanup.policy, asked once in a while; None where it cannot be known."""
        with self._lock:
            policy, until = self._policies.get(topic, (None, 0.0))
        if time.monotonic() >= until:
            policy = cleanup_policies(self._settings, [topic], bound.question(5.0))[topic]
            fresh = _ASK_AGAIN if policy is None else _FRESH
            with self._lock:
                self._policies[topic] = (policy, time.monotonic() + fresh)
        return policy

    def _search(self, topic: str, keys: KeyIndex, bound: TimeLimit) -> tuple[bool, str, bool]:
        """Return whether all was read, why not, and whether no broker answered."""
        try:
            with reader(self._settings, {"isolation.level": "read_uncommitted"}) as handle:
                described = handle.list_topics(topic, timeout=bound.question()).topics[topic]
                if described.error is not None:
                    return False, str(described.error.str()), False
                found = look(
                    self._settings, handle, topic, len(described.partitions), keys, bound=bound, most=_MOST
                )
        except KafkaException as error:
            return False, str(error.args[0].str()), error.args[0].code() in _UNANSWERED
        return found.complete, found.trouble, False


_UNANSWERED = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
