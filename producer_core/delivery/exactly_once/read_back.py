"""The read-back: what of ours is on the log, read after the fence, so that nothing of ours can still arrive.

A `read_uncommitted` handle says how far to read (the other kind's watermark stops at an open transaction), a new
`read_committed` consumer reads. A partition is done at a record, or an end of partition, at or past that bound:
while a foreign transaction is open the reader stands before it, and waits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core.delivery.exactly_once.log_positions import LogPosition, Where
from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import KeyIndex, LaterRecords, Number
from producer_core.kafka.topic_config import cleanup_policies, may_compact
from producer_core.messages import record_id

_PATIENCE = 5.0
"""Seconds until waiting is said, and then said no more."""
_PAUSE = 0.1
_GONE = 20.0
"""Seconds for which a topic must be unknown before it counts as deleted; a restarting broker knows few."""
_NEW = 5.0
"""The same for a partition that we never wrote to."""
_SLACK = 300.0
"""Seconds by which a record's time may be behind that of our clock."""
_MORE = 200_000
"""Records, of all partitions of a topic together, that are read from before that time: a clock may have stepped."""
_NO_SUCH = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_END = 1 << 62

Found = dict[Where, list[tuple[bytes, LogPosition]]]


@dataclass
class ReadBackResult:
    """What a read-back saw: ours, the end of each partition, and what an operator should know."""

    found: Found = field(default_factory=dict)
    ends: dict[Where, int] = field(default_factory=dict)
    gone: dict[Where, int] = field(default_factory=dict)  # not what we knew: `off` begins again here
    removed: set[Where] = field(default_factory=set)  # retention took a part of what was to be read
    remarks: list[tuple[str, str]] = field(default_factory=list)  # kind of notice, sentence
    later: dict[Where, LaterRecords] = field(default_factory=dict)  # of partitions that may be compacted
    keys: dict[Where, KeyIndex] = field(default_factory=dict)  # the same, of those that were asked for


@dataclass
class ReadBack:
    """Reads for one shard, on its thread. `wait(seconds)` pauses and raises when the shard is to stop.

    With `number`, which knows the sequences of our ids, it notes the keys on topics that may be compacted.
    """

    settings: Mapping[str, Any]
    wait: Callable[[float], None]
    notice: Callable[[str, str], None]
    connection_error: Callable[[KafkaError], None]
    number: Number | None = None
    _refusal_said: bool = False

    def __call__(
        self,
        offsets: Mapping[Where, int | None],
        wanted: Callable[[bytes], bool],
        keys: Mapping[str, KeyIndex] = MappingProxyType({}),
    ) -> ReadBackResult:
        """Everything `wanted` above these offsets, up to the ends as they are now; None: the end only.

        `keys` of a topic see each record that is read, where the topic may be compacted. Ends only when every partition was read, however long a broker is away or a foreign transaction open.
        """
        seen = ReadBackResult()
        started, said = time.monotonic(), False
        self._refusal_said = False
        waiting = self._ranges(offsets, seen)
        for where, (start, end) in waiting.items():
            seen.found[where] = []
            if start >= end:
                seen.ends[where] = end
        waiting = {where: span for where, span in waiting.items() if span[0] < span[1]}
        noting = [where for where in waiting if self.number is not None or where[0] in keys]
        if noting:
            self._note_keys(self._may_be_compacted(noting), keys, seen)
        while waiting:
            self._read(waiting, wanted, seen)
            self._forget_gone(waiting, seen)
            if waiting and not said and time.monotonic() - started > _PATIENCE:
                said = True
                self.notice("read_back_waits", _waits(waiting))
        if said:
            self.notice("read_back_done", "The read-back is complete; sending goes on.")
        return seen

    def beginnings(self, oldest: Mapping[str, float], asked: Callable[[Where], bool]) -> dict[Where, int]:
        """Return an offset below the records of these topics from this time on, for each partition that is `asked` for.

        Times are in seconds since 1970. A topic that does not exist has none.
        """
        if not oldest:
            return {}
        with self._consumer({"isolation.level": "read_uncommitted"}) as handle:
            times = {
                where: max(0.0, since - _SLACK)
                for topic, since in oldest.items()
                for where in self._partitions(handle, topic)
                if asked(where)
            }
            marks = self._all_watermarks(handle, dict.fromkeys(times))
            known = {where: ends for where, ends in marks.items() if ends is not None}
            first = self._first_since(handle, {where: times[where] for where in known})
        topics = Counter(topic for topic, _ in known)
        return {
            where: max(low, min(first[where], end) - _MORE // topics[where[0]]) - 1
            for where, (low, end) in known.items()
        }

    def _partitions(self, handle: Consumer, topic: str) -> list[Where]:
        """Return none for a topic that has not existed for a while."""
        began = time.monotonic()
        while time.monotonic() - began <= _NEW:
            try:
                metadata = handle.list_topics(topic, timeout=5.0).topics[topic]
                if metadata.error is None:
                    return [(topic, number) for number in metadata.partitions]
                if metadata.error.code() not in _NO_SUCH:
                    began = time.monotonic()
            except KafkaException as error:
                began = time.monotonic()
                self.connection_error(error.args[0])
            self.wait(_PAUSE)
        return []

    def _first_since(self, handle: Consumer, times: Mapping[Where, float]) -> dict[Where, int]:
        """Return the first offset of each partition from this time on; its end where there is none."""
        found: dict[Where, int] = {}
        while len(found) < len(times):
            left = [TopicPartition(*where, int(times[where] * 1000)) for where in times.keys() - found.keys()]
            try:
                for answer in handle.offsets_for_times(left, timeout=5.0):
                    if answer.error is None:
                        where = (answer.topic, answer.partition)
                        found[where] = answer.offset if answer.offset >= 0 else _END
            except KafkaException as error:
                self.connection_error(error.args[0])
            if len(found) < len(times):
                self.wait(_PAUSE)
        return found

    def _may_be_compacted(self, partitions: Collection[Where]) -> list[Where]:
        policies = cleanup_policies(self.settings, {topic for topic, _ in partitions}, _PATIENCE)
        self.wait(0)
        return [where for where in partitions if may_compact(policies[where[0]])]

    def _note_keys(
        self, partitions: Iterable[Where], keys: Mapping[str, KeyIndex], seen: ReadBackResult
    ) -> None:
        for where in partitions:
            if where[0] in keys:
                seen.keys[where] = keys[where[0]]
            if self.number is not None:
                seen.later[where] = LaterRecords(self.number)

    def _ranges(
        self, offsets: Mapping[Where, int | None], seen: ReadBackResult
    ) -> dict[Where, tuple[int, int]]:
        ranges: dict[Where, tuple[int, int]] = {}
        with self._consumer({"isolation.level": "read_uncommitted"}) as handle:
            for where, marks in self._all_watermarks(handle, offsets).items():
                off = offsets[where]
                if marks is None and off is None:
                    continue
                if marks is None:
                    text = (
                        f"{where[0]} [{where[1]}] does not exist any more; what we wrote there went with it."
                    )
                    seen.remarks.append(("topic_gone", text))
                    seen.gone[where] = -1
                    continue
                low, end = marks
                seen.ends[where] = end
                start = end if off is None else off + 1
                if start > end:
                    text = f"{where[0]} [{where[1]}] ends at {end}, but {off} was acknowledged: records are gone."
                    seen.remarks.append(("acknowledged_lost", text))
                    seen.gone[where] = low - 1
                    start = low
                elif start < low:
                    text = (
                        f"Retention removed {where[0]} [{where[1]}] up to {low}; the read-back begins there."
                    )
                    seen.remarks.append(("evidence_removed", text))
                    seen.removed.add(where)
                    start = low
                ranges[where] = (start, end)
        return ranges

    def _all_watermarks(
        self, handle: Consumer, offsets: Mapping[Where, int | None]
    ) -> dict[Where, tuple[int, int] | None]:
        """Return both ends of each partition; None for one that has not existed for a while.

        All of them are asked in turn, so that many partitions that are gone cost no more time than one.
        """
        began, said = time.monotonic(), False
        unknown: dict[Where, float] = {}  # since when the brokers say that there is no such partition
        marks: dict[Where, tuple[int, int] | None] = {}
        while len(marks) < len(offsets):
            for where in offsets.keys() - marks.keys():
                bound = _GONE if offsets[where] is not None else _NEW
                try:
                    low, high = handle.get_watermark_offsets(
                        TopicPartition(*where), timeout=5.0, cached=False
                    )
                    marks[where] = int(low), int(high)
                except KafkaException as error:
                    now, gone = time.monotonic(), error.args[0].code() in _NO_SUCH
                    if gone and now - unknown.setdefault(where, now) > bound:
                        marks[where] = None
                    elif not said and time.monotonic() - began > _PATIENCE:
                        said = True
                        text = f"The end of {where[0]} [{where[1]}] is not known yet: {error}"
                        self.notice("read_back_waits", text)
                    self.wait(0)
            if len(marks) < len(offsets):
                self.wait(_PAUSE)
        return {where: marks[where] for where in offsets}

    def _forget_gone(self, waiting: dict[Where, tuple[int, int]], seen: ReadBackResult) -> None:
        """What was deleted while it was to be read is not waited for: it would never come to the end that it had."""
        if not waiting:
            return
        with self._consumer({"isolation.level": "read_uncommitted"}) as handle:
            found = self._all_watermarks(handle, {where: end for where, (_, end) in waiting.items()})
            for where, marks in found.items():
                end = waiting[where][1]
                if marks is not None and marks[1] >= end:
                    continue
                text = f"{where[0]} [{where[1]}] was deleted while it was read; what we wrote there went with it."
                seen.remarks.append(("topic_gone", text))
                seen.gone[where] = -1 if marks is None else marks[0] - 1
                if marks is None:
                    del seen.ends[where]
                else:
                    seen.ends[where] = marks[1]
                del waiting[where]

    def _read(
        self, waiting: dict[Where, tuple[int, int]], wanted: Callable[[bytes], bool], seen: ReadBackResult
    ) -> None:
        """One consumer's life: until everything is read, an error, or a few seconds without anything."""
        with self._consumer({}) as consumer:
            consumer.assign([TopicPartition(*where, start) for where, (start, _) in waiting.items()])
            heard = time.monotonic()
            while waiting and time.monotonic() - heard < _PATIENCE:
                for message in consumer.consume(500, timeout=_PAUSE):
                    where = (message.topic(), message.partition())
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        self._refused(error)
                    elif where in waiting:
                        heard = time.monotonic()
                        _take(message, where, waiting, wanted, seen)
                self.wait(0)

    def _refused(self, error: KafkaError) -> None:
        """Errors of a reader are the connection's; a refusal is one that only an operator ends."""
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            if not self._refusal_said:
                self._refusal_said = True
                text = f"No permission for the read-back: {error.str()}. Grant READ on the topic; it goes on then."
                self.notice("read_back_refused", text)
            self.wait(2.0)
        else:
            self.connection_error(error)
            self.wait(_PAUSE)

    def _consumer(self, changes: Mapping[str, Any]) -> AbstractContextManager[Consumer]:
        return reader(self.settings, changes, name="read-back", heard=self.connection_error)


def _take(
    message: Any,
    where: Where,
    waiting: dict[Where, tuple[int, int]],
    wanted: Callable[[bytes], bool],
    seen: ReadBackResult,
) -> None:
    """A record, or an end of partition, which counts only at or past the bound."""
    start, end = waiting[where]
    offset = message.offset()
    if message.error() is not None:
        if offset >= end:
            del waiting[where]
        return
    if offset < start:
        return
    if where in seen.later:
        seen.later[where].saw(message)
    if where in seen.keys:
        seen.keys[where].saw(message)
    id = record_id(message.headers())
    if id is not None and wanted(id):
        seen.found[where].append((id, LogPosition(*where, offset, message.timestamp()[1])))
    if offset >= end - 1:
        del waiting[where]
    else:
        waiting[where] = (offset + 1, end)  # a new reader goes on from here


def _waits(waiting: Mapping[Where, tuple[int, int]]) -> str:
    topic, number = next(iter(waiting))
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return (
        f"The read-back of {topic} [{number}]{more} waits: a broker is away, or another producer's transaction is "
        "open there. Nothing is sent there until it ends."
    )


def starts(seen: ReadBackResult, unknown: Sequence[Where]) -> dict[Where, int]:
    """The first `off` of partitions that we never wrote to: what is there now is not ours."""
    return {where: seen.ends[where] - 1 for where in unknown if where in seen.ends}
