"""Publish the batches of a recorder to a Kafka topic, from which a pipeline collects the statistics of a fleet."""

from producer_core.metrics.telemetry.publisher import TelemetryPublisher
from producer_core.metrics.telemetry.schema import HIGHEST, SCHEMA_VERSION, decode, encode
from producer_core.metrics.telemetry.send_queue import LostBatches

__all__ = ["HIGHEST", "SCHEMA_VERSION", "LostBatches", "TelemetryPublisher", "decode", "encode"]
