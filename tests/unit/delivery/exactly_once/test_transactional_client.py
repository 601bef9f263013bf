"""Settings that a transactional client rejects, and failures after which a transaction may have committed."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core.delivery import sending_client
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.transactional_client import (
    TransactionalClient,
    TransactionFailed,
    check_settings,
)
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.errors import ConfigError


def test_settings_that_exclude_transactions_are_rejected_at_once():
    with pytest.raises(ConfigError, match=r"max\.in\.flight"):
        check_settings(transactional_settings({"max.in.flight.requests.per.connection": 50}))


def test_without_a_token_the_fence_fails_and_is_tried_again_by_its_caller():
    """The constructor does not raise, so that a loop that fences again needs to handle one kind of failure."""
    errors, settings = [], {"bootstrap.servers": "", "oauth_cb": lambda _: None}
    client = TransactionalClient(
        settings, "id", statistics=print, connection_error=errors.append, stopping=lambda: False
    )
    with pytest.raises(TransactionFailed, match="oauth_cb returned None"):
        client.fence(print)
    assert [error.name() for error in errors] == ["_AUTHENTICATION"]


def test_if_the_client_accepts_no_token_the_fence_fails_and_is_tried_again_by_its_caller(monkeypatch):
    """As after a token that ended while the client was created. The shard, the replay and the Spark job fence again."""

    def no_token(_settings):
        text = "OAuth token not set within 10 seconds timeout"
        raise KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, text))

    monkeypatch.setattr(sending_client, "Producer", no_token)
    errors = []
    client = TransactionalClient(
        {"bootstrap.servers": "", "oauth_cb": lambda _: ("token", time.time() + 3600)},
        "id",
        statistics=print,
        connection_error=errors.append,
        stopping=lambda: False,
    )
    with pytest.raises(TransactionFailed, match="accepted no token"):
        client.fence(print)
    assert [error.name() for error in errors] == ["_AUTHENTICATION"]


def test_settings_are_checked_without_a_token():
    def get_token(_config):
        raise AssertionError("a token was requested")

    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": get_token,
    }
    check_settings(transactional_settings(login))


class Broker:
    """A client whose first record is refused locally and whose commit has no response. `error` fails the other records."""

    def __init__(self, error=None):
        self._error = error
        self._callbacks = []

    def begin_transaction(self):
        pass

    def produce(self, topic, value, key, partition, callback, *_):
        if value == b"refused":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self._callbacks.append(callback)

    def poll(self, timeout):
        while self._callbacks:
            self._callbacks.pop()(self._error, Report())

    def commit_transaction(self, timeout):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Report:
    def offset(self):
        return 1


def failure(broker):
    client = TransactionalClient(
        {"bootstrap.servers": ""}, "id", statistics=print, connection_error=print, stopping=lambda: False
    )
    client._producer = broker
    deliveries = [Delivery(b"", 0, "orders", None, value, []) for value in (b"refused", b"sent")]
    with pytest.raises(TransactionFailed) as raised:
        client.transact(deliveries, float("inf"))
    return raised.value


def test_a_commit_without_a_response_may_have_happened_even_if_the_client_refused_a_record():
    assert failure(Broker()).may_have_committed


def test_a_transaction_with_a_failed_record_is_not_committed():
    assert not failure(Broker(KafkaError(KafkaError._MSG_TIMED_OUT))).may_have_committed


@pytest.mark.slow
def test_a_client_that_is_destroyed_during_its_first_requests_does_not_end_the_process():
    command = [sys.executable, "-m", "tests.processes.destroyed_clients", "10", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 50
