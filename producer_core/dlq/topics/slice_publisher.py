"""Publish slices of a store's dead letters, with events that record what is sent and where it was written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from producer_core.dlq import DeadLetters, lookup, replay_waves
from producer_core.dlq.event_lookup import find_events
from producer_core.dlq.published_verdict import PUBLISHED
from producer_core.dlq.revisions import revision as revisions
from producer_core.dlq.topics.topic_sender import PublishingProducer, TopicSender
from producer_core.events import DeadLetter
from producer_core.store import safe_verdicts
from producer_core.store.merge import insert

if TYPE_CHECKING:
    import duckdb

    from producer_core.delivery.reports import ReplayResult
    from producer_core.errors import NotAccepted
    from producer_core.store import Store

_EVENT_COLUMNS = ("message_id", "happened_at", "what", "who", "origin", "text")


@dataclass
class SliceResult:
    """The outcome of a slice by message id.

    `published` and `found` have the topics, `failed` the results, `invalid` the reasons of records that can never be sent,
    `unknown` the results of lookups that found no answer (with whether a later one may), `left_out` the dead letters that
    were published before or are no longer dead. `error` is set if the producer accepts no more.
    """

    published: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    failed: dict[str, ReplayResult] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    error: NotAccepted | None = None

    @property
    def failures(self) -> list[str]:
        """The reasons of those that were not published, one each."""
        texts = [
            one.text or (one.dead_letter.error_text if one.dead_letter else "no reason given")
            for one in self.failed.values()
        ]
        unknown = (f"an earlier run may have published it ({text})" for text in self.unknown.values())
        return [*unknown, *self.invalid.values(), *texts]


class PublicationEvents:
    """Writes and reads the events of publications. `who` and `origin` are those of the new events."""

    def __init__(self, store: Store, *, who: str, origin: str, clock: Callable[[], float]) -> None:
        self.store = store
        self._who = who
        self._origin = origin
        self._clock = clock

    def add(self, what: str, texts: Mapping[str, str]) -> None:
        """Add an event for each dead letter, with the text for its id."""
        if texts:
            with self.store.borrow(write=True) as connection:
                self.write(connection, what, texts)

    def write(self, connection: duckdb.DuckDBPyConnection, what: str, texts: Mapping[str, str]) -> None:
        """Add the events in the caller's transaction."""
        now = self._clock()
        rows = [(one, now, what, self._who, self._origin, text) for one, text in texts.items()]
        if rows:
            insert(connection, "letter_events", _EVENT_COLUMNS, rows)

    def earlier(self, targets: Mapping[str, str]) -> tuple[frozenset[str], dict[str, float]]:
        """Return the ids published to the same topic, and the start times of unfinished publications."""
        published: set[str] = set()
        started: dict[str, float] = {}
        with self.store.borrow() as connection:
            found = find_events(connection, list(targets), ("publishing", "published"))
        for event in found:
            topic = targets[event.message_id]
            if event.what == "published" and str(event.text).startswith(f"at {topic}["):
                published.add(event.message_id)
                started.pop(event.message_id, None)
            elif event.what == "publishing" and event.text == f"to {topic}":
                started.setdefault(event.message_id, event.happened_at)
        return frozenset(published), started


class SlicePublisher:
    """Publishes dead letters of a store by id. They remain dead letters, with an event for each publication.

    With `only_dead`, dead letters that were replayed or archived are left out; otherwise only purged and
    replaying ones. With `again`, dead letters that were published to the same topic are published once more. With `resend_unknown`, a
    dead letter is sent although a lookup did not determine whether an earlier attempt published it, unless a later lookup
    may tell. The caller holds the lease "dlq publish".
    """

    def __init__(
        self,
        events: PublicationEvents,
        sender: TopicSender,
        *,
        only_dead: bool = False,
        again: bool = False,
        resend_unknown: bool = False,
    ) -> None:
        self._store = events.store
        self._events = events
        self._sender = sender
        self._states = "state = 'dead'" if only_dead else "state NOT IN ('purged', 'replaying')"
        self._again = again
        self._resend_unknown = resend_unknown

    def publish(
        self,
        producer: PublishingProducer,
        targets: Mapping[str, str],
        *,
        may_have_started: Mapping[str, float] | None = None,
    ) -> SliceResult:
        """Publish these dead letters, each to its topic.

        `may_have_started` has the start times of publications that no event records. They are looked for on the topic.
        """
        published, recorded = self._events.earlier(targets)
        started = {**(may_have_started or {}), **recorded}
        dead_letters = [
            dead_letter
            for dead_letter in DeadLetters(self._store).bodies(list(targets))
            if dead_letter.state != "purged" and (self._again or dead_letter.message_id not in published)
        ]
        kept = {dead_letter.message_id for dead_letter in dead_letters}
        result = SliceResult(left_out=tuple(one for one in targets if one not in kept))
        dead_letters = self._without_sent(dead_letters, started, targets, result)
        if dead_letters:
            self._send(producer, dead_letters, targets, recorded, result)
        return result

    def _without_sent(
        self,
        dead_letters: Sequence[DeadLetter],
        started: Mapping[str, float],
        targets: Mapping[str, str],
        result: SliceResult,
    ) -> list[DeadLetter]:
        """Look on the topics for dead letters whose publication started and was not recorded. Return those to send."""
        in_doubt = {
            one.message_id: started[one.message_id] for one in dead_letters if one.message_id in started
        }
        probed = self._sender.find(in_doubt, targets)
        found = {one: probe for one, probe in probed.items() if probe.outcome == "found"}
        places = {one: place(targets[one], probe.partition, probe.offset) for one, probe in found.items()}
        if places:
            with self._store.borrow(write=True) as connection:
                self._events.write(connection, "published", places)
                self._revoke(connection, list(places))
        result.found = {one: targets[one] for one in found}
        if not self._again:
            result.unknown = {
                one: probe.text
                for one, probe in probed.items()
                if probe.outcome == "inconclusive" and not (self._resend_unknown and not probe.transient)
            }
        left_out = result.found.keys() | result.unknown.keys()
        return [dead_letter for dead_letter in dead_letters if dead_letter.message_id not in left_out]

    def _send(
        self,
        producer: PublishingProducer,
        dead_letters: Sequence[DeadLetter],
        targets: Mapping[str, str],
        recorded: Collection[str],
        result: SliceResult,
    ) -> None:
        begun = self._begin(dead_letters, targets, recorded)
        result.left_out += tuple(one.message_id for one in dead_letters if one.message_id not in begun)
        dead_letters = list(begun.values())
        sent = self._sender.send(producer, dead_letters, targets)
        self._settle(sent.results, targets, result)
        result.invalid, result.error = dict(sent.invalid), sent.error

    def _begin(
        self, dead_letters: Sequence[DeadLetter], targets: Mapping[str, str], recorded: Collection[str]
    ) -> dict[str, DeadLetter]:
        """Record that the publication of dead letters begins. Return those that may still be published, edited ones as
        their revisions.

        Another process may have published some since the lookup. One whose edit is a dead letter of its own is left out: a
        reader of the topic may send it, and then both would be sent.
        """
        ids = [one.message_id for one in dead_letters]
        with self._store.borrow(write=True) as connection:
            replay_waves.begin_change(connection)  # what a replay has claimed is left out
            rows = lookup.fetch_rows(connection, "dead_letters", ["message_id"], ids, self._states)
            published, _ = self._events.earlier({one: targets[one] for one in ids})
            left_out = revisions.replaced(connection, ids) | (frozenset() if self._again else published)
            begun = {message_id for (message_id,) in rows if message_id not in left_out}
            texts = {one: f"to {targets[one]}" for one in ids if one in begun and one not in recorded}
            self._events.write(connection, "publishing", texts)
            self._revoke(connection, [one for one in ids if one in begun])
            publishable = [one for one in dead_letters if one.message_id in begun]
            revised = revisions.revised_dead_letters(connection, publishable)
        return {one.message_id: one for one in revised}

    def _revoke(self, connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> None:
        safe_verdicts.revoke(connection, PUBLISHED, *lookup.id_in(ids))

    def _settle(
        self, results: Iterable[ReplayResult], targets: Mapping[str, str], result: SliceResult
    ) -> None:
        places: dict[str, str] = {}
        for one in results:
            if one.outcome == "acknowledged":
                places[one.message_id] = place(targets[one.message_id], one.partition, one.offset)
                result.published[one.message_id] = targets[one.message_id]
            else:
                result.failed[one.message_id] = one
        self._events.add("published", places)


def place(topic: str, partition: int | None, offset: int | None) -> str:
    """Return the text of an event that names where a record was written."""
    return f"at {topic}[{'?' if partition is None else partition}]@{'?' if offset is None else offset}"
