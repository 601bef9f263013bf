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
from producer_core.producer.dead_letter_topic.publisher import DONE, DeadLetterPublisher, Round
from producer_core.producer.dead_letter_topic.publishing_client import PublishingClient
from producer_core.producer.dead_letter_topic.store_publications import PublicationOwner, StorePublications
from producer_core.producer.dead_letter_topic.unrecorded_publications import UnrecordedPublications

if TYPE_CHECKING:
    from producer_core.store import Store


_LEFT_LIMIT = 100_000
"""Ids of dead letters on their topic only, of which `get_message_status` returns the state."""


class StorePublishing:
    """Owns the publisher of a `StoreBackend`.

    `store` returns the store if it was opened, `trouble` why it is unavailable. `published` is called with the ids of
    dead letters that were published while the store was not available.
    """

    def __init__(
        self,
        client: PublishingClient,
        owner: PublicationOwner,
        *,
        store: Callable[[], Store | None],
        trouble: Callable[[], str | None],
        limit: int,
        published: Callable[[Iterable[str]], None],
    ) -> None:
        self._trouble = trouble
        self._on_published = published
        self._unrecorded = UnrecordedPublications(owner.clock)
        self._refused: set[str] = set()  # ids that their topic never takes, until the store is available
        self._limit = limit
        self._left: set[str] = set()  # ids of published dead letters that the store will never have
        self._left_unknown = False
        targets = client.targets(lambda: self._publisher.stopping)
        self._direct = DirectPublications(
            targets,
            client.sender(targets, lambda: self._publisher.check_stopping()),
            published=self._published,
            refused=self._note_refused,  # it is recorded when the store has the dead letter
            stopping=lambda: self._publisher.stopping or trouble() is None,
            limit=limit,
        )
        self._stored = StorePublications(
            store,
            owner,
            targets,
            functools.partial(client.sender, targets),
            unrecorded=self._unrecorded,
            in_doubt=self._direct.in_doubt,
            stopping=lambda: self._publisher.stopping,
            closing=lambda: self._publisher.closing,
        )
        self._publisher = DeadLetterPublisher(self, client.open_producer)

    def start(self) -> None:
        self._publisher.start()

    def stop(self, timeout: float) -> None:
        self._publisher.stop(timeout)

    def stored(self) -> None:
        """Tell that the store has new dead letters."""
        self._publisher.wake()

    def unstored(self, dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Publish dead letters that the store does not take now. Return them as they are to be kept."""
        self._direct.add(
            one
            for one in dead_letters
            if not (
                one.message_id in self._unrecorded
                or one.message_id in self._refused
                or one.message_id in self._direct
            )
        )
        self._publisher.wake()
        return [without_safe_verdict(one) for one in dead_letters]

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
        if (
            self._trouble() is not None
        ):  # the recorder tries it once a second; here a wait would delay those in memory
            return direct.with_other(Round(soon=True))
        try:
            stored = self._stored.publish_next(producer)
        except StoreError:
            if self._trouble() is None:
                raise
            stored = Round(soon=True)
        return direct.with_other(stored)

    def _publish_directly(self, producer: Callable[[], PublishingProducer]) -> Round:
        """Publish from memory while the store is not available. Afterwards the store has what is left."""
        waiting = self._direct.ids()  # first: those that are added later may not be in the store
        if self._trouble() is None:
            self._direct.discard(waiting)
            self._refused.clear()
            return DONE
        return self._direct.publish_next(producer)

    def _note_refused(self, message_ids: Iterable[str]) -> None:
        if len(self._refused) > 10 * self._limit:  # those in the spill file are never offered again
            self._refused.clear()
        self._refused.update(message_ids)

    def _published(self, places: Places) -> None:
        self._unrecorded.add(places)
        self._on_published(places)
