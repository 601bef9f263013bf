"""Read telemetry topics with one consumer, in pieces that fit into memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import BrokerUnreachable
from producer_core.kafka.clients import retry_transient

if TYPE_CHECKING:
    import pyarrow as pa

logger = queued_logger(__name__)

PIECE_BYTES = 32 << 20
"""Bytes of keys and values after which a piece ends."""
_PIECE_RECORDS = 10_000
_CONSUME = 500
_POLL_S = 0.2
_REQUEST_TIMEOUT = 10.0


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Piece(NamedTuple):
    """Records as a table with topic, partition, offset, timestamp, key and value, and the offset after the last by partition."""

    records: pa.Table
    positions: Mapping[Place, int]


class TelemetryReader:
    """Reads partitions from given offsets, each in order. Used by one thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._positions: dict[Place, int] = {}
        self._stored: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._failing: set[int] = set()
        self.leaderless: frozenset[Place] = frozenset()
        """The partitions that had no leader when they were last described. Their records wait for one."""

    def assign(self, topics: Sequence[str], stored: Callable[[str], Mapping[int, int]]) -> None:
        """Read every partition of these topics from its stored offset, or else from its beginning.

        A stored offset before the first record means that retention was faster than the collector, one after the end that
        the topic was truncated or created again. Both are logged, and the partition is read from its beginning. The offset
        of a partition without a leader is not compared: nothing reports its bounds.
        Raise BrokerUnreachable when a topic cannot be described.
        """
        positions = {}
        places = self._describe(topics)
        for topic in topics:
            known = stored(topic)
            for place in (one for one in places if one.topic == topic):
                offset = known.get(place.partition)
                positions[place] = (offset or 0) if place in self.leaderless else self._start(place, offset)
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])
        self._positions, self._stored = positions, dict(positions)

    @property
    def places(self) -> frozenset[Place]:
        return frozenset(self._positions)

    @property
    def behind(self) -> int:
        """The number of records after the stored offsets, as far as the brokers reported it."""
        return sum(max(0, end - self._stored.get(place, end)) for place, end in self._ends.items())

    def partitions_changed(self, topics: Sequence[str]) -> bool:
        """Return whether the topics have other partitions than those that are read, or one has a leader again."""
        before = self.leaderless
        return set(self._describe(topics)) != self.places or bool(before - self.leaderless)

    def has_reached(self, ends: Mapping[Place, int]) -> bool:
        """Return whether all records before these offsets were read."""
        return all(self._positions.get(place, end) >= end for place, end in ends.items())

    def ends(self) -> dict[Place, int]:
        """Ask the brokers for the current end of each partition."""
        return {place: self._bounds(place)[1] for place in self._positions}

    def read(self, seconds: float, stopped: Callable[[], bool], until: Mapping[Place, int] | None) -> Piece:
        """Return the records of the next `seconds`, fewer when the piece is full, or as soon as `until` is reached."""
        messages: list[Message] = []
        size, deadline = 0, time.monotonic() + seconds
        while size < PIECE_BYTES and len(messages) < _PIECE_RECORDS and not stopped():
            left = deadline - time.monotonic()
            if left <= 0 or (until is not None and self.has_reached(until)):
                break
            for message in self._consumer.consume(_CONSUME, min(left, _POLL_S)):
                if self._accept(message):
                    messages.append(message)
                    size += len(message.key() or b"") + len(message.value() or b"")
        self._measure()
        return Piece(_table(messages), dict(self._positions))

    def stored(self, piece: Piece) -> None:
        """Note that the store has this piece."""
        self._stored = dict(piece.positions)

    def _accept(self, message: Message) -> bool:
        """Advance the position. Return whether the message is a record."""
        error = message.error()
        place = Place(str(message.topic()), int(message.partition() or 0))
        if error is None:
            self._positions[place] = int(message.offset() or 0) + 1
            self._failing.clear()
        elif error.code() == KafkaError._PARTITION_EOF:
            self._positions[place] = max(self._positions.get(place, 0), int(message.offset() or 0))
        elif error.code() not in self._failing:  # the client tries again by itself
            self._failing.add(error.code())
            reason = mask_or_hide(error.str())
            logger.warning(**with_fields("telemetry cannot be read", topic=place.topic, reason=reason))
        return error is None

    def _measure(self) -> None:
        for place in self._positions:
            bounds = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if bounds is not None and bounds[1] >= 0:
                self._ends[place] = bounds[1]

    def _describe(self, topics: Sequence[str]) -> list[Place]:
        """Return the partitions of the topics, and note which have no leader."""
        leaders = {
            Place(topic, partition): leader
            for topic in topics
            for partition, leader in self._leaders(topic).items()
        }
        self.leaderless = frozenset(place for place, leader in leaders.items() if leader < 0)
        return sorted(leaders)

    def _leaders(self, topic: str) -> dict[int, int]:
        try:
            described = self._consumer.list_topics(topic, timeout=_REQUEST_TIMEOUT).topics[topic]
        except KafkaException as error:
            raise BrokerUnreachable(
                f"The partitions of {topic} are unknown: {error.args[0].str()}."
            ) from error
        if described.error is not None:
            raise BrokerUnreachable(f"The partitions of {topic} are unknown: {described.error.str()}.")
        return {number: partition.leader for number, partition in described.partitions.items()}

    def _start(self, place: Place, stored: int | None) -> int:
        low, high = self._bounds(place)
        if stored is None or low <= stored <= high:
            return low if stored is None else stored
        text = (
            "telemetry was removed before it was read"
            if stored < low
            else "telemetry topic is shorter than before"
        )
        fields = {"topic": place.topic, "partition": place.partition, "position": stored, "first": low}
        logger.warning(**with_fields(text, **fields, end=high))
        return low

    def _bounds(self, place: Place) -> tuple[int, int]:
        def query() -> Any:
            return self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_REQUEST_TIMEOUT)

        try:
            bounds = retry_transient(query)
        except KafkaException as error:
            raise BrokerUnreachable(
                f"The offsets of {place.topic} are unknown: {error.args[0].str()}."
            ) from error
        if bounds is None:
            raise BrokerUnreachable(f"The request for the offsets of {place.topic} timed out.")
        return int(bounds[0]), int(bounds[1])


def _table(messages: Sequence[Message]) -> pa.Table:
    import pyarrow as pa

    return pa.table(
        {
            "topic": pa.array([message.topic() for message in messages], pa.string()),
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
        }
    )
