"""Telemetry: a recorder's batches as records of a Kafka topic, for a fleet."""

from producer_core.telemetry.publisher import TelemetryPublisher
from producer_core.telemetry.schema import HIGHEST, SCHEMA_VERSION, decode, encode
from producer_core.telemetry.waiting import Lost

__all__ = ["HIGHEST", "SCHEMA_VERSION", "Lost", "TelemetryPublisher", "decode", "encode"]
