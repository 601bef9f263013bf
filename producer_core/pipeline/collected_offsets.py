"""Store how far a store has collected its telemetry topics, in the transaction that merges the records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from producer_core.config import ClientConfig
from producer_core.pipeline.preflight import reach
from producer_core.pipeline.telemetry_reader import Place

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from producer_core.store import Store

_TOPIC_LENGTH = 100
"""Characters of a topic's name in the name of a file, which has at most 255 bytes."""


class OffsetsChanged(Exception):
    """The store has offsets that this process did not store: it was replaced, or another process collects into it."""


class CollectedOffsets:
    """The offsets after the records that a store has merged, by topic. Used by one thread.

    A topic that is created again has another id, and starts at its beginning.
    """

    def __init__(self, store: Store, config: ClientConfig, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        self._store, self._config = store, config
        self._names: dict[str, str] = {}
        self._known: dict[str, Mapping[int, int]] = {}

    @property
    def is_new(self) -> bool:
        """Whether the store had no offset of any of the topics at the last `load` or `committed`."""
        return not any(self._known.values())

    def refresh(self) -> bool:
        """Ask the brokers for the topics' ids. Return whether one is another than before.

        A partition without a leader raises no error: the others can be read.
        """
        cluster = reach(self._config, self.topics, require_leaders=False)
        cluster_id = cluster.view().cluster_id
        names = {
            topic: f"collected.{cluster_id}.{topic}.{cluster.topic(topic).topic_id or ''}"
            for topic in self.topics
        }
        changed, self._names = names != self._names, names
        return changed

    def load(self, topic: str) -> Mapping[int, int]:
        """Return the stored offsets of a topic by partition. The next `save` expects them."""
        self._known[topic] = self._stored(topic)
        return self._known[topic]

    def save(self, positions: Mapping[Place, int], connection: duckdb.DuckDBPyConnection) -> None:
        """Store the offsets within the caller's transaction.

        Raise OffsetsChanged when the store does not have the expected offsets: it lacks records before these positions.
        """
        for topic, offsets in self._by_topic(positions).items():
            stored = self._stored(topic)
            if stored not in (self._known.get(topic), offsets):  # equal: an earlier attempt was committed
                raise OffsetsChanged(f"The offsets of topic {topic} in {self._store.path} have changed.")
            self._store.set_setting(self._names[topic], {str(number): at for number, at in offsets.items()})

    def committed(self, positions: Mapping[Place, int]) -> None:
        """Note that the transaction of `save` was committed."""
        self._known = self._by_topic(positions)

    def file_name(self, records: pa.Table) -> str:
        """Return a file name for a piece that no other piece of any cluster or topic has."""
        topic, partition, offset, at = (
            records[name][0].as_py() for name in ("topic", "partition", "offset", "timestamp")
        )
        source = hashlib.sha256(f"{self._names[topic]} {at}".encode()).hexdigest()[:16]
        return f"{topic[:_TOPIC_LENGTH]}-{source}-{partition}-{offset}.parquet"

    def _stored(self, topic: str) -> dict[int, int]:
        stored = self._store.get_setting(self._names[topic], {})
        return {int(partition): offset for partition, offset in stored.items()}

    def _by_topic(self, positions: Mapping[Place, int]) -> dict[str, Mapping[int, int]]:
        return {
            topic: {place.partition: at for place, at in positions.items() if place.topic == topic}
            for topic in self.topics
        }
