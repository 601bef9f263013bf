"""Spark jobs over Kafka for work that exceeds one machine: each is a chain of DataFrame to DataFrame functions."""

from producer_core.pipeline.integrity import AuditReport, audit

__all__ = ["AuditReport", "audit"]
