"""Fixtures of the replay tests: a clock that the test moves, a store with that clock, and the result of the check."""

from __future__ import annotations

import pytest

from producer_core.replay import preflight
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from tests.fixtures.clocked_store import clock, store

__all__ = ["clock", "sees", "store"]


@pytest.fixture
def sees(monkeypatch):
    """Set the result of the check before a replay; by default it finds no obstacle."""

    def found(flags=None, *, stopped=False, **changes):
        known = {
            "topic": "orders", "records": 3, "bytes": 9, "partitions": 4, "max_message_bytes": 1000,
            "cleanup_policy": "delete", "too_large": 0, "newer_keys": 0, "looked_at": 7, "complete": True,
            "text": "No problem found on orders.",
        }  # fmt: skip
        answer = BrokerCheck((TopicCheck(**{**known, **changes}),), 5000.0, stopped)
        monkeypatch.setattr(preflight, "check", lambda *_, **__: (answer, flags or {}))

    found()
    return found
