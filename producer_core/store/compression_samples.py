"""Keep how much each codec compresses the topics of a producer: one row for each producer and topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer_core.metrics.compression import CompressionSample, TopicCompression
from producer_core.store.merge import insert
from producer_core.store.store import Store

_FORGET = "DELETE FROM compression_samples WHERE producer_id = ? AND list_contains(?, topic)"


class CompressionRow(NamedTuple):
    """A row of the table `compression_samples`. `codec` is that of the producer's client."""

    producer_id: str
    cluster_id: str
    topic: str
    measured_at: float
    codec: str
    bytes_per_second: float
    samples: int
    messages: int
    bytes: int
    lz4_bytes: int
    zstd_bytes: int
    lz4_seconds: float
    zstd_seconds: float


def save_compression(store: Store, rows: Sequence[CompressionRow]) -> None:
    """Replace the rows of these topics of one producer."""
    store.with_current_schema(lambda: _save(store, rows))


def _save(store: Store, rows: Sequence[CompressionRow]) -> None:
    with store.borrow(write=True, routine=True) as connection:
        connection.execute(_FORGET, [rows[0].producer_id, [row.topic for row in rows]])
        insert(connection, "compression_samples", CompressionRow._fields, rows)


def load_compression(store: Store, *, application: str) -> list[TopicCompression]:
    """Return the topics of the producers of an application that were seen last, at most ten."""
    return [
        TopicCompression(
            CompressionSample(*(row[name] for name in CompressionSample._fields)), row["bytes_per_second"]
        )
        for row in store.rows("compression_of_application", name=application)
    ]
