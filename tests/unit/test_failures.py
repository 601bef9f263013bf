"""Every error code has a row; a verdict never promises more than is known."""

from __future__ import annotations

import ctypes

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from producer_core import ReliableKafkaProducer
from producer_core._internal.librdkafka import library
from producer_core.brokers import embedded
from producer_core.config import DEFAULT_RETRIABLE, RetryConfig
from producer_core.errors import ConfigError
from producer_core.events import Hook
from producer_core.kafka.classify import (
    failure_of,
    fingerprint,
    judge,
    known_failures,
    lookup,
    normalise,
    other_names,
    refused_here,
    retriable_codes,
)
from producer_core.kafka.error_aliases import ALIASES, NO_ERROR, PARENTS
from producer_core.kafka.error_codes import BEYOND, ELSEWHERE
from tests.support import eventually
from tests.unit import error_names

UNKNOWN_TOPIC_OR_PART = 3

CODES = {
    name: number
    for name in dir(KafkaError)
    if isinstance(number := getattr(KafkaError, name), int) and name != "NO_ERROR"
}
BACKOFF = 0.1


# the table


@pytest.mark.parametrize("name", CODES)
def test_every_code_of_the_library_has_a_row_that_helps(name):
    failure = failure_of(CODES[name])

    assert (failure.code, failure.number) == (name, CODES[name])
    assert failure == failure_of(name) == failure_of(KafkaError(CODES[name])) == lookup(name)
    for sentence in (failure.meaning, failure.advice):
        assert sentence.endswith(".")
        assert sentence[0].isupper()


def test_no_row_stands_twice_or_for_nothing():
    rows = [failure.code for failure in known_failures()]
    assert len(rows) == len(set(rows))
    assert set(rows) - set(CODES) - set(BEYOND) == {"malformed", "held", "newer_record"}  # our own


def test_what_never_left_the_client_is_called_not_sent():
    assert {failure.verdict for failure in known_failures() if failure.kind == "local"} == {"not_sent"}


def test_what_was_interrupted_is_never_safe_to_resend():
    for failure in known_failures():
        if failure.kind in ("timed_out",):
            assert failure.verdict == "possibly_persisted", failure.code


@pytest.mark.parametrize(
    "code", ["_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_TIMED_OUT", "_TRANSPORT"]
)
def test_a_message_that_may_be_on_the_log_is_not_called_lost(code):
    assert judge(failure_of(code), latency=0.0, retry_backoff=BACKOFF)[0] == "possibly_persisted"


@pytest.mark.parametrize(
    "code",
    [
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_TOPIC_OR_PART",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    ],
)
def test_what_a_broker_says_after_it_wrote_the_message_is_no_refusal(code):
    assert judge(failure_of(code), latency=0.0, retry_backoff=BACKOFF)[0] == "possibly_persisted"


@given(st.integers(-(2**31), 2**31 - 1))
def test_an_unknown_number_is_possibly_persisted(number):
    failure = failure_of(number)
    assert failure.number == number or failure.verdict == "possibly_persisted"


@given(st.text(max_size=30))
def test_an_unknown_name_is_possibly_persisted(name):
    if name not in {failure.code for failure in known_failures()}:
        assert failure_of(name).verdict == "possibly_persisted"


# names


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("NotLeaderForPartitionError", "NOT_LEADER_FOR_PARTITION"),  # kafka-python
        ("KafkaTimeoutError", "_MSG_TIMED_OUT"),
        ("NotLeaderOrFollowerException", "NOT_LEADER_FOR_PARTITION"),  # Java
        ("RecordTooLargeException", "MSG_SIZE_TOO_LARGE"),
        ("MESSAGE_TOO_LARGE", "MSG_SIZE_TOO_LARGE"),  # the protocol
        ("ERR__MSG_TIMED_OUT", "_MSG_TIMED_OUT"),  # librdkafka
        ("RD_KAFKA_RESP_ERR_UNKNOWN", "UNKNOWN"),
        ("_timed_out", "_TIMED_OUT"),
        (" 10 ", "MSG_SIZE_TOO_LARGE"),
        ("-192", "_MSG_TIMED_OUT"),
        ("not_enough_replicas", "NOT_ENOUGH_REPLICAS"),
    ],
)
def test_an_error_is_found_by_the_name_that_people_know(name, code):
    assert lookup(name).code == code


NAMED = {
    name: int(number) if number else None
    for names in (error_names.PROTOCOL, error_names.KAFKA_PYTHON, error_names.JAVA)
    for name, _, number in (word.partition("=") for word in names.split())
}


KIN = {name.removesuffix("Error").removesuffix("Exception") for name in (*NO_ERROR, *PARENTS)}
"""Kafka, Retriable, Authorization, … are errors in kafka-python and exceptions in Java."""


@pytest.mark.parametrize(
    "name", sorted(name for name in NAMED if name.removesuffix("Error").removesuffix("Exception") not in KIN)
)
def test_every_name_of_the_protocol_of_kafka_python_and_of_java_is_found(name):
    failure, number = lookup(name), NAMED[name]
    assert failure in known_failures()
    if number is not None:
        assert failure.number == number
        assert lookup(str(number)) == failure_of(number) == failure


def test_a_name_that_is_none_of_an_error_says_so():
    for name in PARENTS:
        with pytest.raises(ConfigError, match="parent of many errors"):
            lookup(name)
    for name in NO_ERROR:
        with pytest.raises(ConfigError, match="is no error"):
            lookup(name)


def test_every_second_name_leads_to_a_row():
    assert set(ALIASES.values()) <= {failure.code for failure in known_failures()}


TRANSACTION_CALLS = """
_CONFLICT _DESTROY _FENCED _GAPLESS_GUARANTEE _INCONSISTENT _INVALID_ARG _NOT_CONFIGURED _NO_OFFSET
_OUTDATED _PREV_IN_PROGRESS _IN_PROGRESS _PURGE_QUEUE _STATE _TIMED_OUT _TRANSPORT _UNKNOWN_BROKER
CLUSTER_AUTHORIZATION_FAILED CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS
COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID GROUP_AUTHORIZATION_FAILED ILLEGAL_GENERATION
INVALID_COMMIT_OFFSET_SIZE INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING
INVALID_TRANSACTION_TIMEOUT INVALID_TXN_STATE NOT_COORDINATOR OFFSET_METADATA_TOO_LARGE
OPERATION_NOT_ATTEMPTED PRODUCER_FENCED REBALANCE_IN_PROGRESS REQUEST_TIMED_OUT
TOPIC_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE
TRANSACTION_COORDINATOR_FENCED UNKNOWN_MEMBER_ID UNKNOWN_PRODUCER_ID UNKNOWN_TOPIC_OR_PART
UNSTABLE_OFFSET_COMMIT UNSUPPORTED_FOR_MESSAGE_FORMAT
"""


def test_a_row_knows_its_other_names():
    assert "NOT_LEADER_OR_FOLLOWER" in other_names("NOT_LEADER_FOR_PARTITION")
    assert other_names("_NOOP") == []


def test_what_a_transaction_call_can_give_is_explained_as_such():
    """The codes that librdkafka's rdkafka_txnmgr.c names, with those that it passes on from TxnOffsetCommit."""
    given = TRANSACTION_CALLS.split()
    assert set(given) & {*ELSEWHERE, *BEYOND} == set()
    assert {lookup(name).code for name in given} == set(given)


def test_timed_out_of_the_client_and_of_the_broker_are_two_things():
    assert lookup("_TIMED_OUT").code == "_TIMED_OUT"
    assert lookup("REQUEST_TIMED_OUT").code == "REQUEST_TIMED_OUT"


def test_a_misspelt_name_is_told_the_nearest_one():
    with pytest.raises(ConfigError, match="Did you mean NOT_LEADER_FOR_PARTITION"):
        lookup("NotLeaderForPartitonError")


def test_the_default_retriable_errors_are_codes():
    assert retriable_codes(DEFAULT_RETRIABLE) == {
        "_MSG_TIMED_OUT",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
    }


# the verdict


def test_a_refusal_within_one_transmissions_time_is_rejected():
    verdict, reason = judge(lookup("POLICY_VIOLATION"), latency=0.79 * BACKOFF, retry_backoff=BACKOFF)
    assert verdict == "rejected"
    assert "only transmission" in reason


@pytest.mark.parametrize("latency", [0.8 * BACKOFF, 1.0, 119.0, None])
def test_a_refusal_that_left_room_for_an_earlier_transmission_is_doubted(latency):
    verdict, reason = judge(lookup("POLICY_VIOLATION"), latency=latency, retry_backoff=BACKOFF)
    assert verdict == "possibly_persisted"
    assert "earlier transmission" in reason


@pytest.mark.parametrize(
    "code", ["SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_RESOLVE", "SECURITY_DISABLED"]
)
def test_credentials_that_expired_after_a_transmission_do_not_make_it_not_sent(code):
    assert judge(failure_of(code), latency=30.0, retry_backoff=BACKOFF)[0] == "possibly_persisted"


@pytest.mark.parametrize("code", ["_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "_MSG_TIMED_OUT"])
def test_a_message_that_was_never_given_a_partition_was_never_sent(code):
    verdict, reason = judge(failure_of(code), latency=120.0, retry_backoff=BACKOFF, assigned=False)
    assert (verdict, reason) == refused_here(failure_of(code))
    assert verdict == "not_sent"


@pytest.mark.parametrize("code", ["malformed", "held"])
def test_our_own_codes_are_never_doubted(code):
    assert judge(failure_of(code), latency=None, retry_backoff=BACKOFF)[0] == "not_sent"


@given(
    code=st.sampled_from(sorted(CODES)),
    latency=st.none() | st.floats(0, 200),
    retry_backoff=st.floats(0, 10),
)
def test_a_report_on_a_message_that_had_a_partition_is_safe_only_as_a_quick_refusal(
    code, latency, retry_backoff
):
    failure = failure_of(code)
    verdict, reason = judge(failure, latency=latency, retry_backoff=retry_backoff)

    assert verdict in ("rejected", "possibly_persisted")
    assert reason.endswith(".")
    assert failure.code in reason
    if verdict == "rejected":
        assert failure.verdict == "rejected"
        assert latency < 0.8 * retry_backoff


def test_a_written_message_whose_topic_then_vanished_is_not_called_not_sent():
    """librdkafka says _UNKNOWN_PARTITION of a message that is on the log, and it was called safe to resend."""
    quick, sent = RetryConfig(max_retries=0), Transmitted()
    settings = {"topic.metadata.propagation.max.ms": 100, "statistics.interval.ms": 50, "linger_ms": 0}
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        with ReliableKafkaProducer(
            broker.bootstrap_servers, settings, quick, store=None, hooks=[sent]
        ) as producer:
            producer.send_message("orders", {"warm": 1})
            producer.flush(10)
            home = broker.leader("orders")
            broker.set_latency(30, home)
            message_id = producer.send_message("orders", {"n": 1})
            eventually(lambda: sent.messages == 2)

            forget_topic(broker, "orders", UNKNOWN_TOPIC_OR_PART)
            broker.down(home)
            dead_letter = eventually(lambda: producer.dlq.get(message_id), timeout=20)

        forget_topic(broker, "orders", 0)
        broker.set_latency(0, home)
        broker.up(home)
        assert end_of(broker, "orders") == 2  # it is there
    assert dead_letter.verdict == "possibly_persisted", (
        dead_letter.code
    )  # mostly _UNKNOWN_PARTITION, else _DESTROY


class Transmitted(Hook):
    """How many messages librdkafka has transmitted."""

    messages = 0

    def client_statistics(self, statistics):
        self.messages = statistics["txmsgs"]


def end_of(broker, topic):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    finally:
        consumer.close()


def forget_topic(broker, topic, code):
    """The metadata of the embedded broker names no such topic from now on."""
    set_error = library().rd_kafka_mock_topic_set_error
    set_error.argtypes, set_error.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int], None
    set_error(broker._mock._cluster, topic.encode(), code)


# groups of errors


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Connect to 10.0.0.7:9092 failed", "Connect to 10.1.2.3:9094 failed"),
        (
            "broker1.shop.example:9092: timed out after 3012 ms",
            "broker2.shop.example:9092: timed out after 99 ms",
        ),
        ("localhost:9092/1: 2 requests timed out", "localhost:9093/2: 17 requests timed out"),
        (
            "message 0190b5d2-7d3a-7cc1-8000-000000000001-7 refused",
            "message 0190b5d2-7d3a-7cc1-8fff-0000000000ff-1234 refused",
        ),
        ("GET http://one/a?b=1 gave 500", "GET https://two/c gave 502"),
        ("at 0xdeadbeef  in   x", "at 0x1 in x"),
        ("[::1]:9092: refused", "[fe80::17]:9092: refused"),
    ],
)
def test_errors_of_one_cause_are_one_group(one, other):
    assert fingerprint("_TRANSPORT", one) == fingerprint("_TRANSPORT", other)


def test_errors_of_two_causes_are_two_groups():
    assert fingerprint("_TRANSPORT", "refused") != fingerprint("_SSL", "refused")
    assert fingerprint("_TRANSPORT", "refused") != fingerprint("_TRANSPORT", "timed out")


@given(st.text(max_size=200))
def test_a_fingerprint_is_twelve_hex_digits_of_any_text(text):
    mark = fingerprint("X", text)
    assert len(mark) == 12
    assert int(mark, 16) >= 0
    assert mark == fingerprint("X", text)
    assert not any(digit in normalise(text) for digit in "0123456789")
