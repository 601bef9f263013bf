"""The integrity job: prove, by message id, what happened to each acknowledged message."""

from producer_core.pipeline.integrity.audit_run import audit
from producer_core.pipeline.integrity.outcome import ExpiredRange, LedgerGap
from producer_core.pipeline.integrity.report import AuditReport

__all__ = ["AuditReport", "ExpiredRange", "LedgerGap", "audit"]
