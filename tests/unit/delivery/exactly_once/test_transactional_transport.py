"""The settings of a transactional transport."""

from __future__ import annotations

from producer_core.delivery.exactly_once.transactional_client import check_settings
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings


def test_the_message_timeout_is_shorter_than_the_transaction_timeout():
    assert transactional_settings({"message.timeout.ms": 86_400_000})["transaction.timeout.ms"] == 90_000
    assert transactional_settings({"message.timeout.ms": 0})["message.timeout.ms"] == 60_000
    chosen = transactional_settings({"message.timeout.ms": 120_000, "transaction.timeout.ms": 10_000})
    assert (chosen["message.timeout.ms"], chosen["transaction.timeout.ms"]) == (7500, 10_000)
    check_settings(chosen)
