"""Monitor acknowledged records: track acknowledgements and errors, query the broker, and report findings."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from producer_core.delivery.loss_detection.ack_checkpoints import PartitionId
from producer_core.delivery.loss_detection.broker_queries import BrokerQueries, RecordQuery
from producer_core.delivery.loss_detection.evidence import CODES, BrokerView, Checkpoint, LossFinding
from producer_core.delivery.loss_detection.investigation import BATCH_DELAY_S, Investigation
from producer_core.delivery.loss_detection.leader_changes import Leaders
from producer_core.delivery.loss_detection.notices import EpochWatch, loss_decided_notice
from producer_core.delivery.loss_detection.open_questions import OpenQuestion
from producer_core.events import Acknowledged, AttemptFailed, Hook, Notice
from producer_core.messages import MessageIds, id_text, new_session
from producer_core.metrics.ack_batch import Acknowledgements

_MAX_PER_ROUND = 100
_ROUND_S, _LAST_ROUND_S = 5.0, 2.0
"""Time limits in seconds of one round of queries, and of the last one on close."""
_FATAL_PARTITION = re.compile(r"for ([a-zA-Z0-9._-]+) \[(\d+)\]")


@dataclass(frozen=True)
class MonitorSettings:
    """When a partition is checked. The first three settings are in seconds.

    A partition is checked after `idle` without a write or after an epoch rise, but not again within `check_interval`.
    A loss is reported when a second check, `confirm_delay` later, shows it too.
    """

    idle: float = 60.0
    check_interval: float = 60.0
    confirm_delay: float = 1.0
    max_partitions: int = 50_000
    max_questions: int = 1_000


class AckedLogMonitor(Hook):
    """Check whether the log still has its acknowledged records.

    As a hook it spends a few nanoseconds per message on the poll thread. A thread of its own queries the broker and
    calls `emit` with the notices. `ids` are the ids of this producer's messages. Without `queries` the monitor only
    records acknowledgements.
    """

    def __init__(
        self,
        queries: BrokerQueries | None,
        emit: Callable[[Notice], None],
        *,
        ids: MessageIds | None = None,
        settings: MonitorSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queries = queries
        self._emit = emit
        self._ids = ids or MessageIds(new_session())
        settings = settings or MonitorSettings()
        self._idle = settings.idle
        self._clock = clock
        self._changed = threading.Condition()  # guards everything below
        self._investigation = Investigation(
            ids=self._ids,
            check_interval=settings.check_interval,
            confirm_delay=settings.confirm_delay,
            max_partitions=settings.max_partitions,
            max_questions=settings.max_questions,
        )
        self._epochs = EpochWatch()
        self._leaders = Leaders(settings.max_partitions)
        self._outbox: list[Notice] = []
        self._check_all = False
        self._topics_without_id: set[str] = set()  # topics whose id has not been queried
        self._topic_ids_due = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="producer-core-loss-detection", daemon=True)

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        now = self._clock()
        with self._changed:
            acks = Acknowledgements.of(batch)
            for first, last in acks.runs():
                if acks.offsets[first] is None:
                    self._on_duplicate(acks[first], now)
                else:
                    self._on_written(acks, first, last, now)

    def attempt_failed(self, event: AttemptFailed) -> None:
        with self._changed:
            self._epochs.failed(event.code, event.topic)
            if event.code in CODES:
                self._suspect(event.code, event.topic, None, event.text)

    def notice(self, notice: Notice) -> None:
        code = notice.details.get("code")
        if notice.kind != "fatal_error" or code is None or code not in CODES:
            return
        match = _FATAL_PARTITION.search(notice.text)
        with self._changed:
            if match is not None:
                self._suspect(code, match[1], int(match[2]), notice.text)
                return
            for topic in self._investigation.checkpoints.topics():
                self._suspect(code, topic, None, notice.text)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        now = self._clock()
        with self._changed:
            epoch_notice = self._epochs.statistics(statistics.get("eos") or {}, now)
            if epoch_notice is not None:
                self._outbox.append(epoch_notice)
                self._check_all = True
            changes = list(self._leaders.statistics(statistics.get("topics") or {}))
            if self._queries is not None:
                for key, change in changes:
                    self._investigation.leader_changed(key, change, now)
            self._investigation.checkpoints.next_window()
            if epoch_notice is not None or changes:
                self._changed.notify_all()

    # findings

    @property
    def findings(self) -> tuple[LossFinding, ...]:
        """Return the last thousand findings, oldest first."""
        with self._changed:
            return tuple(self._investigation.findings)

    @property
    def lost(self) -> Mapping[PartitionId, LossFinding]:
        """Return the partitions with lost acknowledged records, until an operator resumes their topic."""
        with self._changed:
            return dict(self._investigation.lost)

    def resume_topic(self, topic: str) -> int:
        """Resume a topic after an operator's decision. Return how many of its partitions had lost records."""
        with self._changed:
            lost_partitions = sorted(key for key in self._investigation.lost if key[0] == topic)
            for key in lost_partitions:
                del self._investigation.lost[key]
            if lost_partitions:
                self._outbox.append(loss_decided_notice(topic, lost_partitions, self._clock()))
                self._changed.notify_all()
        return len(lost_partitions)

    def remember(self, offsets: Mapping[PartitionId, int]) -> None:
        """Set the checkpoints from an earlier run: the settled offsets of a journal."""
        with self._changed:
            for (topic, partition), offset in offsets.items():
                self._investigation.checkpoints.put(topic, partition, Checkpoint(offset, -1, 0.0))

    def check(self, topic: str, partition: int) -> None:
        """Check a partition now."""
        with self._changed:
            if self._queries is not None:
                checkpoint = self._investigation.checkpoints.get(topic, partition)
                self._investigation.add_question((topic, partition), "asked", checkpoint, self._clock())
                self._changed.notify_all()

    def await_finding(self, topic: str, partition: int, timeout: float) -> LossFinding | None:
        """Wait until no question about a partition is open, and return its newest finding.

        Return None at the timeout, or when the partition was never checked. While the broker cannot be queried, the
        finding `unknown` is returned at once, and the check is repeated.
        """
        key = (topic, partition)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._investigation.is_answered(key), timeout)
            return (
                self._investigation.latest_finding(key, self._clock())
                if self._investigation.is_answered(key)
                else None
            )

    def lost_on(self, topic: str, timeout: float) -> bool:
        """Return whether acknowledged records of a topic are lost, after waiting for suspected losses to be checked."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or not self._investigation.questions.suspected(topic), timeout
            )
            return any(name == topic for name, _ in self._investigation.lost)

    # start and stop

    def start(self) -> None:
        if self._queries is not None:
            self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop. Suspected losses are checked once more, for a short time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # called with the lock held

    def _on_written(self, acks: Acknowledgements, first: int, last: int, now: float) -> None:
        topic, partition, investigation = acks.topics[first], acks.partitions[first], self._investigation
        lowest, highest = acks.offsets[first], acks.offsets[last]
        assert lowest is not None and highest is not None, "runs without offsets are handled as duplicates"
        previous = investigation.checkpoints.put(topic, partition, Checkpoint(highest, acks.seqs[last], now))
        if self._queries is None:
            return
        if topic not in investigation.ids and topic not in self._topics_without_id and previous is None:
            self._request_topic_id(topic, now)
        if previous is not None and lowest <= previous.offset:
            investigation.offsets_fell((topic, partition), previous, now)
            self._changed.notify_all()
        elif previous is not None and now - previous.at > self._idle:
            investigation.add_routine_check((topic, partition), "idle", previous, now)
            self._changed.notify_all()

    def _on_duplicate(self, item: Acknowledged, now: float) -> None:
        """Look up a message acknowledged as DUPLICATE_SEQUENCE_NUMBER, whose offset is unknown."""
        if self._queries is not None and item.seq >= 0:
            key = (item.topic, item.partition)
            self._investigation.add_question(
                key, "duplicate", self._investigation.checkpoints.get(*key), now, message=item.seq
            )
            self._changed.notify_all()

    def _request_topic_id(self, topic: str, now: float) -> None:
        """Request the topic's id, so that a recreated topic of the same name can be recognized."""
        if not self._topics_without_id:
            self._topic_ids_due = now + BATCH_DELAY_S
            self._changed.notify_all()
        self._topics_without_id.add(topic)

    def _suspect(self, code: str, topic: str, partition: int | None, text: str) -> None:
        if self._queries is not None:
            self._outbox += self._investigation.suspect(code, topic, partition, text, self._clock())
            self._changed.notify_all()

    # the thread

    def _run(self) -> None:
        assert self._queries is not None
        stopping = False
        while not stopping:
            with self._changed:
                while not self._has_work():
                    self._changed.wait(self._pause())
                stopping = self._stopping
                outbox, self._outbox = self._outbox, []
                if self._check_all:
                    self._check_all = False
                    self._investigation.check_all(self._clock())
                due = self._investigation.questions.due(self._clock(), _MAX_PER_ROUND, urgent_only=stopping)
                self._investigation.add_late_checkpoints(due)
            self._emit_all(outbox)
            self._ask_round(self._queries, due, _LAST_ROUND_S if stopping else _ROUND_S)
            if not stopping:
                self._query_topic_ids(self._queries)

    def _has_work(self) -> bool:
        due = self._investigation.questions.next_due()
        is_due = due is not None and due <= self._clock()
        return self._stopping or bool(self._outbox) or self._check_all or is_due or self._are_topic_ids_due()

    def _pause(self) -> float:
        """Return the seconds until work is due; a minute if there is none."""
        due, now = self._investigation.questions.next_due(), self._clock()
        moments = [
            moment
            for moment in (due, self._topic_ids_due if self._topics_without_id else None)
            if moment is not None
        ]
        return max(0.01, min((moment - now for moment in moments), default=60.0))

    def _are_topic_ids_due(self) -> bool:
        return bool(self._topics_without_id) and self._clock() >= self._topic_ids_due

    def _query_topic_ids(self, queries: BrokerQueries) -> None:
        with self._changed:
            topics = set(self._topics_without_id) if self._are_topic_ids_due() else set()
        if topics:
            found = queries.topic_ids(topics, _ROUND_S)
            with self._changed:
                self._investigation.ids.update(found)
                self._topics_without_id -= topics  # a cluster without topic ids is not queried again

    def _ask_round(self, queries: BrokerQueries, due: Sequence[OpenQuestion], timeout: float) -> None:
        """Query without the lock. A question that changed during the query is asked again."""
        versions = [question.version for question in due]
        queried = [question for question in due if question.last is not None or question.message is not None]
        views = queries.query([self._query_for(question) for question in queried], timeout) if queried else []
        by_partition = {question.key: view for question, view in zip(queried, views, strict=True)}
        with self._changed:
            notices = []
            for question, version in zip(due, versions, strict=True):
                if question.version == version:
                    view = by_partition.get(question.key, BrokerView())
                    notices += self._investigation.on_answer(question, view, self._clock())

            self._changed.notify_all()
        self._emit_all(notices)

    def _query_for(self, question: OpenQuestion) -> RecordQuery:
        seq = question.message
        message_id = None if seq is None else id_text(self._ids.of(seq))
        return RecordQuery(*question.key, None if question.last is None else question.last.offset, message_id)

    def _emit_all(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._emit(notice)
