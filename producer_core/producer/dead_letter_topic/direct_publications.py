"""Publish dead letters from memory while the store is not available."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.dlq.topics.slice_publisher import place
from producer_core.dlq.topics.topic_sender import PublishingProducer, TopicSender
from producer_core.events import DeadLetter
from producer_core.producer.dead_letter_topic.publisher import DONE, Round
from producer_core.producer.dead_letter_topic.targets import NO_TOPIC, UNFIT_CODES, TargetNames, reasons

logger = queued_logger(__name__)

_SLICE = 1000
_SLICE_BYTES = 16 * 1024 * 1024
_WAITING_BYTES = 256 * 1024 * 1024

Places = dict[str, str]
"""By message id: where the dead letter was written, as the text of its event."""


class DirectPublications:
    """Keeps up to `limit` dead letters that wait for their publication, and at most 256 MiB of keys and values.

    `published` is called with the places of published dead letters, and `refused` with the reasons of dead letters that can
    never be published. Both run on the publisher's thread. After a failed attempt, the topic is searched before the next
    one. If that is not permitted, the dead letter is sent again, so readers may find two records of one id.
    """

    def __init__(
        self,
        targets: TargetNames,
        sender: TopicSender,
        *,
        published: Callable[[Places], None],
        refused: Callable[[dict[str, str]], None],
        stopping: Callable[[], bool],
        limit: int,
    ) -> None:
        self._targets = targets
        self._sender = sender
        self._published = published
        self._refused = refused
        self._stopping = stopping
        self._limit = limit
        self._lock = threading.RLock()  # guards `_waiting` and `_bytes`; a signal handler may add too
        self._waiting: dict[str, DeadLetter] = {}
        self._bytes = 0
        self.in_doubt: dict[str, float] = {}  # by id: when an attempt with an unknown outcome began
        self._alone: set[str] = set()  # a broker refuses whole batches: these are sent one by one

    # any thread

    def add(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Keep dead letters until they are published. Beyond the limit they are left to the store. Never blocks."""
        with self._lock:
            for dead_letter in dead_letters:
                self._forget_waiting(dead_letter.message_id)
                if self._has_room_for(dead_letter):
                    self._waiting[dead_letter.message_id] = dead_letter
                    self._bytes += _size(dead_letter)

    def discard(self, message_ids: Iterable[str]) -> None:
        """Forget these dead letters."""
        with self._lock:
            for message_id in message_ids:
                self._forget_waiting(message_id)
                self._alone.discard(message_id)

    def _forget_waiting(self, message_id: str) -> None:
        known = self._waiting.pop(message_id, None)
        self._bytes -= 0 if known is None else _size(known)

    def _has_room_for(self, dead_letter: DeadLetter) -> bool:
        return len(self._waiting) < self._limit and self._bytes + _size(dead_letter) <= _WAITING_BYTES

    def all(self) -> list[DeadLetter]:
        """Return the dead letters that wait."""
        with self._lock:
            return list(self._waiting.values())

    def ids(self) -> list[str]:
        with self._lock:
            return list(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._waiting

    # the publisher's thread

    def publish_next(self, producer: Callable[[], PublishingProducer]) -> Round:
        while self._waiting and not self._stopping():
            trouble = ""
            for slice_ in self._slices(self.all()):
                trouble = self._publish(slice_, producer) or trouble
                if self._stopping():
                    break
            if trouble:
                return Round(again=True, trouble=trouble)
        return DONE

    def _publish(self, dead_letters: Sequence[DeadLetter], producer: Callable[[], PublishingProducer]) -> str:
        """Publish a slice. Return why some of it is to be tried again; empty if nothing is."""
        targets = self._targets.of(dead_letters)
        troubles = {"": targets.trouble} if targets.trouble else {}
        places, unknown = self._find(targets.topics)
        refused = dict(targets.refused)
        troubles |= unknown
        to_send = [
            one
            for one in dead_letters
            if one.message_id in targets.topics and one.message_id not in places | unknown
        ]
        if to_send:
            for one in to_send:  # first: an error in the middle leaves some of them sent
                self.in_doubt.setdefault(one.message_id, one.failed_at)
            sent = self._send(producer(), to_send, targets.topics)
            places |= sent.places
            refused |= sent.refused
            troubles |= sent.troubles
        self._settle_published(places)
        self._settle_refused(refused)
        return reasons(troubles)

    def _find(self, topics: dict[str, str]) -> tuple[Places, dict[str, str]]:
        """Look for dead letters in doubt. Return the places of those found, and the reasons that a later look may lift."""
        probed = self._sender.find(
            {one: self.in_doubt[one] for one in topics if one in self.in_doubt}, topics
        )
        found = {
            one: place(topics[one], probe.partition, probe.offset)
            for one, probe in probed.items()
            if probe.outcome == "found"
        }
        unknown = {
            one: probe.text
            for one, probe in probed.items()
            if probe.outcome == "inconclusive" and probe.transient
        }
        return found, unknown

    def _send(
        self, producer: PublishingProducer, dead_letters: Sequence[DeadLetter], topics: dict[str, str]
    ) -> _Sent:
        sent = self._sender.send(producer, dead_letters, topics)
        outcome = _Sent(refused=dict(sent.invalid))
        for one in sent.results:
            code = one.dead_letter.code if one.dead_letter else ""
            if one.outcome == "acknowledged":
                outcome.places[one.message_id] = place(topics[one.message_id], one.partition, one.offset)
            elif code in UNFIT_CODES and len(dead_letters) == 1:
                outcome.refused[one.message_id] = one.text
            else:
                outcome.troubles[one.message_id] = one.text
                if code in UNFIT_CODES:
                    self._alone.add(one.message_id)
        if outcome.troubles:
            self._targets.forget(topics.values())
        if sent.error is not None:
            outcome.troubles[""] = str(sent.error)
        return outcome

    def _settle_published(self, places: Places) -> None:
        if places:
            self._forget(places)
            self._published(places)

    def _settle_refused(self, refused: dict[str, str]) -> None:
        if refused:
            self._forget(refused)
            self._refused(refused)

    def _forget(self, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            self.in_doubt.pop(message_id, None)
        self.discard(message_ids)

    def _slices(self, dead_letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
        """Yield the dead letters in slices, and alone those that the broker refused together with others."""
        slice_: list[DeadLetter] = []
        size = 0
        for one in dead_letters:
            bytes_ = _size(one)
            alone = one.message_id in self._alone
            if slice_ and (alone or len(slice_) == _SLICE or size + bytes_ > _SLICE_BYTES):
                yield slice_
                slice_, size = [], 0
            if alone:
                yield [one]
                continue
            slice_.append(one)
            size += bytes_
        if slice_:
            yield slice_


def log_refused(refused: Mapping[str, str]) -> None:
    """Log the distinct reasons why dead letters can never be published."""
    for reason in dict.fromkeys(refused.values()):
        if reason != NO_TOPIC:
            logger.error(**with_fields("dead letter cannot be published", error=mask_or_hide(reason)))


def _size(dead_letter: DeadLetter) -> int:
    return len(dead_letter.value or b"") + len(dead_letter.key or b"")


@dataclass
class _Sent:
    places: Places = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
