"""Read back the producer's records from the log after the fence, when no more of them can arrive.

A `read_uncommitted` client determines how far to read, because a `read_committed` one gets the last stable offset,
which stops at an open transaction. A new `read_committed` consumer then reads. A partition is complete at
a record or an end of partition at or above that bound. While a transaction of another producer is open, the consumer
stops before it and waits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core._internal.token_source import TokenFailed
from producer_core.delivery.exactly_once.log_positions import LogPosition, PartitionId
from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import KeyIndex, LaterRecords, SequenceLookup
from producer_core.kafka.topic_config import cleanup_policies, may_compact
from producer_core.messages import record_id

_NOTICE_DELAY_S = 5.0
"""Seconds of waiting before a notice is emitted, and without any message before a new consumer is created."""
_PAUSE_S = 0.1
_TOKEN_PAUSE_S = 2.0
"""Seconds between two calls of `oauth_cb` while it provides no token."""
_DELETED_AFTER_S = 20.0
"""Seconds for which a topic must be unknown before it counts as deleted. A restarting broker knows few topics."""
_MISSING_AFTER_S = 5.0
"""The same for a partition that this producer never wrote to."""
_CLOCK_SLACK_S = 300.0
"""Seconds by which the timestamp of a record may be behind the local clock."""
_EXTRA_RECORDS = 200_000
"""Records per topic, over all its partitions, that are also read before that time, in case a clock was changed."""
_NO_SUCH = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_END = 1 << 62

Found = dict[PartitionId, list[tuple[bytes, LogPosition]]]


@dataclass
class ReadBackResult:
    """The result of a read-back: own records, the end of each partition, and notices for the operator."""

    found: Found = field(default_factory=dict)
    ends: dict[PartitionId, int] = field(default_factory=dict)
    gone: dict[PartitionId, int] = field(default_factory=dict)
    """The new settled offset of partitions that were recreated or truncated."""
    removed: set[PartitionId] = field(default_factory=set)  # retention removed a part of the range to read
    notices: list[tuple[str, str]] = field(default_factory=list)  # kind and text
    later: dict[PartitionId, LaterRecords] = field(default_factory=dict)
    """The newest records by key, of partitions that may be compacted."""
    keys: dict[PartitionId, KeyIndex] = field(default_factory=dict)  # the same for the requested topics


@dataclass
class ReadBack:
    """Read for one shard, on its thread. `wait(seconds)` pauses, and raises when the shard is to stop.

    With `number`, which maps an id to its sequence, the keys on topics that may be compacted are collected too.
    """

    settings: Mapping[str, Any]
    wait: Callable[[float], None]
    notice: Callable[[str, str], None]
    connection_error: Callable[[KafkaError], None]
    number: SequenceLookup | None = None
    _denial_reported: bool = False

    def __call__(
        self,
        offsets: Mapping[PartitionId, int | None],
        wanted: Callable[[bytes], bool],
        keys: Mapping[str, KeyIndex] = MappingProxyType({}),
    ) -> ReadBackResult:
        """Read everything `wanted` above these offsets, up to the current ends. None means: only find the end.

        The index in `keys` for a topic receives each record read, if the topic may be compacted. The call returns only
        when all partitions are read, however long a broker is unavailable or a foreign transaction is open.
        """
        result = ReadBackResult()
        started, reported = time.monotonic(), False
        self._denial_reported = False
        waiting = self._ranges(offsets, result)
        for partition, (start, end) in waiting.items():
            result.found[partition] = []
            if start >= end:
                result.ends[partition] = end
        waiting = {partition: span for partition, span in waiting.items() if span[0] < span[1]}
        candidates = [partition for partition in waiting if self.number is not None or partition[0] in keys]
        if candidates:
            self._collect_keys(self._may_be_compacted(candidates), keys, result)
        while waiting:
            self._read(waiting, wanted, result)
            self._drop_deleted(waiting, result)
            if waiting and not reported and time.monotonic() - started > _NOTICE_DELAY_S:
                reported = True
                self.notice("read_back_waits", _waiting_text(waiting))
        if reported:
            self.notice("read_back_done", "The read-back is complete. Sending continues.")
        return result

    def start_offsets(
        self, oldest: Mapping[str, float], selected: Callable[[PartitionId], bool]
    ) -> dict[PartitionId, int]:
        """Return an offset below all records since a time, for each `selected` partition of these topics.

        Times are in seconds since 1970. A topic that does not exist is left out.
        """
        if not oldest:
            return {}
        with self._consumer({"isolation.level": "read_uncommitted"}) as handle:
            times = {
                partition: max(0.0, since - _CLOCK_SLACK_S)
                for topic, since in oldest.items()
                for partition in self._partitions(handle, topic)
                if selected(partition)
            }
            watermarks = self._all_watermarks(handle, dict.fromkeys(times))
            known = {partition: ends for partition, ends in watermarks.items() if ends is not None}
            first = self._first_since(handle, {partition: times[partition] for partition in known})
        topics = Counter(topic for topic, _ in known)
        return {
            partition: max(low, min(first[partition], end) - _EXTRA_RECORDS // topics[partition[0]]) - 1
            for partition, (low, end) in known.items()
        }

    def _partitions(self, handle: Consumer, topic: str) -> list[PartitionId]:
        """Return the topic's partitions; none if the topic has been missing for a while."""
        started = time.monotonic()
        while time.monotonic() - started <= _MISSING_AFTER_S:
            try:
                metadata = handle.list_topics(topic, timeout=5.0).topics[topic]
                if metadata.error is None:
                    return [(topic, number) for number in metadata.partitions]
                if metadata.error.code() not in _NO_SUCH:
                    started = time.monotonic()
            except KafkaException as error:
                started = time.monotonic()
                self.connection_error(error.args[0])
            self.wait(_PAUSE_S)
        return []

    def _first_since(self, handle: Consumer, times: Mapping[PartitionId, float]) -> dict[PartitionId, int]:
        """Return the first offset of each partition since its time, or the end when there is none."""
        found: dict[PartitionId, int] = {}
        while len(found) < len(times):
            remaining = [
                TopicPartition(*partition, int(times[partition] * 1000))
                for partition in times.keys() - found.keys()
            ]
            try:
                for answer in handle.offsets_for_times(remaining, timeout=5.0):
                    if answer.error is None:
                        partition = (answer.topic, answer.partition)
                        found[partition] = answer.offset if answer.offset >= 0 else _END
            except KafkaException as error:
                self.connection_error(error.args[0])
            if len(found) < len(times):
                self.wait(_PAUSE_S)
        return found

    def _may_be_compacted(self, partitions: Collection[PartitionId]) -> list[PartitionId]:
        policies = cleanup_policies(self.settings, {topic for topic, _ in partitions}, _NOTICE_DELAY_S)
        self.wait(0)
        return [partition for partition in partitions if may_compact(policies[partition[0]])]

    def _collect_keys(
        self, partitions: Iterable[PartitionId], keys: Mapping[str, KeyIndex], result: ReadBackResult
    ) -> None:
        for partition in partitions:
            if partition[0] in keys:
                result.keys[partition] = keys[partition[0]]
            if self.number is not None:
                result.later[partition] = LaterRecords(self.number)

    def _ranges(
        self, offsets: Mapping[PartitionId, int | None], result: ReadBackResult
    ) -> dict[PartitionId, tuple[int, int]]:
        ranges: dict[PartitionId, tuple[int, int]] = {}
        with self._consumer({"isolation.level": "read_uncommitted"}) as handle:
            for partition, watermarks in self._all_watermarks(handle, offsets).items():
                settled_offset = offsets[partition]
                if watermarks is None and settled_offset is None:
                    continue
                if watermarks is None:
                    text = f"The partition {partition[0]} [{partition[1]}] no longer exists; its records are lost."
                    result.notices.append(("topic_gone", text))
                    result.gone[partition] = -1
                    continue
                low, end = watermarks
                result.ends[partition] = end
                start = end if settled_offset is None else settled_offset + 1
                if start > end:
                    text = (
                        f"{partition[0]} [{partition[1]}] ends at offset {end}, but offset {settled_offset} was "
                        "acknowledged: records are lost."
                    )
                    result.notices.append(("acknowledged_lost", text))
                    result.gone[partition] = low - 1
                    start = low
                elif start < low:
                    text = (
                        f"Retention removed the records of {partition[0]} [{partition[1]}] below offset {low}. The "
                        "read-back starts there."
                    )
                    result.notices.append(("evidence_removed", text))
                    result.removed.add(partition)
                    start = low
                ranges[partition] = (start, end)
        return ranges

    def _all_watermarks(
        self, handle: Consumer, offsets: Mapping[PartitionId, int | None]
    ) -> dict[PartitionId, tuple[int, int] | None]:
        """Return the watermarks of each partition; None if it has been missing for a while.

        All partitions are queried in turn, so that many missing ones take no longer than one.
        """
        started, reported = time.monotonic(), False
        missing_since: dict[PartitionId, float] = {}
        watermarks: dict[PartitionId, tuple[int, int] | None] = {}
        while len(watermarks) < len(offsets):
            for partition in offsets.keys() - watermarks.keys():
                bound = _DELETED_AFTER_S if offsets[partition] is not None else _MISSING_AFTER_S
                try:
                    low, high = handle.get_watermark_offsets(
                        TopicPartition(*partition), timeout=5.0, cached=False
                    )
                    watermarks[partition] = int(low), int(high)
                except KafkaException as error:
                    now, gone = time.monotonic(), error.args[0].code() in _NO_SUCH
                    if gone and now - missing_since.setdefault(partition, now) > bound:
                        watermarks[partition] = None
                    elif not reported and time.monotonic() - started > _NOTICE_DELAY_S:
                        reported = True
                        text = f"The end offset of {partition[0]} [{partition[1]}] is not known yet: {error}"
                        self.notice("read_back_waits", text)
                    self.wait(0)
            if len(watermarks) < len(offsets):
                self.wait(_PAUSE_S)
        return {partition: watermarks[partition] for partition in offsets}

    def _drop_deleted(self, waiting: dict[PartitionId, tuple[int, int]], result: ReadBackResult) -> None:
        """Stop waiting for partitions deleted during the read, which would never reach their earlier end."""
        if not waiting:
            return
        with self._consumer({"isolation.level": "read_uncommitted"}) as handle:
            found = self._all_watermarks(handle, {partition: end for partition, (_, end) in waiting.items()})
            for partition, watermarks in found.items():
                end = waiting[partition][1]
                if watermarks is not None and watermarks[1] >= end:
                    continue
                text = (
                    f"{partition[0]} [{partition[1]}] was deleted during the read-back; its records are lost."
                )
                result.notices.append(("topic_gone", text))
                result.gone[partition] = -1 if watermarks is None else watermarks[0] - 1
                if watermarks is None:
                    del result.ends[partition]
                else:
                    result.ends[partition] = watermarks[1]
                del waiting[partition]

    def _read(
        self,
        waiting: dict[PartitionId, tuple[int, int]],
        wanted: Callable[[bytes], bool],
        result: ReadBackResult,
    ) -> None:
        """Read with one consumer until everything is read, an error occurs, or no message arrives for a few seconds."""
        with self._consumer({}) as consumer:
            consumer.assign([TopicPartition(*partition, start) for partition, (start, _) in waiting.items()])
            last_message = time.monotonic()
            while waiting and time.monotonic() - last_message < _NOTICE_DELAY_S:
                for message in consumer.consume(500, timeout=_PAUSE_S):
                    partition = (message.topic(), message.partition())
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        self._on_read_error(error)
                    elif partition in waiting:
                        last_message = time.monotonic()
                        _add_message(message, partition, waiting, wanted, result)
                self.wait(0)

    def _on_read_error(self, error: KafkaError) -> None:
        """Report an error. Missing permissions need an operator; all other errors are connection errors."""
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            if not self._denial_reported:
                self._denial_reported = True
                text = (
                    f"The read-back has no permission: {error.str()}. Grant READ on the topic; the read-back then "
                    "continues."
                )
                self.notice("read_back_refused", text)
            self.wait(2.0)
        else:
            self.connection_error(error)
            self.wait(_PAUSE_S)

    @contextmanager
    def _consumer(self, changes: Mapping[str, Any]) -> Iterator[Consumer]:
        with ExitStack() as stack:
            yield self._open(stack, changes)

    def _open(self, stack: ExitStack, changes: Mapping[str, Any]) -> Consumer:
        """Open a consumer. While `oauth_cb` provides no token, report that and try again."""
        while True:
            try:
                return stack.enter_context(
                    reader(self.settings, changes, name="read-back", on_error=self.connection_error)
                )
            except TokenFailed as error:
                self.connection_error(error.args[0])
                self.wait(_TOKEN_PAUSE_S)


def _add_message(
    message: Any,
    partition: PartitionId,
    waiting: dict[PartitionId, tuple[int, int]],
    wanted: Callable[[bytes], bool],
    result: ReadBackResult,
) -> None:
    """Add a record, or complete the partition at an end of partition at or above the bound."""
    start, end = waiting[partition]
    offset = message.offset()
    if message.error() is not None:
        if offset >= end:
            del waiting[partition]
        return
    if offset < start:
        return
    if partition in result.later:
        result.later[partition].observe(message)
    if partition in result.keys:
        result.keys[partition].observe(message)
    id = record_id(message.headers())
    if id is not None and wanted(id):
        result.found[partition].append((id, LogPosition(*partition, offset, message.timestamp()[1])))
    if offset >= end - 1:
        del waiting[partition]
    else:
        waiting[partition] = (offset + 1, end)  # a new consumer continues here


def _waiting_text(waiting: Mapping[PartitionId, tuple[int, int]]) -> str:
    topic, number = next(iter(waiting))
    others = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return (
        f"The read-back of {topic} [{number}]{others} is waiting: a broker is unavailable, or another producer has an open "
        "transaction there. The producer sends nothing to "
        f"{'these partitions' if others else 'this partition'} until the read-back is complete."
    )


def first_offsets(result: ReadBackResult, partitions: Sequence[PartitionId]) -> dict[PartitionId, int]:
    """Return the first settled offset of partitions without records of this producer: their current end."""

    return {partition: result.ends[partition] - 1 for partition in partitions if partition in result.ends}
