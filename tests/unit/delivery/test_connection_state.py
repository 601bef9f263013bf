"""The state of the connection, and the notices about it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers.ports import free_ports
from producer_core.delivery import token_outage
from producer_core.delivery.connection_state import ConnectionState
from tests.support import eventually

UP = {"brokers": {"1": {"state": "UP"}}}
DOWN = {"brokers": {"1": {"state": "CONNECT"}}}
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def refused(milliseconds=12, broker="b1"):
    text = f"sasl_ssl://{broker}:9092/bootstrap: SASL authentication error: no (after {milliseconds}ms in state AUTH_REQ)"
    return KafkaError(KafkaError._AUTHENTICATION, text)


@pytest.fixture
def notices():
    return []


@pytest.fixture
def connection(notices):
    return ConnectionState(notices.append, clock=lambda: 0.0)


def test_a_repeated_refusal_is_reported_once_until_the_next_connection(connection, notices):
    for milliseconds in (12, 15, 11):
        connection.failed(refused(milliseconds))
        connection.failed(ALL_DOWN)
        connection.statistics(DOWN)
    assert [notice.kind for notice in notices] == ["connection_refused"]
    assert (
        notices[0].text == connection.error == "sasl_ssl://b1:9092/bootstrap: SASL authentication error: no"
    )

    connection.statistics(UP)
    connection.failed(refused())
    assert [notice.kind for notice in notices] == ["connection_refused", "connected", "connection_refused"]


NO_TOKEN = KafkaError(
    KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: Failed to connect to idp:443"
)
WRONG_SECRET = KafkaError(
    KafkaError._AUTHENTICATION, 'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}'
)


def test_a_token_that_cannot_be_renewed_is_reported_once_and_is_no_rejection(connection, notices):
    connection.statistics(UP)
    for _ in range(3):
        connection.failed(NO_TOKEN)
    assert [notice.kind for notice in notices] == ["connected", "token_unavailable"]
    assert notices[1].text == "No token was obtained: Failed to connect to idp:443"
    assert notices[1].severity == "warning"
    assert "code" not in notices[1].details  # on_severe_errors="stop" does not close the producer
    assert connection.connected


def test_a_second_failure_of_the_token_endpoint_is_reported_again(connection, notices, monkeypatch):
    connection.failed(NO_TOKEN)
    advance(monkeypatch, 3600)
    connection.failed(NO_TOKEN)
    assert [notice.kind for notice in notices] == ["token_unavailable", "token_unavailable"]


def advance(monkeypatch, seconds):
    now = time.monotonic() + seconds
    monkeypatch.setattr(token_outage.time, "monotonic", lambda: now)


REJECTED_TOKEN = KafkaError(
    KafkaError._AUTHENTICATION,
    'sasl_ssl://b1:9092/1: SASL authentication error: {"status":"invalid_token"} (after 9ms in state AUTH_REQ)',
)


@pytest.mark.parametrize("seconds", [1, 600, 3500])
def test_the_end_of_the_last_token_is_no_refusal_while_no_new_one_is_available(
    connection, notices, monkeypatch, seconds
):
    """The client reports the failure once, however long it lasts, and logs in with the token that ended."""
    connection.statistics(UP)
    connection.failed(NO_TOKEN)
    advance(monkeypatch, seconds)
    for _ in range(3):
        connection.failed(REJECTED_TOKEN)
        connection.failed(ALL_DOWN)
        connection.statistics(DOWN)
    assert [notice.kind for notice in notices] == [
        "connected", "token_unavailable", "token_unavailable", "connection_lost",
    ]  # fmt: skip
    assert notices[2].severity == "warning"
    assert notices[2].text == connection.error
    assert "which may have ended" in connection.error and "invalid_token" in connection.error
    assert not any("code" in notice.details for notice in notices)  # on_severe_errors="stop" does nothing
    assert connection.cause == "_ALL_BROKERS_DOWN"


def test_a_rejection_long_after_a_failure_of_the_token_is_a_refusal(connection, notices, monkeypatch):
    connection.failed(NO_TOKEN)
    connection.statistics(UP)
    advance(monkeypatch, 3700)
    connection.failed(REJECTED_TOKEN)
    advance(monkeypatch, 200)
    connection.failed(REJECTED_TOKEN)
    assert notices[-1].kind == "connection_refused"


def test_a_login_after_the_end_of_the_session_is_no_refusal_of_the_credentials(connection, notices):
    """Regression: a producer with `on_severe_errors="stop"` closed when a broker restarted beside the end of a token."""
    text = "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state: broker's supported mechanisms: "
    connection.statistics(UP)
    connection.failed(KafkaError(KafkaError._AUTHENTICATION, text))
    assert notices[-1].kind == "token_unavailable"


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "SCRAM-SHA-512"])
def test_a_login_whose_connection_ends_is_no_refusal_of_the_credentials(connection, notices, mechanism):
    """Regression: a producer with `on_severe_errors="stop"` closed when a broker restarted during a login."""
    text = (
        f"SASL {mechanism} mechanism handshake failed: Local: Broker transport failure: "
        "broker's supported mechanisms: (n/a)"
    )
    connection.failed(KafkaError(KafkaError._AUTHENTICATION, text))
    assert notices == []
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    assert [notice.kind for notice in notices] == ["connection_lost"]
    assert connection.error == text


@pytest.mark.parametrize("pause", [100, 200, 600])
def test_rejections_that_last_are_a_refusal_however_seldom_they_are(connection, notices, monkeypatch, pause):
    """Regression: three minutes without a rejection began the wait again."""
    connection.statistics(UP)
    connection.failed(REJECTED_TOKEN)
    for step in range(1, 4):
        advance(monkeypatch, step * pause)
        connection.failed(REJECTED_TOKEN)
    assert notices[-1].kind == "connection_refused"


@pytest.mark.parametrize("error", [REJECTED_TOKEN, refused()])
def test_without_any_login_a_rejection_after_a_failure_of_the_token_is_a_refusal(connection, notices, error):
    """Regression: a token with the wrong audience was not reported for a day after the endpoint had failed once."""
    connection.failed(NO_TOKEN)
    connection.failed(error)
    assert notices[-1].kind == "connection_refused"


def test_a_token_may_end_while_the_client_repeats_its_request_for_the_next_one(
    connection, notices, monkeypatch
):
    """librdkafka reports a server error of the endpoint after 50 seconds or more. A token that never works is refused."""
    connection.statistics(UP)
    connection.failed(REJECTED_TOKEN)
    advance(monkeypatch, 100)
    connection.failed(REJECTED_TOKEN)
    assert [notice.kind for notice in notices] == ["connected", "token_unavailable"]

    advance(monkeypatch, 100)
    connection.failed(REJECTED_TOKEN)
    assert (notices[-1].kind, notices[-1].details["code"]) == ("connection_refused", "_AUTHENTICATION")


def test_a_token_that_a_broker_rejects_after_another_rejection_is_over_may_have_ended_too(
    connection, notices, monkeypatch
):
    for step in range(3):
        connection.statistics(UP)
        connection.failed(REJECTED_TOKEN)
        for _ in range(5):
            connection.statistics(DOWN)
        advance(monkeypatch, step * 600)
    assert "connection_refused" not in {notice.kind for notice in notices}


def test_a_first_token_that_the_brokers_reject_is_a_refusal(connection, notices):
    connection.failed(REJECTED_TOKEN)
    (notice,) = notices
    assert (notice.kind, notice.details["code"]) == ("connection_refused", "_AUTHENTICATION")


def test_a_password_that_is_rejected_after_a_connection_is_a_refusal(connection, notices):
    connection.statistics(UP)
    connection.failed(refused())
    assert notices[-1].kind == "connection_refused"


def test_without_a_first_token_no_broker_is_connected(connection, notices):
    connection.failed(NO_TOKEN)
    for _ in range(5):
        connection.statistics(DOWN)
    assert [notice.kind for notice in notices] == ["token_unavailable", "connection_lost"]
    assert connection.unreachable == "No token was obtained: Failed to connect to idp:443"
    assert connection.cause == "_ALL_BROKERS_DOWN"


def test_a_refused_client_secret_is_a_rejection(connection, notices):
    connection.failed(WRONG_SECRET)
    (notice,) = notices
    assert (notice.kind, notice.severity) == ("connection_refused", "critical")
    assert notice.details["code"] == "_AUTHENTICATION"


def test_each_broker_that_refuses_is_reported(connection, notices):
    for broker in ("b1", "b2", "b1", "b2"):
        connection.failed(refused(broker=broker))
    assert len(notices) == 2


def test_a_first_connection_that_fails_is_reported_once_with_the_reason(connection, notices):
    connection.failed(KafkaError(KafkaError._TRANSPORT, "b1:9092: Connection refused"))
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    (notice,) = notices
    assert (notice.kind, notice.severity) == ("connection_lost", "critical")
    assert notice.text == "No broker is connected: b1:9092: Connection refused"


def test_the_notice_of_unreachable_brokers_without_a_reason_suggests_the_security_protocol(
    connection, notices
):
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    (notice,) = notices
    assert "security_protocol" in notice.text


def test_a_client_that_connects_at_the_second_attempt_reports_no_loss(connection, notices):
    connection.failed(KafkaError(KafkaError._TRANSPORT, "[::1]:9092: Connection refused"))
    connection.failed(ALL_DOWN)
    connection.statistics(DOWN)
    connection.statistics(UP)
    assert [notice.kind for notice in notices] == ["connected"]


def test_a_lost_connection_is_reported_once(connection, notices):
    connection.statistics(UP)
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    assert [notice.kind for notice in notices] == ["connected", "connection_lost"]
    connection.statistics(UP)
    assert notices[-1].kind == "connected"


def test_an_acknowledgement_proves_a_connection_before_the_first_statistics(connection, notices):
    connection.acknowledged()

    assert connection.connected


def test_a_late_acknowledgement_does_not_end_a_reported_loss(connection, notices):
    connection.acknowledged()
    connection.failed(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    connection.acknowledged()

    assert not connection.connected


# unreachable brokers and unsent messages


def connection_error(after="0ms in state CONNECT, 5 identical error(s) suppressed"):
    return KafkaError(
        KafkaError._TRANSPORT,
        f"b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after {after})",
    )


def test_the_reason_is_librdkafkas_text_without_its_counts(connection):
    connection.failed(connection_error())

    assert connection.error == "b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


def test_brokers_are_unreachable_from_the_first_failed_attempts_until_a_connection(connection):
    assert connection.unreachable is None
    assert connection.failed(connection_error()) is not None
    assert connection.unreachable is None  # another broker of the list may be available
    assert connection.failed(ALL_DOWN) is None

    assert connection.unreachable.endswith("Connection refused")
    connection.statistics(UP)
    assert connection.unreachable is None


def transmitting(requests, messages=0):
    return {"brokers": {"1": {"state": "UP", "req": {"Produce": requests}}}, "txmsgs": messages}


def test_a_message_is_provably_not_sent_if_nothing_was_transmitted_since_its_acceptance(notices):
    now = [100.0]
    connection = ConnectionState(notices.append, clock=lambda: now[0])
    accepted, produced = 100.0, time.monotonic()
    connection.statistics(transmitting(0))
    assert not connection.may_have_sent(accepted, produced)

    now[0] = 101.0
    connection.statistics(transmitting(1, 5))
    assert connection.may_have_sent(accepted, produced)
    assert connection.may_have_sent(101.5, produced)  # the clock was changed
    assert not connection.may_have_sent(101.5, time.monotonic())

    connection.statistics(transmitting(1, 5))
    assert not connection.may_have_sent(101.5, time.monotonic())
    connection.client_failed(ALL_DOWN, sent=True)
    assert connection.may_have_sent(101.5, time.monotonic())
    connection.statistics(transmitting(1, 5))  # of the new client
    assert connection.may_have_sent(100.5, time.monotonic())


def counting(node=1, **counters):
    return {"brokers": {f"b{node}:9092/{node}": {"state": "UP", "nodeid": node, **counters}}}


@pytest.mark.parametrize(
    "interrupted",
    [
        counting(disconnects=3),
        counting(disconnects=2, req_timeouts=1),
        counting(disconnects=1),  # dropped during an outage, and present again
        {"brokers": {}},
    ],
    ids=["disconnect", "time-out", "restarted at zero", "dropped"],
)
def test_a_message_may_have_been_transmitted_twice_after_an_interruption(connection, interrupted):
    accepted = 0.0  # the clock does not advance
    connection.statistics(counting(disconnects=2))
    before = time.monotonic()
    connection.statistics(counting(disconnects=2))
    assert not connection.may_have_repeated(accepted, before)

    connection.statistics(interrupted)
    assert connection.may_have_repeated(accepted, before)
    assert not connection.may_have_repeated(accepted, time.monotonic())


def waiting(*windows, transmitted):
    """Return statistics with the count and the minimum, in microseconds, of each broker's waits before a transmission."""
    brokers = {
        f"b{node}": {"nodeid": node, "int_latency": {"cnt": count, "min": shortest}}
        for node, (count, shortest) in enumerate(windows)
    }
    return {"brokers": brokers, "txmsgs": transmitted}


def test_no_message_is_transmitted_before_the_shortest_wait_of_its_client(connection):
    connection.statistics(waiting((0, 0), (0, 0), transmitted=0))
    assert connection.transmitted_after(100.0) is None

    connection.statistics(waiting((3, 1_500_000), (1, 1_250_000), transmitted=4))
    assert connection.transmitted_after(100.0) == 101.25

    connection.statistics(waiting((0, 0), (1, 2_000_000), transmitted=5))  # may be a second transmission
    assert connection.transmitted_after(100.0) == 101.25

    connection.statistics(waiting((1, 5_000), (0, 0), transmitted=6))
    assert connection.transmitted_after(100.0) == pytest.approx(100.005)


@pytest.mark.parametrize("shortest", [0, -1])
def test_a_message_without_a_wait_may_be_transmitted_at_once(connection, shortest):
    connection.statistics(waiting((1, shortest), transmitted=1))
    connection.statistics(waiting((1, 2_000_000), transmitted=2))

    assert connection.transmitted_after(1.0) == 1.0


def test_a_transmission_whose_wait_is_unknown_may_have_been_made_at_once(connection):
    """The statistics no longer contain the broker that received the first of the two transmissions."""
    connection.statistics(waiting((1, 900_000), transmitted=2))

    assert connection.transmitted_after(1.0) == 1.0


def test_a_new_client_has_its_own_shortest_wait(connection):
    connection.statistics(waiting((1, 5_000), transmitted=1))
    connection.client_failed(ALL_DOWN, sent=False)
    assert connection.transmitted_after(1.0) is None

    connection.statistics(waiting((1, 700_000), transmitted=1))
    assert connection.transmitted_after(1.0) == 1.7


def test_a_retry_of_another_request_does_not_count_as_a_message_retry(connection):
    connection.statistics(counting(disconnects=2))
    before = time.monotonic()
    connection.statistics(counting(disconnects=2, txretries=1))
    assert not connection.may_have_repeated(0.0, before)


def test_counters_of_a_bootstrap_address_are_ignored(connection):
    connection.statistics(counting(-1, disconnects=0))
    before = time.monotonic()
    connection.statistics(counting(-1, disconnects=4))
    assert not connection.may_have_repeated(0.0, before)


def test_the_cause_of_an_unsent_message_is_a_code_with_useful_advice(connection):
    connection.failed(connection_error())
    assert connection.cause == "_ALL_BROKERS_DOWN"
    connection.failed(refused())
    assert connection.cause == "_AUTHENTICATION"


@pytest.mark.slow
def test_health_and_dead_letters_name_the_reason_when_no_broker_is_reachable():
    """With real librdkafka and a port without a listener."""
    (port,) = free_ports(1)
    producer = ReliableKafkaProducer(f"127.0.0.1:{port}", store=None)
    producer.send_message("orders", b"1")
    eventually(lambda: f":{port}" in str(producer.get_health_status()["issues"]), 60)
    health = producer.get_health_status()
    producer.close(0.1)

    (dead_letter,) = producer.dlq.dead_letters("orders")
    assert health["status"] == "unhealthy"
    (issue,) = health["issues"]
    assert f":{port}" in issue and "Connection refused" in issue
    assert (dead_letter.code, dead_letter.verdict) == ("_ALL_BROKERS_DOWN", "not_sent")
    assert f":{port}" in dead_letter.error_text and "Connection refused" in dead_letter.error_text


@pytest.mark.slow
def test_a_message_that_times_out_while_no_broker_is_reachable_names_the_reason():
    (port,) = free_ports(1)
    no_retries = RetryConfig(max_retries=0)
    with ReliableKafkaProducer(
        f"127.0.0.1:{port}", {"message.timeout.ms": 2000}, no_retries, store=None
    ) as producer:
        producer.send_message("orders", b"1")
        producer.flush(60)
        (dead_letter,) = producer.dlq.dead_letters("orders")

    assert (dead_letter.code, dead_letter.verdict) == ("_MSG_TIMED_OUT", "not_sent")
    assert "no broker was connected: " in dead_letter.error_text
    assert f":{port}" in dead_letter.error_text and "Connection refused" in dead_letter.error_text
