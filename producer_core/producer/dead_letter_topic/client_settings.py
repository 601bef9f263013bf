"""The settings of the client that publishes dead letters."""

from __future__ import annotations

from typing import Any

from producer_core.config import ClientConfig

_HEADER_BYTES = 32 * 1024
"""Upper bound of the dead-letter headers, so that a message of the largest size still fits with them."""
_LARGEST = 1_000_000_000
"""librdkafka's upper bound of message.max.bytes."""
_DAY_MS = 24 * 3600 * 1000
_OWN = (
    "acks",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "message.send.max.retries",
    "retries",
    "statistics.interval.ms",
    "stats_cb",
    "throttle_cb",
    "transactional.id",
)


def publishing_settings(config: ClientConfig) -> dict[str, Any]:
    """Return the producer's settings for the publishing client, which is idempotent and waits for all replicas."""
    settings = {name: value for name, value in config.given.items() if name not in _OWN}
    if settings.get("message.timeout.ms") == _DAY_MS:  # set by guarantees.py for a producer with a journal
        del settings["message.timeout.ms"]
    settings["client.id"] = f"{config.client_id}-dead-letters"
    settings["message.max.bytes"] = min(config.max_message_bytes + _HEADER_BYTES, _LARGEST)
    return settings
