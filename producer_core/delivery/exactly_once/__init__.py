"""Exactly-once delivery with transactions, a settled offset stored after each commit, and a fenced read-back."""

from producer_core.delivery.exactly_once.transactional_transport import TransactionalTransport

__all__ = ["TransactionalTransport"]
