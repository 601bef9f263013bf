"""An idle producer counts as alive between two of its heartbeats."""

from __future__ import annotations

from producer_core import replay
from producer_core.metrics import recorder
from producer_core.metrics.heartbeat import ALIVE, IDLE_INTERVAL


def test_an_idle_producer_stays_alive_when_a_heartbeat_is_late():
    assert recorder._UNREAD_HEARTBEATS * recorder._TICK == IDLE_INTERVAL
    assert ALIVE - IDLE_INTERVAL > 5.0
    assert replay.ALIVE == ALIVE
