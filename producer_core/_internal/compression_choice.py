"""The setting `compression_type="auto"`: each Kafka client gets the codec that the measurements recommended last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMPRESSION_SETTING = "compression.type"
AUTO = "auto"
COMPRESSION_CHOICE_KEY = "compression.choice"
"""The setting among those of a client that has the choice. `delivery.sending_client` replaces it with the codec."""
DEFAULT_CODEC = "lz4"


class CompressionChoice:
    """Holds the codec for the next client of a producer. A client keeps the codec that it was created with.

    The store's backend sets it on one thread; the transports call it when they create a client.
    """

    def __init__(self, codec: str = DEFAULT_CODEC) -> None:
        self.codec = codec  # for the next client
        self.used = codec  # of the latest client

    def __call__(self) -> str:
        """Return the codec for a client that is being created."""
        self.used = self.codec
        return self.used


def pop_auto(chosen: dict[str, Any]) -> CompressionChoice | None:
    """Remove `compression.type` from the settings if it is "auto", and return a choice then."""
    if str(chosen.get(COMPRESSION_SETTING, "")).lower() != AUTO:
        return None
    del chosen[COMPRESSION_SETTING]
    return CompressionChoice()


def codec_of(settings: Mapping[str, Any]) -> str:
    """Return the codec of the latest client with these settings."""
    choice = settings.get(COMPRESSION_CHOICE_KEY)
    return str(settings.get(COMPRESSION_SETTING, DEFAULT_CODEC)) if choice is None else choice.used
