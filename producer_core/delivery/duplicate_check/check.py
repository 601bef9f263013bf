"""Count the records that the idempotent client wrote twice when its epoch rose.

A refused or expired record makes librdkafka start a new epoch, in which the sequence of every partition restarts at 0. A
batch whose response was lost is sent again with a sequence that is new to the broker: it is written a second time and
acknowledged (kafka-real-notes 1.1). No delivery report shows this. The statistics contain the epoch once a second, and the
first copies are read from the gaps (`offset_gaps.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.duplicate_check.gap_reader import GapReadResult, Read
from producer_core.delivery.duplicate_check.offset_gaps import OffsetGaps, PartitionGaps, TopicPartition
from producer_core.events import Acknowledged, AttemptFailed, Hook
from producer_core.messages import parse_id
from producer_core.metrics.ack_batch import Acknowledgements

logger = queued_logger(__name__)

_MAX_ACCOUNTED = 100_000
_READ_TIMEOUT, _LAST_READ_TIMEOUT, _RETRY_PAUSE = 10.0, 2.0, 2.0
"""Seconds that one read may take, that the read during stop() may take, and until an incomplete read is repeated."""
_MAX_RETRIES = 15
_AMBIGUOUS_TICKS = 40
"""The number of statistics events, one second apart, after an ambiguous failure during which a copy of its
message may still be appended."""
_SUSPICIOUS_TICKS = 3
"""The number of statistics events after a failed attempt during which the epoch may have risen without being
detected, for stop()."""


class DuplicateCheck(Hook):
    """Counts duplicates on a thread that starts when the epoch first rises.

    A rise makes the messages that are `in_flight` at that moment ambiguous. When all of those of a topic are settled, the
    gaps of that time are read: each record of this producer in a gap is a copy. A record that cannot be read counts as a
    copy. `counted` is called with the topic of each copy. Acknowledgements and statistics arrive on the poll thread.
    """

    def __init__(
        self,
        read: Read,
        *,
        in_flight: Callable[[], Iterable[Delivery]],
        counted: Callable[[str], None],
    ) -> None:
        self._read = read
        self._in_flight = in_flight
        self._counted = counted
        # used on the poll thread only
        self._gaps = OffsetGaps(self._account_for)
        self._epochs: dict[int, int] = {}  # by producer id
        self._suspects: dict[str, set[bytes]] = {}  # by topic: ids that were in flight when the epoch rose
        self._suspicious_ticks = 0
        self._has_risen = False
        # By topic: the ticks during which a copy of a failed attempt may still be appended.
        self._ambiguous: dict[str, int] = {}
        self._unread_tails: set[str] = set()  # topics with an ambiguous failure
        self._changed = threading.Condition()  # guards everything below
        self._accounted: dict[bytes, int] = {}  # by id: copies that are counted elsewhere
        self._failed: dict[bytes, bytes] = {}  # by session: the lowest id whose attempt may have been written
        self._sessions: set[bytes] = set()
        self._waiting: deque[tuple[int, list[PartitionGaps]]] = deque()  # retries and gaps
        self._reading: list[PartitionGaps] | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        if isinstance(batch, Acknowledgements):
            self._gaps.note(batch)
            return
        for found in batch:  # a probe found the message, whose attempt had failed
            if found.offset is not None:
                self._gaps.note_found((found.topic, found.partition), found.offset, found.id)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """Account for one copy of an ambiguous message: its retry or its dead letter reports that copy."""
        self._suspicious_ticks = _SUSPICIOUS_TICKS
        if event.ambiguous:
            self._ambiguous[event.topic] = _AMBIGUOUS_TICKS
            self._unread_tails.add(event.topic)
            self._account_for(parse_id(event.message_id))

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        if self._epoch_rose(statistics.get("eos") or {}):
            self._suspect_in_flight()
        for topic in self._settled_topics():
            del self._suspects[topic]
            self._read_topic(topic)
        self._suspicious_ticks = max(0, self._suspicious_ticks - 1)
        self._read_late_copies()
        self._gaps.tick(
            lambda topic: topic in self._suspects or (self._has_risen and topic in self._ambiguous)
        )

    def stop(self, timeout: float = 5.0) -> None:
        """Read the remaining gaps once. A gap that cannot be read within `timeout` seconds is counted as copies."""
        suspicious = self._suspects or self._suspicious_ticks
        for topic in self._gaps.topics():
            if suspicious or (self._has_risen and topic in self._ambiguous):
                self._read_topic(topic)
        if self._has_risen:
            for topic in list(self._unread_tails):  # a probe may still add a topic
                self._queue_read(self._gaps.tails(topic))
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        with self._changed:
            unread = [gaps for _, gaps in self._waiting]
            if self._reading is not None:
                unread.append(self._reading)
            self._waiting.clear()
            self._reading = None
        for gaps in unread:
            self._count(gaps, GapReadResult(unread=_offset_counts(gaps)))

    def wait(self, timeout: float) -> bool:
        """Wait until all queued gaps are read; return False when the timeout passes first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._reading is None, timeout)

    # on the poll thread

    def _epoch_rose(self, eos: Mapping[str, Any]) -> bool:
        """Return whether the epoch changed. A producer id starts with epoch 0, and a new client has a new producer id."""
        producer_id, epoch = eos.get("producer_id", -1), eos.get("producer_epoch", -1)
        if producer_id < 0 or epoch < 0:
            return False
        before, self._epochs[producer_id] = self._epochs.get(producer_id, 0), epoch
        return bool(epoch != before)

    def _read_late_copies(self) -> None:
        """Read a topic once more some time after an ambiguous failure, if that message may have been sent in two epochs."""
        for topic in list(self._ambiguous):
            self._ambiguous[topic] -= 1
            if not self._ambiguous[topic]:
                del self._ambiguous[topic]
                if self._has_risen:
                    self._read_topic(topic)

    def _suspect_in_flight(self) -> None:
        """Mark as suspect the messages in flight, and the topics of messages acknowledged since the previous statistics."""
        self._has_risen = True
        for topic in self._gaps.topics():
            self._suspects.setdefault(topic, set())
        sessions = set()
        for delivery in self._in_flight():
            self._suspects.setdefault(delivery.topic, set()).add(delivery.id)
            sessions.add(delivery.id[:16])
        with self._changed:
            self._sessions |= sessions

    def _settled_topics(self) -> list[str]:
        """Return the topics whose suspect messages are all settled."""
        if any(self._suspects.values()):
            in_flight = {delivery.id for delivery in self._in_flight()}
            for suspects in self._suspects.values():
                suspects &= in_flight
        return [topic for topic, suspects in self._suspects.items() if not suspects]

    def _read_topic(self, topic: str) -> None:
        """Queue the gaps of a topic for the thread."""
        self._queue_read(self._gaps.take(topic))

    def _queue_read(self, gaps: list[PartitionGaps]) -> None:
        if not gaps:
            return
        with self._changed:
            self._sessions |= self._gaps.sessions
            self._waiting.append((0, gaps))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="producer-core-duplicates", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _account_for(self, message_id: bytes) -> None:
        """Exclude one copy of a message from the count, because it is counted elsewhere."""
        with self._changed:
            session = message_id[:16]
            self._failed[session] = min(self._failed.get(session, message_id), message_id)
            self._accounted[message_id] = self._accounted.get(message_id, 0) + 1
            if len(self._accounted) > _MAX_ACCOUNTED:
                del self._accounted[next(iter(self._accounted))]

    # on the thread that reads

    def _run(self) -> None:
        while (job := self._next()) is not None:
            retries, gaps = job
            try:
                result = self._read(gaps, _LAST_READ_TIMEOUT if self._stopping else _READ_TIMEOUT)
            except Exception:
                logger.exception(**with_fields("gaps were not read", topic=gaps[0].topic))
                result = GapReadResult(unread=_offset_counts(gaps))
            with self._changed:
                if self._reading is not gaps:
                    return  # `stop` timed out and has counted these gaps
                retry = result.incomplete and retries < _MAX_RETRIES and not self._stopping
                if retry:
                    self._waiting.append((retries + 1, gaps))
                    self._changed.wait_for(lambda: self._stopping, _RETRY_PAUSE)
            if not retry:
                self._count(gaps, result)
            with self._changed:
                self._reading = None
                self._changed.notify_all()

    def _next(self) -> tuple[int, list[PartitionGaps]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            if not self._waiting:
                return None
            retries, gaps = self._waiting.popleft()
            self._reading = gaps
            return retries, gaps

    def _count(self, gaps: Sequence[PartitionGaps], result: GapReadResult) -> None:
        topic, by_partition = gaps[0].topic, {gap.where: gap for gap in gaps}
        copies = sum(
            by_partition[where].may_hold(offset, message_id, self._failed) and self._is_copy(message_id)
            for where, offset, message_id in result.records
        )
        unread = sum(min(gap.own, gap.unlisted + result.unread.get(gap.where, 0)) for gap in gaps)
        for _ in range(copies + unread):
            self._counted(topic)
        counts = {"topic": topic, "copies": copies, "not_read": unread}
        if copies:
            logger.warning(
                **with_fields("records were written twice when the producer epoch was bumped", **counts)
            )
        elif unread:
            text = "offsets could not be checked for duplicates after an epoch bump; all count as possible duplicates"
            logger.warning(**with_fields(text, **counts))

    def _is_copy(self, message_id: bytes) -> bool:
        with self._changed:
            if message_id[:16] not in self._sessions:
                return False
            if count := self._accounted.pop(message_id, 0):
                if count > 1:
                    self._accounted[message_id] = count - 1
                return False
            return True


def _offset_counts(gaps: Sequence[PartitionGaps]) -> dict[TopicPartition, int]:
    return {gap.where: sum(each.end - (each.start or 0) for each in gap.gaps) for gap in gaps}
