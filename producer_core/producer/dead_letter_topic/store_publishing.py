"""Publish the dead letters of a producer with a store: from the store, and from memory while it is not available."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from producer_core.dlq.published_verdict import without_safe_verdict
from producer_core.dlq.topics.topic_sender import PublishingProducer
from producer_core.errors import StoreError
from producer_core.events import DeadLetter
from producer_core.producer.dead_letter_topic.direct_publications import DirectPublications, Places
from producer_core.producer.dead_letter_topic.publisher import (
    DONE,
    DeadLetterPublisher,
    FailingPublication,
    Round,
)
from producer_core.producer.dead_letter_topic.publishing_client import PublishingClient
from producer_core.producer.dead_letter_topic.store_publications import PublicationOwner, StorePublications
from producer_core.producer.dead_letter_topic.unpublished_copies import UnpublishedCopies
from producer_core.producer.dead_letter_topic.unrecorded_publications import UnrecordedPublications

if TYPE_CHECKING:
    from producer_core.store import Store


_LEFT_LIMIT = 100_000
"""Ids of dead letters on their topic only, of which `get_message_status` returns the state."""


class StorePublishing:
    """Owns the publisher of a `StoreBackend`.

    `store` returns the store if it was opened, `trouble` why it is unavailable, and `spilled` whether some may be in the
    spill file and not in the store. `published` is called with the ids of dead letters that were published while the store
    was not available.
    """

    def __init__(
        self,
        client: PublishingClient,
        owner: PublicationOwner,
        *,
        store: Callable[[], Store | None],
        trouble: Callable[[], str | None],
        spilled: Callable[[], bool],
        limit: int,
        published: Callable[[Iterable[str]], None],
    ) -> None:
        self._trouble = trouble
        self._on_published = published
        self._unrecorded = UnrecordedPublications(owner.clock)
        self._copies = UnpublishedCopies(store, spilled=spilled, limit=limit)
        self._refused: set[str] = set()  # ids that their topic never takes, until the store is available
        self._file_is_missing = False  # the store could not create its file again
        self._limit = limit
        self._left: set[str] = set()  # ids of published dead letters that the store will never have
        self._left_unknown = False
        targets = client.targets(lambda: self._publisher.stopping)
        self._direct = DirectPublications(
            targets,
            client.sender(targets, lambda: self._publisher.check_stopping()),
            published=self._published,
            refused=self._note_refused,  # it is recorded when the store has the dead letter
            stopping=lambda: self._publisher.stopping or self._store_is_available(),
            limit=limit,
        )
        self._stored = StorePublications(
            store,
            owner,
            targets,
            functools.partial(client.sender, targets),
            unrecorded=self._unrecorded,
            copies=self._copies,
            in_doubt=self._direct.in_doubt,
            publisher=lambda: self._publisher,
        )
        self._publisher = DeadLetterPublisher(self, client.open_producer)

    def start(self) -> None:
        self._publisher.start()

    def stop(self, timeout: float) -> None:
        self._publisher.stop(timeout)
        self._copies.close()

    @property
    def lost(self) -> int:
        """The number of dead letters that a disk had accepted and that no place has now."""
        return self._copies.lost

    def failing(self) -> FailingPublication | None:
        """Return why dead letters wait for their topic, if any does."""
        return self._publisher.failing()

    def keep_copies(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Keep dead letters that are on disk until they are published."""
        self._copies.add(dead_letters)

    def stored(self) -> None:
        """Tell that the store has new dead letters."""
        self._publisher.wake()

    def unstored(self, dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Publish dead letters that the store does not take now. Return them as they are to be kept."""
        self._direct.add(self._not_offered(dead_letters))
        self._publisher.wake()
        return [without_safe_verdict(one) for one in dead_letters]

    def _not_offered(self, dead_letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        return [
            one
            for one in dead_letters
            if not (
                one.message_id in self._unrecorded
                or one.message_id in self._refused
                or one.message_id in self._direct
            )
        ]

    def dropped(self, message_ids: Iterable[str]) -> None:
        """Tell that published dead letters made room and will never be in the store."""
        message_ids = list(message_ids)
        self._unrecorded.drop(message_ids)
        if len(self._left) + len(message_ids) <= _LEFT_LIMIT:
            self._left.update(message_ids)
        else:
            self._left_unknown = True

    def state_of_dropped(self, message_id: str) -> str | None:
        """Return "dead" for a dead letter that is on its topic only, and "unknown" once there were too many to remember."""
        if message_id in self._left:
            return "dead"
        return "unknown" if self._left_unknown else None

    def publish_next(self, producer: Callable[[], PublishingProducer]) -> Round:
        """Publish from memory while the store is not available, and from the store."""
        direct = self._publish_directly(producer)
        if not self._store_is_available():
            # The recorder tries it once a second. Here, a wait would delay those in memory.
            return direct.with_other(Round(soon=True))
        try:
            stored = self._stored.publish_next(producer)
        except StoreError:
            self._file_is_missing = self._copies.without_file
            if self._store_is_available():
                raise
            stored = Round(soon=True, more=self._file_is_missing)
        return direct.with_other(stored)

    def _publish_directly(self, producer: Callable[[], PublishingProducer]) -> Round:
        """Publish from memory while the store is not available. Afterwards the store has what is left."""
        waiting = self._direct.ids()  # first: those that are added later may not be in the store
        if self._store_is_available():
            self._direct.discard(waiting)
            self._refused.clear()
            return DONE
        self._add_copies()
        result = self._direct.publish_next(producer)
        return result if result.again or not self._add_copies() else Round(more=True)

    def _add_copies(self) -> bool:
        """Publish from memory what was stored in a file that is gone. Return whether there is any."""
        copies = self._not_offered(self._copies.unpublished())
        if not copies or not self._copies.without_file:
            return False
        for one in copies:  # its publication from the store may have begun
            self._direct.in_doubt.setdefault(one.message_id, one.accepted_at)
        self._direct.add(copies)
        return True

    def _store_is_available(self) -> bool:
        """Whether the store takes dead letters. The recorder tells it only while it has any, and not while closing."""
        return self._trouble() is None and not (self._file_is_missing and self._copies.without_file)

    def _note_refused(self, message_ids: Iterable[str]) -> None:
        if len(self._refused) > 10 * self._limit:  # those in the spill file are never offered again
            self._refused.clear()
        self._refused.update(message_ids)

    def _published(self, places: Places) -> None:
        self._publisher.progressed()
        self._unrecorded.add(places)
        self._on_published(places)  # before the copies: the writer may be about to make one
        self._copies.published(places)
