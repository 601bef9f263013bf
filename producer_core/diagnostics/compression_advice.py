"""Say for each topic what the codecs save, from the samples in a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from producer_core.metrics.compression import CompressionSample, TopicCompression, recommended_codec
from producer_core.store import Store

WORTH_A_CHANGE = 0.2
"""The share of a topic's bytes that another codec must save before a change is suggested."""


@dataclass(frozen=True)
class CompressionAdvice:
    """What the codecs save on a topic. `codec` is in use, `recommended` suits this topic alone.

    A producer has one codec for all its topics.
    """

    topic: str
    codec: str
    compression: TopicCompression
    recommended: str

    @property
    def saved(self) -> float | None:
        """Return the share of the bytes sent now that the recommended codec saves; None if the codec in use was not measured."""
        now, then = self.compression.share(self.codec), self.compression.share(self.recommended)
        return None if not now or then is None else 1 - then / now

    @property
    def suggests_change(self) -> bool:
        return self.recommended not in ("none", self.codec) and (self.saved or 0.0) >= WORTH_A_CHANGE

    @property
    def suggestion(self) -> str:
        """Return what to do, in a sentence."""
        if self.recommended == "none":
            text = "The content is compressed or encrypted already"
            return f"{text}." if self.codec == "none" else f"{text}; compression_type='none' saves CPU time."
        if self.suggests_change:
            return f"compression_type='{self.recommended}' would send {100 * (self.saved or 0.0):.0f}% fewer bytes."
        return f"Keep {self.codec}."


def compression_advice(store: Store, **selection: Any) -> list[CompressionAdvice]:
    """Return the topics with enough samples, that with the most bytes first, each with the codec that was used last.

    `selection` has the parameters of the query `compression_by_topic`.
    """
    found: list[CompressionAdvice] = []
    latest: dict[str, dict[str, Any]] = {}
    for row in store.rows("compression_by_topic", **selection):
        if row["measured_at"] >= latest.get(row["topic"], row)["measured_at"]:
            latest[row["topic"]] = row
    for row in latest.values():
        sample = CompressionSample(*(row[name] for name in CompressionSample._fields))
        topic = TopicCompression(sample, row["bytes_per_second"])
        codec = recommended_codec([topic])
        if codec is not None:
            found.append(CompressionAdvice(row["topic"], row["codec"], topic, codec))
    return sorted(found, key=lambda one: (-one.compression.bytes_per_second, one.topic))
