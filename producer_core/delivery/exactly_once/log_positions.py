"""The positions of this producer's records in the log, and the offset from which each partition must be read back.

For each (topic, partition) it keeps `settled_offset`, the offset up to which all of this producer's records are settled.
The offset is durable: the journal's settle log stores it in one atomic step with the sequences that it settles. It never
runs ahead: a record that was read back but whose delivery has not been processed yet (after a restart in the middle of
a transaction) holds it back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.journal import SettlementState
from producer_core.kafka.newer_keys import LaterRecords
from producer_core.messages import MessageIds

PartitionId = tuple[str, int]
"""A partition as (topic, number)."""


LaterKeys = tuple[LaterRecords, "Set[bytes] | None"]
"""The keys that a read-back found on a partition, and the ids to which they apply (None: all)."""


class LogPosition(NamedTuple):
    """The position of one of this producer's records. The timestamp is in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int = -1


class LogPositions:
    """Track positions for all shards. Any thread may call any method."""

    def __init__(self, progress: SettlementState, ids: MessageIds) -> None:
        self._state = progress
        self.number = ids.number
        self._session = ids.session.bytes  # for speed: all new messages have ids of this session
        self.unsettled_topics = progress.unsettled_topics()
        # Guards the fields below and the order of calls to the settlement state.
        self._lock = threading.Lock()
        self._settled_offsets = dict(progress.offsets)  # as stored
        self._found: dict[bytes, LogPosition] = {}
        # Offsets of records that were read back and are unsettled, with their sequences. None for a replayed message,
        # which was settled long ago.
        self._unsettled: dict[PartitionId, dict[int, int | None]] = {}
        self._highest_settled: dict[PartitionId, int] = {}  # the highest settled offset
        self._settled_above: dict[PartitionId, set[int]] = {}  # settled offsets above `settled_offset`
        # For each partition, the keys found at the start (True) and by the last recovery (False).
        self._later_keys: dict[PartitionId, dict[bool, LaterKeys]] = {}
        # By sequence: the offset of a newer record with the same key.
        self._superseded: dict[PartitionId, dict[int, int]] = {}

    def partitions(self) -> list[PartitionId]:
        """Return every partition that can have records of this producer above the settled ones."""
        return [partition for partition in list(self._settled_offsets) if is_topic(partition[0])]

    def settled_offset(self, partition: PartitionId) -> int | None:
        """Return the offset up to which all of this producer's records are settled; None if it never wrote there."""
        return self._settled_offsets.get(partition)

    def start_partitions(self, offsets: Mapping[PartitionId, int]) -> None:
        """Store the start offsets of partitions. Call before the first record is sent there."""
        if offsets:
            with self._lock:
                self._write((), dict(offsets))

    def restart_partitions(self, offsets: Mapping[PartitionId, int]) -> None:
        """Store new start offsets for partitions that were recreated or truncated below the settled offset."""
        with self._lock:
            for partition in offsets:
                for table in (
                    self._unsettled,
                    self._highest_settled,
                    self._settled_above,
                    self._later_keys,
                    self._superseded,
                ):
                    table.pop(partition, None)
        self.start_partitions(offsets)

    def recreated(self, written: Iterable[LogPosition]) -> dict[PartitionId, int]:
        """Return new start offsets for partitions that were recreated while this producer was running.

        A record that was just written cannot be at or below `settled_offset` unless the partition was recreated.
        """
        lowest: dict[PartitionId, int] = {}
        for position in written:
            lowest[position[:2]] = min(position.offset, lowest.get(position[:2], position.offset))
        return self.recreated_at(lowest)

    def recreated_at(self, lowest: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """Do the same as `recreated` with the lowest offset that was written to each partition."""
        return {
            partition: offset - 1
            for partition, offset in lowest.items()
            if offset <= self._settled_offsets.get(partition, -1)
        }

    def is_own(self, id: bytes) -> bool:
        return self.number(id) is not None

    def add_later_keys(
        self, partition: PartitionId, later: LaterRecords, unconfirmed: Set[bytes] | None
    ) -> None:
        """Add the keys that a fenced read found above `settled_offset` on a partition that may be compacted.

        An ambiguous message that the read did not find may have been written and compacted away. `unconfirmed` are the
        ids of the ambiguous messages. It is None at a start, where every message of an earlier process is ambiguous.
        """
        with self._lock:
            self._later_keys.setdefault(partition, {})[unconfirmed is None] = (later, unconfirmed)

    def is_superseded(self, delivery: Delivery) -> bool:
        """Return whether an ambiguous message that was not found has a newer record of its key on its partition.

        Until the message is settled, `settled_offset` stays below that record, so that a later start finds it too.
        """
        partition, seq = (delivery.topic, delivery.partition), self.number(delivery.id)
        if (
            partition not in self._later_keys
            or seq is None
            or delivery.key is None
            or delivery.on_replayed is not None
        ):
            return False
        for later, unconfirmed in tuple(self._later_keys[partition].values()):
            if unconfirmed is None or delivery.id in unconfirmed:
                offset = later.after(seq, delivery.key, delivery.accepted_at)
                if offset is not None:
                    with self._lock:
                        self._superseded.setdefault(partition, {})[seq] = offset
                    return True
        return False

    @property
    def compares_keys(self) -> bool:
        return bool(self._later_keys)

    def set_found(
        self,
        partition: PartitionId,
        records: Sequence[tuple[bytes, LogPosition]],
        queued: Set[bytes] = frozenset(),
    ) -> None:
        """Set all of this producer's records above `settled_offset` in this partition, as a fenced read found them.

        `queued` are the ids of messages waiting to be sent. A replayed message is settled in the journal but must be
        found too.
        """
        with self._lock:
            settled = self._settled_above.setdefault(partition, set())
            self._found = {id: position for id, position in self._found.items() if position[:2] != partition}
            self._unsettled[partition] = {}
            for id, position in records:
                if position.offset in settled:
                    continue
                seq = self.number(id)
                already_settled = seq is not None and self._state.is_settled(seq)
                if already_settled and id not in queued:
                    settled.add(position.offset)
                    self._highest_settled[partition] = max(
                        self._highest_settled.get(partition, -1), position.offset
                    )
                    continue
                self._found[id] = position
                if seq is not None:
                    self._unsettled[partition][position.offset] = None if already_settled else seq

    @property
    def has_found(self) -> bool:
        return bool(self._found)

    def position(self, id: bytes) -> LogPosition | None:
        """Return the position of a record that was read back and is not settled."""
        return self._found.get(id)

    def settle(self, written: Sequence[tuple[Delivery, LogPosition]]) -> None:
        """Settle messages that are committed: one durable step with their sequences and the new settled offsets."""
        offsets: dict[PartitionId, list[int]] = {}
        for _, position in written:
            offsets.setdefault(position[:2], []).append(position.offset)
        self.settle_offsets([delivery for delivery, _ in written], offsets)

    def settle_offsets(
        self, deliveries: Sequence[Delivery], written: Mapping[PartitionId, Sequence[int]]
    ) -> None:
        """Do the same as `settle` with the offsets of the messages, in any order, by partition."""
        if not deliveries:
            return
        with self._lock:
            if self._found:
                for delivery in deliveries:
                    self._found.pop(delivery.id, None)
            for partition, offsets in written.items():
                if unsettled := self._unsettled.get(partition):
                    for offset in offsets:
                        unsettled.pop(offset, None)
                self._settled_above.setdefault(partition, set()).update(offsets)
                self._highest_settled[partition] = max(self._highest_settled.get(partition, -1), max(offsets))
            settled_offsets = {partition: self._advance(partition) for partition in written}
            session, is_own = self._session, self.is_own
            seqs = [one.seq for one in deliveries if one.id.startswith(session) or is_own(one.id)]
            self._write(seqs, settled_offsets)

    def _write(self, seqs: Iterable[int], offsets: Mapping[PartitionId, int]) -> None:
        self._state.settle(seqs, offsets)
        self._settled_offsets.update(offsets)

    def _advance(self, partition: PartitionId) -> int:
        previous, is_settled = self._settled_offsets.get(partition, -1), self._state.is_settled
        # A message can be settled without its own report when it duplicates a message of another process.
        self._unsettled[partition] = {
            offset: seq
            for offset, seq in self._unsettled.get(partition, {}).items()
            if seq is None or not is_settled(seq)
        }
        superseded = {
            seq: offset for seq, offset in self._superseded.pop(partition, {}).items() if not is_settled(seq)
        }
        if superseded:
            self._superseded[partition] = superseded
        settled_offset = advance(
            previous, self._highest_settled[partition], (*self._unsettled[partition], *superseded.values())
        )
        self._settled_above[partition] = {
            offset for offset in self._settled_above[partition] if offset > settled_offset
        }
        return settled_offset


def advance(settled_offset: int, reached: int, open_offsets: Iterable[int]) -> int:
    """Return the new settled offset when everything up to `reached` is settled except `open_offsets`."""
    first = min(open_offsets, default=None)
    return max(settled_offset, reached if first is None else min(reached, first - 1))


class Split(NamedTuple):
    """Deliveries by their result in the read-back, each list in order.

    `written` are in the log, with their positions. `superseded` must not be sent, because a newer record of their key is
    in the log. `rest` must be sent.
    """

    written: list[tuple[Delivery, LogPosition]]
    superseded: list[Delivery]
    rest: list[Delivery]


def split(deliveries: Sequence[Delivery], positions: LogPositions) -> Split:
    if not positions.has_found and not positions.compares_keys:
        return Split([], [], list(deliveries))
    parts = Split([], [], [])
    for delivery in deliveries:
        position = positions.position(delivery.id)
        if position is not None:
            parts.written.append((delivery, position))
        elif positions.compares_keys and positions.is_superseded(delivery):
            parts.superseded.append(delivery)
        else:
            parts.rest.append(delivery)
    return parts


# Numbers of shards used with a transactional id

_SHARDS = "//shards/"
"""Prefix of entries in the offsets that are not topics (topic names have no slash): the shards of an id."""


def is_topic(name: str) -> bool:
    """Return whether a name among the stored offsets is a topic. Other names are notes of this package."""
    return not name.startswith(_SHARDS)


def shard_ids(transactional_id: str, shards: int, offsets: Mapping[PartitionId, int]) -> list[str]:
    """Return every transactional id that may have left an open transaction, with the current ids first."""
    counts = {name.removeprefix(_SHARDS): count for (name, _), count in offsets.items() if not is_topic(name)}
    counts[transactional_id] = max(shards, counts.get(transactional_id, 0))
    own_ids = [f"{transactional_id}-{number}" for number in range(counts.pop(transactional_id))]
    return own_ids + [f"{name}-{number}" for name, count in sorted(counts.items()) for number in range(count)]


def shard_note(
    transactional_id: str, shards: int, offsets: Mapping[PartitionId, int]
) -> dict[PartitionId, int]:
    """Return the note to store before these shards send; empty when it is stored already."""

    name = (f"{_SHARDS}{transactional_id}", 0)
    return {} if offsets.get(name, 0) >= shards else {name: shards}
