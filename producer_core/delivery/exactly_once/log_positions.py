"""The ledger: which records of ours are on the log, and from where each partition must be read again.

For each (topic, partition) it keeps `off`, the offset at and below which every record of ours is settled. It is
durable (in the journal's settle log, one atomic record with the sequences it settles) and never runs ahead: a
record found on the log whose delivery has not come back yet (a torn transaction, met after a restart) holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.journal import SettlementState
from producer_core.kafka.newer_keys import LaterRecords
from producer_core.messages import MessageIds

Where = tuple[str, int]
"""A partition: (topic, number)."""


Later = tuple[LaterRecords, "Set[bytes] | None"]
"""What a read-back saw of the keys of a partition, and for which ids it counts: None for all."""


class LogPosition(NamedTuple):
    """Where a record of ours lies; its timestamp in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int = -1


class LogPositions:
    """Shared by the shards; every method may be called from any thread."""

    def __init__(self, progress: SettlementState, ids: MessageIds) -> None:
        self._progress = progress
        self.number = ids.number
        self.unsettled_topics = progress.unsettled_topics()
        self._lock = threading.Lock()  # guards what follows, and the order of calls to progress
        self._offs = dict(progress.offsets)  # as written down
        self._found: dict[bytes, LogPosition] = {}
        # Offsets of what was found and is not settled, each with its sequence; None for a replay's, settled long ago.
        self._open: dict[Where, dict[int, int | None]] = {}
        self._reached: dict[Where, int] = {}  # the highest settled offset
        self._settled: dict[Where, set[int]] = {}  # settled offsets above `off`
        self._later: dict[Where, dict[bool, Later]] = {}  # what a start saw, and what the last recovery did
        self._superseded: dict[
            Where, dict[int, int]
        ] = {}  # sequence to the offset of a newer record of its key

    def partitions(self) -> list[Where]:
        """Every partition a record of ours may lie in, beyond what is settled."""
        return [where for where in list(self._offs) if is_topic(where[0])]

    def off(self, where: Where) -> int | None:
        """At and below this offset every record of ours is settled; None for a partition never written to."""
        return self._offs.get(where)

    def begin(self, offsets: Mapping[Where, int]) -> None:
        """Write down where partitions begin for us; before the first record of ours goes there."""
        if offsets:
            with self._lock:
                self._write((), dict(offsets))

    def begin_again(self, offsets: Mapping[Where, int]) -> None:
        """These partitions are not what they were: made anew, or cut off below what was settled."""
        with self._lock:
            for where in offsets:
                for kept in (self._open, self._reached, self._settled, self._later, self._superseded):
                    kept.pop(where, None)
        self.begin(offsets)

    def made_again(self, written: Iterable[LogPosition]) -> dict[Where, int]:
        """Return from where partitions count anew that were made again below a running producer.

        What was just written cannot lie at or below `off`, unless its partition is another one by now.
        """
        lowest: dict[Where, int] = {}
        for place in written:
            lowest[place[:2]] = min(place.offset, lowest.get(place[:2], place.offset))
        return {where: offset - 1 for where, offset in lowest.items() if offset <= self._offs.get(where, -1)}

    def is_own(self, id: bytes) -> bool:
        return self.number(id) is not None

    def saw(self, where: Where, later: LaterRecords, among: Set[bytes] | None) -> None:
        """What a fenced read saw above `off` of a partition that may be compacted.

        A message in doubt that it did not find may have been written and compacted away. `among` are the ids in doubt,
        None at a start, where any message of an earlier process may be.
        """
        with self._lock:
            self._later.setdefault(where, {})[among is None] = (later, among)

    def supersedes(self, delivery: Delivery) -> bool:
        """Return whether a message in doubt that was not found has a newer record of its key on its partition.

        Until the message is settled `off` stays below that record, so that a later start sees it too.
        """
        where, seq = (delivery.topic, delivery.partition), self.number(delivery.id)
        if (
            where not in self._later
            or seq is None
            or delivery.key is None
            or delivery.on_replayed is not None
        ):
            return False
        for later, among in tuple(self._later[where].values()):
            if among is None or delivery.id in among:
                offset = later.after(seq, delivery.key, delivery.accepted_at)
                if offset is not None:
                    with self._lock:
                        self._superseded.setdefault(where, {})[seq] = offset
                    return True
        return False

    @property
    def compares_keys(self) -> bool:
        return bool(self._later)

    def found(
        self, where: Where, records: Sequence[tuple[bytes, LogPosition]], in_hand: Set[bytes] = frozenset()
    ) -> None:
        """Everything of ours that lies above `off` in this partition, as a fenced read saw it.

        `in_hand` are the ids that wait to be sent: a replay's is settled in the journal and must be found all the same.
        """
        with self._lock:
            settled = self._settled.setdefault(where, set())
            self._found = {id: place for id, place in self._found.items() if place[:2] != where}
            self._open[where] = {}
            for id, place in records:
                if place.offset in settled:
                    continue
                seq = self.number(id)
                before = seq is not None and self._progress.is_settled(seq)
                if before and id not in in_hand:
                    settled.add(place.offset)
                    self._reached[where] = max(self._reached.get(where, -1), place.offset)
                    continue
                self._found[id] = place
                if seq is not None:
                    self._open[where][place.offset] = None if before else seq

    @property
    def found_any(self) -> bool:
        return bool(self._found)

    def place(self, id: bytes) -> LogPosition | None:
        """Where a record lies that was found and is not settled."""
        return self._found.get(id)

    def settle(self, landed: Sequence[tuple[Delivery, LogPosition]]) -> None:
        """These are on the log for good: one durable record with their sequences and the new `off`s."""
        if not landed:
            return
        with self._lock:
            touched = set()
            for delivery, place in landed:
                where = place[:2]
                touched.add(where)
                self._found.pop(delivery.id, None)
                self._open.get(where, {}).pop(place.offset, None)
                self._settled.setdefault(where, set()).add(place.offset)
                self._reached[where] = max(self._reached.get(where, -1), place.offset)
            offsets = {where: self._advance(where) for where in touched}
            seqs = [delivery.seq for delivery, _ in landed if self.is_own(delivery.id)]
            self._write(seqs, offsets)

    def _write(self, seqs: Iterable[int], offsets: Mapping[Where, int]) -> None:
        self._progress.settle(seqs, offsets)
        self._offs.update(offsets)

    def _advance(self, where: Where) -> int:
        before, is_settled = self._offs.get(where, -1), self._progress.is_settled
        # One may be settled without coming back: it is a copy of what another process sent.
        self._open[where] = {
            offset: seq
            for offset, seq in self._open.get(where, {}).items()
            if seq is None or not is_settled(seq)
        }
        superseded = {
            seq: offset for seq, offset in self._superseded.pop(where, {}).items() if not is_settled(seq)
        }
        if superseded:
            self._superseded[where] = superseded
        off = advanced(before, self._reached[where], (*self._open[where], *superseded.values()))
        self._settled[where] = {offset for offset in self._settled[where] if offset > off}
        return off


def advanced(off: int, reached: int, open_offsets: Iterable[int]) -> int:
    """The new `off` when everything up to `reached` is settled, but for what lies at `open_offsets`."""
    first = min(open_offsets, default=None)
    return max(off, reached if first is None else min(reached, first - 1))


class Split(NamedTuple):
    """Deliveries by what a read-back says of them, each part in order: what is on the log with its place, what must not
    be sent because a newer record of its key is there, and what must be sent."""

    landed: list[tuple[Delivery, LogPosition]]
    superseded: list[Delivery]
    rest: list[Delivery]


def split(deliveries: Sequence[Delivery], ledger: LogPositions) -> Split:
    if not ledger.found_any and not ledger.compares_keys:
        return Split([], [], list(deliveries))
    parts = Split([], [], [])
    for delivery in deliveries:
        place = ledger.place(delivery.id)
        if place is not None:
            parts.landed.append((delivery, place))
        elif ledger.compares_keys and ledger.supersedes(delivery):
            parts.superseded.append(delivery)
        else:
            parts.rest.append(delivery)
    return parts


# How many shards there were

_SHARDS = "//shards/"
"""Begins a name in the offsets that is no topic's (a topic has no slash): how many shards an id was used with."""


def is_topic(name: str) -> bool:
    """Whether a name among the progress's offsets is a topic's; the others are notes of this package."""
    return not name.startswith(_SHARDS)


def shard_ids(transactional_id: str, shards: int, offsets: Mapping[Where, int]) -> list[str]:
    """Every transactional id that may have left a transaction behind; ours of now first."""
    counts = {name.removeprefix(_SHARDS): count for (name, _), count in offsets.items() if not is_topic(name)}
    counts[transactional_id] = max(shards, counts.get(transactional_id, 0))
    ours = [f"{transactional_id}-{number}" for number in range(counts.pop(transactional_id))]
    return ours + [f"{name}-{number}" for name, count in sorted(counts.items()) for number in range(count)]


def shard_note(transactional_id: str, shards: int, offsets: Mapping[Where, int]) -> dict[Where, int]:
    """What must be written down before these shards send; empty when it is known."""
    name = (f"{_SHARDS}{transactional_id}", 0)
    return {} if offsets.get(name, 0) >= shards else {name: shards}
