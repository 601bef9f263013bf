"""Which events close a producer with `on_severe_errors="stop"`."""

from __future__ import annotations

import pytest

from producer_core.events import AttemptFailed, Notice
from producer_core.producer.severe_errors import SevereErrorStop
from producer_core.producer.shutdown import Shutdown
from tests.support import eventually


@pytest.fixture
def closed():
    return []


@pytest.fixture
def shutdown(closed):
    return Shutdown(closed.append, so_far=lambda: None)


@pytest.fixture
def stop(shutdown):
    return SevereErrorStop(shutdown)


def attempt_failed(code):
    return AttemptFailed("id", "orders", code, "permanent", "text", 1, None, False, 0.0)


def test_a_failed_authorization_closes_the_producer_once(stop, closed):
    for _ in range(2):
        stop.attempt_failed(attempt_failed("CLUSTER_AUTHORIZATION_FAILED"))
    eventually(lambda: closed == [30.0])


@pytest.mark.parametrize("code", ["_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "POLICY_VIOLATION"])
def test_a_message_that_fails_while_a_login_is_refused_does_not_close_the_producer(stop, shutdown, code):
    stop.attempt_failed(attempt_failed(code))
    assert not shutdown.reason


def test_refused_credentials_close_the_producer(stop, shutdown, closed):
    stop.notice(Notice("connection_refused", "critical", "refused", 0.0, {"code": "_AUTHENTICATION"}))
    eventually(lambda: closed == [30.0])
    assert "refused" in shutdown.reason


def test_a_missing_token_does_not_close_the_producer(stop, shutdown):
    stop.notice(Notice("token_unavailable", "warning", "no token", 0.0))
    assert not shutdown.reason
