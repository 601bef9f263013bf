"""Measure how much each codec compresses a topic's payloads, and recommend a codec.

Kafka compresses whole batches, so a sample is a batch: consecutive messages of one topic, at most as many as the client's
batches contain. `cramjam` has the same codecs as the Kafka client; their sizes differ by less than a hundredth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cramjam

_ENOUGH_SAMPLES, _ENOUGH_BYTES = 5, 32_768
"""Samples, or bytes, from which a measurement counts."""
_INCOMPRESSIBLE = 0.95
"""A codec that leaves more of a payload is not worth its time: the content is compressed or encrypted already."""
_MUCH_SMALLER = 0.8
"""zstd is recommended if it leaves at most this share of what lz4 leaves, because it takes more time."""
_MAX_CORE_SHARE = 0.1
"""zstd is not recommended if it would take this much more of a processor core than lz4."""
_ZSTD_LEVEL = 3
"""librdkafka's default."""


class CompressionSample(NamedTuple):
    """The payload of one batch, or the sums over several: its bytes, and the bytes and seconds of CPU time of each codec."""

    samples: int = 0
    messages: int = 0
    bytes: int = 0
    lz4_bytes: int = 0
    zstd_bytes: int = 0
    lz4_seconds: float = 0.0
    zstd_seconds: float = 0.0

    def plus(self, other: CompressionSample) -> CompressionSample:
        return CompressionSample._make(mine + more for mine, more in zip(self, other, strict=True))

    def halved(self) -> CompressionSample:
        """Return half of the sums, so that later samples count more than earlier ones."""
        whole = (value // 2 for value in self[:5])
        return CompressionSample._make((*whole, self.lz4_seconds / 2, self.zstd_seconds / 2))


@dataclass(frozen=True)
class TopicCompression:
    """A topic's sums, with the bytes that it sends per second."""

    sample: CompressionSample
    bytes_per_second: float = 0.0

    @property
    def is_enough(self) -> bool:
        few = self.sample.samples < _ENOUGH_SAMPLES and self.sample.bytes < _ENOUGH_BYTES
        return self.sample.bytes > 0 and not few

    def share(self, codec: str) -> float | None:
        """Return the share of the bytes that a codec leaves; None for a codec that was not measured."""
        left = {
            "none": self.sample.bytes,
            "lz4": self.sample.lz4_bytes,
            "zstd": self.sample.zstd_bytes,
        }.get(codec)
        return None if left is None or not self.sample.bytes else left / self.sample.bytes

    def core_share(self, codec: str) -> float:
        """Return the part of a processor core that a measured codec takes at the topic's rate."""
        seconds = {"lz4": self.sample.lz4_seconds, "zstd": self.sample.zstd_seconds}.get(codec, 0.0)
        return self.bytes_per_second * seconds / self.sample.bytes if self.sample.bytes else 0.0


def measure(payload: Sequence[bytes], *, clock: Callable[[], int] = time.thread_time_ns) -> CompressionSample:
    """Compress the payload of a batch with each codec. 64 KB take a quarter of a millisecond."""
    batch = b"".join(payload)
    lz4_bytes, lz4_seconds = _compress(cramjam.lz4.compress_block, batch, clock, store_size=False)
    zstd_bytes, zstd_seconds = _compress(cramjam.zstd.compress, batch, clock, level=_ZSTD_LEVEL)
    return CompressionSample(1, len(payload), len(batch), lz4_bytes, zstd_bytes, lz4_seconds, zstd_seconds)


def _compress(
    codec: Callable[..., Any], batch: bytes, clock: Callable[[], int], **options: Any
) -> tuple[int, float]:
    before = clock()
    compressed = len(codec(batch, **options))
    return min(compressed, len(batch)), (clock() - before) / 1e9


def recommended_codec(topics: Iterable[TopicCompression]) -> str | None:
    """Return the codec that suits the topics together, by the bytes that each sends; None without enough samples.

    It is `none` if both codecs leave more than 95 % of the bytes, and `zstd` if it leaves at most 80 % of what lz4 leaves
    and takes less than a tenth of a processor core more. Otherwise it is `lz4`.
    """
    measured = [topic for topic in topics if topic.is_enough]
    weights = [topic.bytes_per_second for topic in measured]
    if not any(weights):
        weights = [1.0] * len(measured)
    total = sum(weights)
    if not total:
        return None
    lz4, zstd = (_weighted(measured, weights, codec) / total for codec in ("lz4", "zstd"))
    if min(lz4, zstd) > _INCOMPRESSIBLE:
        return "none"
    more_cpu = sum(topic.core_share("zstd") - topic.core_share("lz4") for topic in measured)
    return "zstd" if zstd <= _MUCH_SMALLER * lz4 and more_cpu < _MAX_CORE_SHARE else "lz4"


def _weighted(topics: Sequence[TopicCompression], weights: Sequence[float], codec: str) -> float:
    return sum(weight * (topic.share(codec) or 0.0) for topic, weight in zip(topics, weights, strict=True))
