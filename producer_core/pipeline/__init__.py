"""Spark jobs over Kafka, for what one machine cannot do: each a chain of DataFrame to DataFrame functions."""

from producer_core.pipeline.integrity import AuditReport, audit

__all__ = ["AuditReport", "audit"]
