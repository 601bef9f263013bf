"""The watch: hears what is acknowledged and what goes wrong, has the broker asked, and tells what was found."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from producer_core.delivery.loss_detection.ack_checkpoints import Key
from producer_core.delivery.loss_detection.broker_queries import BrokerQueries, RecordQuery
from producer_core.delivery.loss_detection.evidence import CODES, BrokerView, Checkpoint, LossFinding
from producer_core.delivery.loss_detection.investigation import SOON, Investigation
from producer_core.delivery.loss_detection.leaders import Leaders
from producer_core.delivery.loss_detection.notices import EpochWatch, decided
from producer_core.delivery.loss_detection.open_questions import OpenQuestion
from producer_core.events import Acknowledged, AttemptFailed, Hook, Notice
from producer_core.messages import MessageIds, id_text, new_session
from producer_core.metrics.ack_batch import Acknowledgements

_MOST_AT_ONCE = 100
_ROUND, _LAST_ROUND = 5.0, 2.0
"""Seconds that one round of questions may take, and the one at the end."""
_FATAL_ABOUT = re.compile(r"for ([a-zA-Z0-9._-]+) \[(\d+)\]")


@dataclass(frozen=True)
class MonitorSettings:
    """When a partition is checked. The first three are seconds.

    A partition without a write for `idle`, or after an epoch rise, is checked, but not again within `again`. A suspected loss
    is reported when a second check, `confirm` later, shows it too.
    """

    idle: float = 60.0
    again: float = 60.0
    confirm: float = 1.0
    max_partitions: int = 50_000
    max_questions: int = 1_000


class AckedLogMonitor(Hook):
    """Does the log still hold what it acknowledged?

    A hook: what it does on the poll thread costs some nanoseconds a message. Questions are asked by a thread
    of its own. `tell` gets the notices, on that thread. `ids` are those of our messages.
    Without `ask` it remembers and asks nobody. `idle` seconds without a write, and an epoch that rose, are
    reasons to look at a partition, though not again within `again` seconds; what looks lost is said when a
    second look, `confirm` seconds later, shows the same.
    """

    def __init__(
        self,
        ask: BrokerQueries | None,
        tell: Callable[[Notice], None],
        *,
        ids: MessageIds | None = None,
        settings: MonitorSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._asker = ask
        self._tell = tell
        self._ids = ids or MessageIds(new_session())
        settings = settings or MonitorSettings()
        self._idle = settings.idle
        self._clock = clock
        self._changed = threading.Condition()  # guards everything below
        self._inquiry = Investigation(
            ids=self._ids,
            again=settings.again,
            confirm=settings.confirm,
            max_partitions=settings.max_partitions,
            max_questions=settings.max_questions,
        )
        self._epochs = EpochWatch()
        self._leaders = Leaders(settings.max_partitions)
        self._outbox: list[Notice] = []
        self._sweep = False
        self._unnamed: set[str] = set()  # topics whose id was not asked yet
        self._name_at = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="producer-core-standing", daemon=True)

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        now = self._clock()
        with self._changed:
            told = Acknowledgements.of(batch)
            for first, last in told.runs():
                if told.offsets[first] is None:
                    self._duplicate(told[first], now)
                else:
                    self._written(told, first, last, now)

    def attempt_failed(self, event: AttemptFailed) -> None:
        with self._changed:
            self._epochs.failed(event.code, event.topic)
            if event.code in CODES:
                self._suspect(event.code, event.topic, None, event.text)

    def notice(self, notice: Notice) -> None:
        code = notice.details.get("code")
        if notice.kind != "fatal_error" or code is None or code not in CODES:
            return
        about = _FATAL_ABOUT.search(notice.text)
        with self._changed:
            if about is not None:
                self._suspect(code, about[1], int(about[2]), notice.text)
                return
            for topic in self._inquiry.marks.topics():
                self._suspect(code, topic, None, notice.text)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        now = self._clock()
        with self._changed:
            rose = self._epochs.statistics(statistics.get("eos") or {}, now)
            if rose is not None:
                self._outbox.append(rose)
                self._sweep = True
            changes = list(self._leaders.statistics(statistics.get("topics") or {}))
            if self._asker is not None:
                for key, change in changes:
                    self._inquiry.leader_changed(key, change, now)
            self._inquiry.marks.next_window()
            if rose is not None or changes:
                self._changed.notify_all()

    # looking

    @property
    def findings(self) -> tuple[LossFinding, ...]:
        """The last thousand, oldest first."""
        with self._changed:
            return tuple(self._inquiry.findings)

    @property
    def lost(self) -> Mapping[Key, LossFinding]:
        """Partitions on which acknowledged records are missing, until `go_on` says that somebody decided."""
        with self._changed:
            return dict(self._inquiry.lost)

    def resume_topic(self, topic: str) -> int:
        """Somebody decided that a topic goes on; on how many of its partitions something was known to be lost."""
        with self._changed:
            gone = sorted(key for key in self._inquiry.lost if key[0] == topic)
            for key in gone:
                del self._inquiry.lost[key]
            if gone:
                self._outbox.append(decided(topic, gone, self._clock()))
                self._changed.notify_all()
        return len(gone)

    def remember(self, offsets: Mapping[Key, int]) -> None:
        """What an earlier run knows to be settled, from a journal: the marks to begin with."""
        with self._changed:
            for (topic, partition), offset in offsets.items():
                self._inquiry.marks.put(topic, partition, Checkpoint(offset, -1, 0.0))

    def check(self, topic: str, partition: int) -> None:
        """Ask now, for no other reason."""
        with self._changed:
            if self._asker is not None:
                mark = self._inquiry.marks.get(topic, partition)
                self._inquiry.ask((topic, partition), "asked", mark, self._clock())
                self._changed.notify_all()

    def await_finding(self, topic: str, partition: int, timeout: float) -> LossFinding | None:
        """The newest finding about a partition, once nothing is open about it.

        None when the time ran out first, or when nothing was ever asked. When nobody can say, the finding is
        `unknown`: it is returned at once, and asked on meanwhile.
        """
        key = (topic, partition)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._inquiry.answered(key), timeout)
            return self._inquiry.latest(key, self._clock()) if self._inquiry.answered(key) else None

    def lost_on(self, topic: str, timeout: float) -> bool:
        """Whether acknowledged records of a topic are missing, once what is suspected there was asked about."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or not self._inquiry.questions.suspected(topic), timeout
            )
            return any(name == topic for name, _ in self._inquiry.lost)

    # a life

    def start(self) -> None:
        if self._asker is not None:
            self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End; what is suspected is asked once more, for a short time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # under the lock

    def _written(self, told: Acknowledgements, first: int, last: int, now: float) -> None:
        topic, partition, inquiry = told.topics[first], told.partitions[first], self._inquiry
        lowest, highest = told.offsets[first], told.offsets[last]
        assert lowest is not None and highest is not None, "a run without offsets is one duplicate"
        before = inquiry.marks.put(topic, partition, Checkpoint(highest, told.seqs[last], now))
        if self._asker is None:
            return
        if topic not in inquiry.ids and topic not in self._unnamed and before is None:
            self._name(topic, now)
        if before is not None and lowest <= before.offset:
            self._routine((topic, partition), "not_rising", before, now)
        elif before is not None and now - before.at > self._idle:
            self._routine((topic, partition), "idle", before, now)

    def _routine(self, key: Key, trigger: Any, before: Checkpoint, now: float) -> None:
        self._inquiry.routine(key, trigger, before, now)
        self._changed.notify_all()

    def _duplicate(self, item: Acknowledged, now: float) -> None:
        """DUPLICATE_SEQUENCE_NUMBER: a success whose offset nobody knows, so the message itself is looked for."""
        if self._asker is not None and item.seq >= 0:
            key = (item.topic, item.partition)
            self._inquiry.ask(key, "duplicate", self._inquiry.marks.get(*key), now, message=item.seq)
            self._changed.notify_all()

    def _name(self, topic: str, now: float) -> None:
        """Have the topic's id asked, so that a topic made anew under its name can be told from it."""
        if not self._unnamed:
            self._name_at = now + SOON
            self._changed.notify_all()
        self._unnamed.add(topic)

    def _suspect(self, code: str, topic: str, partition: int | None, text: str) -> None:
        if self._asker is not None:
            self._outbox += self._inquiry.suspect(code, topic, partition, text, self._clock())
            self._changed.notify_all()

    # the thread

    def _run(self) -> None:
        assert self._asker is not None
        stopping = False
        while not stopping:
            with self._changed:
                while not self._something_to_do():
                    self._changed.wait(self._pause())
                stopping = self._stopping
                outbox, self._outbox = self._outbox, []
                if self._sweep:
                    self._sweep = False
                    self._inquiry.sweep(self._clock())
                due = self._inquiry.questions.due(self._clock(), _MOST_AT_ONCE, urgent_only=stopping)
                self._inquiry.gather(due)
            self._tell_all(outbox)
            self._ask_round(self._asker, due, _LAST_ROUND if stopping else _ROUND)
            if not stopping:
                self._name_topics(self._asker)

    def _something_to_do(self) -> bool:
        due = self._inquiry.questions.next_due()
        waits = due is not None and due <= self._clock()
        return self._stopping or bool(self._outbox) or self._sweep or waits or self._naming_due()

    def _pause(self) -> float:
        """Seconds until something is due; a minute where nothing is."""
        due, now = self._inquiry.questions.next_due(), self._clock()
        moments = [moment for moment in (due, self._name_at if self._unnamed else None) if moment is not None]
        return max(0.01, min((moment - now for moment in moments), default=60.0))

    def _naming_due(self) -> bool:
        return bool(self._unnamed) and self._clock() >= self._name_at

    def _name_topics(self, asker: BrokerQueries) -> None:
        with self._changed:
            topics = set(self._unnamed) if self._naming_due() else set()
        if topics:
            found = asker.topic_ids(topics, _ROUND)
            with self._changed:
                self._inquiry.ids.update(found)
                self._unnamed -= topics  # a cluster without ids is not asked again

    def _ask_round(self, asker: BrokerQueries, due: Sequence[OpenQuestion], timeout: float) -> None:
        """Looks are made without the lock; one whose question changed meanwhile came too early, and is made again."""
        versions = [question.version for question in due]
        asked = [question for question in due if question.last is not None or question.message is not None]
        looks = asker.look([self._wanted(question) for question in asked], timeout) if asked else []
        seen = {question.key: look for question, look in zip(asked, looks, strict=True)}
        with self._changed:
            notices = []
            for question, version in zip(due, versions, strict=True):
                if question.version == version:
                    look = seen.get(question.key, BrokerView())
                    notices += self._inquiry.answer(question, look, self._clock())
            self._changed.notify_all()
        self._tell_all(notices)

    def _wanted(self, question: OpenQuestion) -> RecordQuery:
        doubt = question.message
        message_id = None if doubt is None else id_text(self._ids.of(doubt))
        return RecordQuery(*question.key, None if question.last is None else question.last.offset, message_id)

    def _tell_all(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._tell(notice)
