"""`close(timeout)` has one bound for all its steps."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

from producer_core._internal import deadline
from producer_core.producer.components import Components

LEAST = 5 * 0.2 + 1.0
"""Seconds that the steps get when nothing is left: a fifth of a second each, and one second for the store."""


def test_close_shares_its_timeout_between_all_its_steps(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def step(timeout):
        """Take all the time that is given, as a step does whose broker or store does not respond."""
        now[0] += timeout

    components = MagicMock(_cluster_id=None, topics={"orders"}, _duplicate_checks=[MagicMock(), MagicMock()])
    components.engine.connection.error = None
    components.engine.close = lambda limit: step(limit.left())
    components._ask_cluster = step
    for part in (
        components.deduplicator.close,
        components.health_monitor.stop,
        components.dead_letter_backend.stop_replays,
        components.dead_letter_backend.stop,
        components.loss_monitor.stop,
        *(check.stop for check in components._duplicate_checks),
    ):
        part.side_effect = step

    Components._finish(components, 20.0)

    assert 20.0 <= now[0] <= 20.0 + LEAST
    components.dead_letter_backend.stop.assert_called_once_with(1.0)
    components.session.release.assert_called_once()


def test_a_close_does_not_wait_until_another_thread_has_asked_slow_brokers_for_the_cluster_id():
    """Regression: the recorder asked for 2 s each time it described the producer, and dead letters waited for it."""
    components = MagicMock(_cluster_id=None)
    components.shutdown.begun = False
    Components.cluster(components)
    components._ask_cluster.assert_called_once()

    components.shutdown.begun = True
    Components.cluster(components)
    components._ask_cluster.assert_called_once()
