"""Remember what was published while the store was not available, until the store records it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from producer_core.dlq import lookup
from producer_core.dlq.published_verdict import PUBLISHED
from producer_core.producer.dead_letter_topic.direct_publications import Places
from producer_core.store import safe_verdicts

if TYPE_CHECKING:
    from producer_core.dlq.topics.slice_publisher import PublicationEvents

_LIMIT = 100_000


class UnrecordedPublications:
    """The places of published dead letters without an event. Above the limit only the time of the latest is kept.

    Dead letters that died until `unknown_until` must therefore be looked for on their topics.
    """

    def __init__(self, clock: Callable[[], float], *, limit: int = _LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._places: Places = {}
        self.unknown_until = float("-inf")

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._places

    def add(self, places: Places) -> None:
        if len(self._places) < self._limit:
            self._places.update(places)
        else:
            self.unknown_until = self._clock()

    def drop(self, message_ids: Iterable[str]) -> None:
        """Forget dead letters that the store will never have. Any thread may call this."""
        for message_id in message_ids:
            self._places.pop(message_id, None)

    def record(self, events: PublicationEvents) -> Collection[str]:
        """Record those that the store has by now. Return their ids."""
        places = dict(self._places)
        if not places:
            return ()
        with events.store.borrow(write=True) as connection:
            rows = lookup.fetch_rows(connection, "dead_letters", ["message_id"], list(places))
            stored = {message_id: places[message_id] for (message_id,) in rows}
            events.write(connection, "published", stored)
            safe_verdicts.revoke(connection, PUBLISHED, *lookup.id_in(list(stored)))
        self.drop(stored)
        return stored
