"""Publish the dead letters that a store has and that their producer has not published yet."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from producer_core.dlq import DeadLetters
from producer_core.dlq.codec import OLDEST_FIRST
from producer_core.dlq.event_lookup import find_events
from producer_core.dlq.topics.publisher import LEASE_NAME, Listed, by_size
from producer_core.dlq.topics.slice_publisher import PublicationEvents, SlicePublisher, SliceResult
from producer_core.dlq.topics.topic_sender import PublishingProducer, TopicSender
from producer_core.errors import ProducerClosed, ReplayError
from producer_core.producer.dead_letter_topic.direct_publications import log_refused
from producer_core.producer.dead_letter_topic.lookup_ahead import Upcoming
from producer_core.producer.dead_letter_topic.publisher import DONE, DeadLetterPublisher, Round
from producer_core.producer.dead_letter_topic.targets import UNFIT_CODES, TargetNames, reasons
from producer_core.producer.dead_letter_topic.unpublished_copies import UnpublishedCopies
from producer_core.producer.dead_letter_topic.unrecorded_publications import UnrecordedPublications
from producer_core.store.lease import Lease

if TYPE_CHECKING:
    from producer_core.events import DeadLetter
    from producer_core.store import Store

ORIGIN = "producer"
"""The origin of the events of producers' publications."""
SETTING = "dead_letter_topic"
"""The key of a producer's settings in the store by which its dead letters are recognized after it ended."""
_LISTING_ROWS = 2_000
"""Dead letters of one query. DuckDB sorts the whole table for 20,000, which takes 25 times as long."""
_LISTINGS = 10
"""Queries of one step, which looks for its dead letters with one reading of each topic."""
_ENDED_AFTER_S = 30.0
"""Seconds without a heartbeat after which a producer counts as ended."""
_LEASE_S = 75.0
"""Seconds of the lease. A lookup of 60 seconds fits, so that its result can be used. A producer that is killed delays the next
one by as long."""
_SEARCH_ENDED_S = 30.0
"""Seconds between two searches for producers that ended."""
_OVERLAP_S = 10.0
"""Seconds before the last search that the next one covers again: a transaction commits after it read the clock."""
_IN_FLIGHT_S = 300.0
"""Seconds for which a broker may still append what a killed process sent. Until then a lookup directly before the send
decides, and none ahead of it."""
_START = (float("-inf"), "")
_LISTING = f"""
SELECT message_id, accepted_at, topic, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size
FROM dead_letters WHERE state = 'dead' AND state_at >= ? AND producer_id IN (SELECT unnest(?::VARCHAR[]))
  AND cluster_id IN ('', ?)
  AND (accepted_at > ? OR (accepted_at = ?
    AND (length(message_id) > ? OR (length(message_id) = ? AND message_id > ?))))
ORDER BY {OLDEST_FIRST} LIMIT ?"""
_ENDED = f"""
SELECT producer_id, settings FROM producers
WHERE cluster_id IN ('', ?) AND ? <> '' AND producer_id != ? AND settings LIKE '%{SETTING}%' AND application IN ('', ?)
  AND (closed_at IS NOT NULL OR seen_at < ?)"""


@dataclass(frozen=True)
class PublicationOwner:
    """The producer whose dead letters are published. `identity` is that of its dead-letter topic.

    `cluster` returns its cluster's id, "" while unknown.
    """

    producer_id: str
    started_at: float
    identity: str | None
    cluster: Callable[[], str]
    clock: Callable[[], float]
    application: str = ""


class StorePublications:
    """Publishes the dead letters of this producer, and those of ended producers with the same dead-letter topic and
    application, or without an application. They belong to the producer's cluster, or to an unknown one.

    Each slice is published under the lease of `dlq publish`, with the same events. A dead letter of an earlier process is
    looked for on its topic first, because that process may have published it and not recorded it. `unrecorded` are those
    that were published while the store was not available, and `copies` those of this process without an outcome. `publisher` runs
    this source.

    A pass goes through the dead letters page by page, the oldest first. After a slice of which none could be sent, the
    pass pauses and goes on behind it, so that no topic holds up the others. Once a pass has no failure, the next one
    covers only what entered the store since. While the producer closes, a failure is tried again for its own dead letters
    only.
    """

    def __init__(
        self,
        store: Callable[[], Store | None],
        owner: PublicationOwner,
        targets: TargetNames,
        sender: Callable[[Callable[[], None], Upcoming], TopicSender],
        *,
        unrecorded: UnrecordedPublications,
        copies: UnpublishedCopies,
        in_doubt: dict[str, float],
        publisher: Callable[[], DeadLetterPublisher],
    ) -> None:
        self._store = store
        self._owner = owner
        self._targets = targets
        self._sender = sender
        self._unrecorded = unrecorded
        self._copies = copies
        self._in_doubt = in_doubt
        self._publisher = publisher
        self._only_own = False  # leave the dead letters of ended producers to the next producer
        self._since = float("-inf")  # dead letters that entered the store before are done
        self._began = float("-inf")  # the clock's time at the start of the pass
        self._cluster = ""  # of the dead letters of this pass
        self._position = _START  # the time and id of the last dead letter that this pass processed
        self._trouble = ""  # the reason of this pass's latest failure
        self._producers: list[str] = [owner.producer_id]
        self._searched_at = float("-inf")
        self._alone: set[str] = set()  # a broker refuses whole batches: these are sent one by one
        self._begun: set[str] = set()  # of those listed: whose latest publication may still be in flight
        self._lease: Lease | None = None

    def publish_next(self, producer: Callable[[], PublishingProducer]) -> Round:
        store = self._store()
        if store is None:
            return DONE
        closing = self._publisher().closing
        result = self._publish_next(store, producer)
        if closing and result.trouble and not self._only_own:
            self._only_own, self._producers, self._position = True, [self._owner.producer_id], _START
        return result

    def _publish_next(self, store: Store, producer: Callable[[], PublishingProducer]) -> Round:
        self._restore()
        events = PublicationEvents(store, who=self._owner.producer_id, origin=ORIGIN, clock=self._owner.clock)
        self._forget(self._unrecorded.record(events))
        self._find_ended(store)
        if self._position == _START:
            self._begin_pass()
        listed = self._listed(store)
        troubles: dict[str, str] = {}
        if unpublished := self._unpublished(store, listed):
            lease = self._lease = self._lease or Lease(store, LEASE_NAME, uuid.uuid4().hex, seconds=_LEASE_S)
            if not lease.hold(self._owner.clock()):
                return Round(again=True)  # another process publishes from this store
            try:
                publisher = SlicePublisher(
                    events,
                    self._sender(self._renew, self._upcoming(unpublished)),
                    only_dead=True,
                    resend_unknown=True,
                )
                troubles, whole = self._publish_all(store, unpublished, events, publisher, producer)
            finally:
                lease.drop()
            if not whole:
                return Round(again=bool(troubles), more=not troubles, trouble=reasons(troubles))
        if len(listed) == _LISTING_ROWS * _LISTINGS:
            self._position = (listed[-1].accepted_at, listed[-1].message_id)
            return Round(again=bool(troubles), more=not troubles, trouble=reasons(troubles))
        return self._end_pass()

    def _restore(self) -> None:
        """Begin the pass again if the store's file was replaced. The earlier file may have recorded that a publication began."""
        for one in self._copies.restore():
            self._position = _START
            self._in_doubt.setdefault(one.message_id, one.accepted_at)

    def _begin_pass(self) -> None:
        began, cluster = self._owner.clock(), self._owner.cluster()
        if (
            began < self._began or cluster != self._cluster
        ):  # the clock was set back, or the cluster is known now
            self._since = float("-inf")
        self._cluster = cluster
        self._began, self._trouble = began, ""

    def _end_pass(self) -> Round:
        self._position = _START
        if self._trouble:
            return Round(again=True, trouble=self._trouble)
        self._since = max(self._since, self._began - _OVERLAP_S)
        return DONE

    def _find_ended(self, store: Store) -> None:
        if (
            self._owner.identity is None
            or self._only_own
            or time.monotonic() - self._searched_at < _SEARCH_ENDED_S
        ):
            return
        self._searched_at = time.monotonic()
        owner = self._owner
        values = [
            cluster := owner.cluster(),
            cluster,
            owner.producer_id,
            owner.application,
            owner.clock() - _ENDED_AFTER_S,
        ]
        with store.borrow() as connection:
            rows = connection.execute(_ENDED, values).fetchall()
        ended = [one for one, settings in rows if _setting(settings) == self._owner.identity]
        if not set(ended) <= set(self._producers):
            self._since, self._position = float("-inf"), _START
        self._producers = [self._owner.producer_id, *ended]

    def _listed(self, store: Store) -> list[Listed]:
        listed: list[Listed] = []
        position = self._position
        for _ in range(_LISTINGS):
            found = self._next_listed(store, position)
            listed += found
            if len(found) < _LISTING_ROWS:
                break
            position = (found[-1].accepted_at, found[-1].message_id)
        return listed

    def _next_listed(self, store: Store, position: tuple[float, str]) -> list[Listed]:
        at, last = position
        values = [
            self._since,
            self._producers,
            self._cluster,
            at,
            at,
            len(last),
            len(last),
            last,
            _LISTING_ROWS,
        ]
        with store.borrow() as connection:
            rows = connection.execute(_LISTING, values).fetchall()
        return [Listed(*row) for row in rows]

    def _unpublished(self, store: Store, listed: Sequence[Listed]) -> list[Listed]:
        """Return those without an outcome. Their events are read afterwards: the store may have millions."""
        done: set[str] = set()
        self._begun, recently = set(), self._owner.clock() - _IN_FLIGHT_S
        for first in range(0, len(listed), _LISTING_ROWS):
            ids = [one.message_id for one in listed[first : first + _LISTING_ROWS]]
            with store.borrow() as connection:
                found = find_events(connection, ids, ("publishing", "published", "not published"))
            done |= {one.message_id for one in found if one.what != "publishing" and one.origin == ORIGIN}
            self._begun |= {one.message_id for one in found if one.happened_at > recently}
        self._copies.forget(done)
        return [one for one in listed if one.message_id not in done]

    def _upcoming(self, listed: Sequence[Listed]) -> Upcoming:
        return self._targets.upcoming(one for one in listed if one.message_id not in self._begun)

    def _publish_all(
        self,
        store: Store,
        listed: Sequence[Listed],
        events: PublicationEvents,
        publisher: SlicePublisher,
        producer: Callable[[], PublishingProducer],
    ) -> tuple[dict[str, str], bool]:
        """Publish slice by slice. Return the reasons of the dead letters to try again, and whether all had their turn."""
        troubles: dict[str, str] = {}
        for slice_ in self._slices(listed):
            if self._publisher().stopping:
                return {**troubles, "": "the producer closes"}, False
            self._renew()
            dead_letters = DeadLetters(store).bodies([one.message_id for one in slice_])
            targets = self._targets.of(dead_letters)
            if targets.trouble:
                troubles[slice_[0].message_id] = targets.trouble
            self._refuse(targets.refused, events)
            failed = bool(targets.trouble)  # then a pause, without the bodies of the rest
            if targets.topics:
                doubtful = self._doubtful(dead_letters)
                result = publisher.publish(producer(), targets.topics, may_have_started=doubtful)
                unsent = self._settle(result, events, alone=len(targets.topics) == 1)
                troubles |= unsent
                if result.failed:
                    self._targets.forget(targets.topics.values())
                if result.error is not None:
                    return {**troubles, "": str(result.error)}, False
                failed = unsent.keys() >= targets.topics.keys()
            self._trouble = (
                reasons(troubles) or self._trouble
            )  # before the position: the next slice may raise
            self._position = (slice_[-1].accepted_at, slice_[-1].message_id)
            self._publisher().progressed()
            if failed:
                return troubles, False
        return troubles, True

    def _slices(self, listed: Sequence[Listed]) -> Iterator[list[Listed]]:
        """Yield slices without those that are not recorded yet, and alone those that a broker refused with others."""
        ready = [one for one in listed if one.message_id not in self._unrecorded]
        for _, group in itertools.groupby(
            ready, key=lambda one: one.message_id if one.message_id in self._alone else ""
        ):
            yield from by_size(list(group))

    def _doubtful(self, dead_letters: Sequence[DeadLetter]) -> dict[str, float]:
        """Return when publications of these dead letters may have begun that no event records."""
        owner = self._owner
        died = {one.message_id: _first_failure(one) for one in dead_letters}
        earlier = {
            one.message_id: died[one.message_id]
            for one in dead_letters
            if one.producer_id != owner.producer_id
            or died[one.message_id] < owner.started_at
            or one.failed_at <= self._unrecorded.unknown_until
        }
        return {
            **earlier,
            **{
                one.message_id: self._in_doubt[one.message_id]
                for one in dead_letters
                if one.message_id in self._in_doubt
            },
        }

    def _settle(self, result: SliceResult, events: PublicationEvents, *, alone: bool) -> dict[str, str]:
        """Record dead letters that can never be published. Return the reasons of the others."""
        refused, troubles = dict(result.invalid), dict(result.unknown)
        for message_id, one in result.failed.items():
            code = one.dead_letter.code if one.dead_letter else ""
            if code not in UNFIT_CODES:
                troubles[message_id] = one.text
            elif alone:
                refused[message_id] = one.text
            else:
                self._alone.add(message_id)
                troubles[message_id] = one.text
        self._refuse(refused, events)
        self._alone -= refused.keys() | result.published.keys()
        self._forget((*refused, *result.published, *result.found))
        return troubles

    def _forget(self, message_ids: Collection[str]) -> None:
        """Forget dead letters whose outcomes the store has."""
        for message_id in message_ids:
            self._in_doubt.pop(message_id, None)
        self._copies.forget(message_ids)

    def _refuse(self, refused: Mapping[str, str], events: PublicationEvents) -> None:
        """Record and log dead letters that can never be published."""
        events.add("not published", refused)
        self._copies.forget(refused)
        log_refused(refused)

    def _renew(self) -> None:
        if self._publisher().stopping:
            raise ProducerClosed
        if self._lease is not None and not self._lease.hold(self._owner.clock()):
            raise ReplayError("The lease expired, and another process is publishing.")


def _first_failure(dead_letter: DeadLetter) -> float:
    """Return a time before the first failure: it may have been published then, and have failed again since.

    A message that a journal sends again after a crash has only its later attempts.
    """
    return min(
        (dead_letter.accepted_at, dead_letter.failed_at, *(one.failed_at for one in dead_letter.attempts))
    )


def _setting(settings: str) -> Any:
    try:
        return orjson.loads(settings).get(SETTING)
    except orjson.JSONDecodeError:
        return None
