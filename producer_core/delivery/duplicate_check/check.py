"""The check for duplicates: counts what the idempotent client wrote twice when its epoch rose.

A refused record or an expired one makes librdkafka begin a new epoch, in which all partitions count from 0 again. A batch
whose answer was lost is sent again under a number that no broker has seen: it is written a second time and acknowledged
(kafka-real-notes 1.1). No report tells it. The statistics show the epoch once a second; what the first copies are is read
from the gaps (`gaps.py`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.duplicate_check.gap_reader import GapReadResult, Read
from producer_core.delivery.duplicate_check.offset_gaps import OffsetGaps, PartitionGaps, TopicPartition
from producer_core.events import Acknowledged, AttemptFailed, Hook
from producer_core.messages import parse_id
from producer_core.metrics.ack_batch import Acknowledgements

logger = logging.getLogger(__name__)

_MOST_KNOWN = 100_000
_PATIENCE, _LAST, _PAUSE = 10.0, 2.0, 2.0
"""Seconds that one reading may take, and one at the end, and until the next one where a broker was away."""
_TRIES = 15
_AFTERWARDS = 40
"""Statistics, a second apart, after an ambiguous failure in which a copy of its message may still be appended."""
_LATE = 3
"""Ticks after a failed attempt in which the epoch may still rise without being seen, at the end."""


class DuplicateCheck(Hook):
    """Counts on a thread of its own, made when the epoch rises for the first time.

    A rise makes ambiguous whatever is in flight at that moment (`in_flight`). When all of a topic's is acknowledged, the
    gaps of that time are read: each of our records in them is a copy. What cannot be read counts as if it were.
    `counted` hears the topic of each copy. The acknowledgements and the statistics come on the poll thread.
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
        # touched on the poll thread only
        self._gaps = OffsetGaps(self._know)
        self._epochs: dict[int, int] = {}  # by producer id
        self._open: dict[str, set[bytes]] = {}  # by topic: what was in flight when the epoch rose
        self._suspicious = 0  # ticks
        self._risen = False
        self._ambiguous: dict[
            str, int
        ] = {}  # by topic: ticks in which a copy of a failed attempt may still come
        self._changed = threading.Condition()  # guards everything below
        self._known: dict[bytes, int] = {}  # by id: copies that are counted elsewhere
        self._failed: dict[bytes, bytes] = {}  # by session: the lowest id whose attempt may have been written
        self._sessions: set[bytes] = set()
        self._waiting: deque[tuple[int, list[PartitionGaps]]] = deque()
        self._reading: list[PartitionGaps] | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        if isinstance(batch, Acknowledgements):  # else a look found it, whose attempt had failed
            self._gaps.note(batch)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """What becomes of it is counted when it is sent again, or its dead letter tells it."""
        self._suspicious = _LATE
        if event.ambiguous:
            self._ambiguous[event.topic] = _AFTERWARDS
            self._know(parse_id(event.message_id))

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        if self._rose(statistics.get("eos") or {}):
            self._begin()
        for topic in self._settled():
            del self._open[topic]
            self._look(topic)
        self._suspicious = max(0, self._suspicious - 1)
        self._wait_for_late_copies()
        self._gaps.tick(lambda topic: topic in self._open or (self._risen and topic in self._ambiguous))

    def stop(self, timeout: float = 5.0) -> None:
        """Read what is suspected once, at the end of the producer; count it where it cannot be read in time."""
        if self._open or self._suspicious:
            for topic in self._gaps.topics():
                self._look(topic)
        if self._risen:
            for topic in self._ambiguous:
                self._look(topic, tails=True)
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
            self._count(gaps, GapReadResult(unread=_all_of(gaps)))

    def wait(self, timeout: float) -> bool:
        """Until every gap that is suspected was read; False when the time ran out first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._reading is None, timeout)

    # on the poll thread

    def _rose(self, eos: Mapping[str, Any]) -> bool:
        """A producer id begins with epoch 0, and a new client has a new id."""
        producer_id, epoch = eos.get("producer_id", -1), eos.get("producer_epoch", -1)
        if producer_id < 0 or epoch < 0:
            return False
        before, self._epochs[producer_id] = self._epochs.get(producer_id, 0), epoch
        return bool(epoch != before)

    def _wait_for_late_copies(self) -> None:
        """Read once more where a message failed that was perhaps sent in two epochs: its second copy may have come late."""
        for topic in list(self._ambiguous):
            self._ambiguous[topic] -= 1
            if not self._ambiguous[topic]:
                del self._ambiguous[topic]
                if self._risen:
                    self._look(topic)

    def _begin(self) -> None:
        """Whatever is in flight may be written twice, and so may what was acknowledged since the statistics before."""
        self._risen = True
        for topic in self._gaps.topics():
            self._open.setdefault(topic, set())
        sessions = set()
        for delivery in self._in_flight():
            self._open.setdefault(delivery.topic, set()).add(delivery.id)
            sessions.add(delivery.id[:16])
        with self._changed:
            self._sessions |= sessions

    def _settled(self) -> list[str]:
        """The topics of which nothing is in flight any more that was when the epoch rose."""
        if any(self._open.values()):
            flying = {delivery.id for delivery in self._in_flight()}
            for suspects in self._open.values():
                suspects &= flying
        return [topic for topic, suspects in self._open.items() if not suspects]

    def _look(self, topic: str, *, tails: bool = False) -> None:
        gaps = self._gaps.take(topic, tails=tails)
        if not gaps:
            return
        with self._changed:
            self._sessions |= self._gaps.sessions
            self._waiting.append((0, gaps))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="producer-core-copies", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _know(self, message_id: bytes) -> None:
        """One copy of it is accounted for."""
        with self._changed:
            session = message_id[:16]
            self._failed[session] = min(self._failed.get(session, message_id), message_id)
            self._known[message_id] = self._known.get(message_id, 0) + 1
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    # on its own thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            tries, gaps = job
            try:
                found = self._read(gaps, _LAST if self._stopping else _PATIENCE)
            except Exception:
                logger.exception("gaps were not read", extra={"topic": gaps[0].topic})
                found = GapReadResult(unread=_all_of(gaps))
            with self._changed:
                if self._reading is not gaps:
                    return  # `stop` did not wait for it, and counted it
                again = found.passing and tries < _TRIES and not self._stopping
                if again:
                    self._waiting.append((tries + 1, gaps))
                    self._changed.wait_for(lambda: self._stopping, _PAUSE)
            if not again:
                self._count(gaps, found)
            with self._changed:
                self._reading = None
                self._changed.notify_all()

    def _next(self) -> tuple[int, list[PartitionGaps]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            if not self._waiting:
                return None
            tries, gaps = self._waiting.popleft()
            self._reading = gaps
            return tries, gaps

    def _count(self, gaps: Sequence[PartitionGaps], found: GapReadResult) -> None:
        topic, by_place = gaps[0].topic, {gap.where: gap for gap in gaps}
        seen = sum(
            by_place[where].may_hold(offset, message_id, self._failed) and self._is_copy(message_id)
            for where, offset, message_id in found.records
        )
        unread = sum(min(gap.own, gap.unlisted + found.unread.get(gap.where, 0)) for gap in gaps)
        for _ in range(seen + unread):
            self._counted(topic)
        if seen + unread:
            told = {"topic": topic, "copies": seen, "not_read": unread}
            logger.warning("records were written twice when the client's epoch rose", extra=told)

    def _is_copy(self, message_id: bytes) -> bool:
        with self._changed:
            if message_id[:16] not in self._sessions:
                return False
            if left := self._known.pop(message_id, 0):
                if left > 1:
                    self._known[message_id] = left - 1
                return False
            return True


def _all_of(gaps: Sequence[PartitionGaps]) -> dict[TopicPartition, int]:
    return {gap.where: sum(each.end - (each.start or 0) for each in gap.gaps) for gap in gaps}
