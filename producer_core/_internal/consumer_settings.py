"""List the client settings that only a consumer uses."""

from __future__ import annotations

ALL_CLIENTS = frozenset({"session.timeout.ms"})
"""Consumer settings that a producer may receive: Confluent Cloud offers one configuration for all clients."""

CONSUMER_SETTINGS = frozenset(
    {
        "auto.commit.enable", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs",
        "consume.callback.max.messages", "coordinator.query.interval.ms", "enable.auto.commit",
        "enable.auto.offset.store", "enable.partition.eof", "fetch.error.backoff.ms", "fetch.max.bytes",
        "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms", "group.id",
        "group.instance.id", "group.protocol", "group.protocol.type", "group.remote.assignor",
        "heartbeat.interval.ms", "isolation.level", "max.partition.fetch.bytes", "max.poll.interval.ms",
        "max.poll.records", "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms",
        "partition.assignment.strategy", "queued.max.messages.kbytes", "queued.min.messages",
        "share.acknowledgement.mode",
    }
)  # fmt: skip
"""librdkafka's properties that a producing client ignores with a warning, except for those in ALL_CLIENTS."""
