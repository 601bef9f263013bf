"""Every error code has a meaning and advice, and no verdict promises more than is proven."""

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
    advice_for,
    failure_of,
    fingerprint,
    judge,
    known_failures,
    lookup,
    normalise,
    not_sent_verdict,
    retriable_codes,
)
from producer_core.kafka.error_aliases import NO_ERROR, PARENTS
from tests.fixtures.error_names import CODES
from tests.support import eventually

UNKNOWN_TOPIC_OR_PART = 3
BACKOFF = 0.1


@pytest.mark.parametrize("name", CODES)
def test_every_librdkafka_code_has_a_row_with_complete_sentences(name):
    failure = failure_of(CODES[name])

    assert (failure.code, failure.number) == (name, CODES[name])
    assert failure == failure_of(name) == failure_of(KafkaError(CODES[name])) == lookup(name)
    for sentence in (failure.meaning, failure.advice):
        assert sentence.endswith(".")
        assert sentence[0].isupper()


def test_local_failures_are_not_sent():
    assert {failure.verdict for failure in known_failures() if failure.kind == "local"} == {"not_sent"}


@pytest.mark.parametrize("code", ["_MSG_TIMED_OUT", "_TRANSPORT", "_TIMED_OUT", "UNKNOWN"])
def test_the_advice_for_messages_that_were_not_sent_does_not_ask_for_a_check_of_the_topic(code):
    failure = failure_of(code)
    advice = advice_for(failure, {"not_sent": 3})

    assert advice.startswith("The message never left the client: it is safe to send again.")
    assert "bootstrap.servers" in advice
    for verdicts in (["possibly_persisted"], ["not_sent", "possibly_persisted"], ["inconclusive"], []):
        assert advice_for(failure, verdicts) == failure.advice


def test_other_advice_is_the_same_for_every_verdict():
    failure = failure_of("_RESOLVE")

    assert advice_for(failure, ["not_sent"]) == failure.advice


def test_timed_out_failures_are_never_safe_to_resend():
    for failure in known_failures():
        if failure.kind in ("timed_out",):
            assert failure.verdict == "possibly_persisted", failure.code


@pytest.mark.parametrize(
    "code", ["_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_TIMED_OUT", "_TRANSPORT"]
)
def test_a_message_that_may_be_on_the_log_is_possibly_persisted(code):
    assert judge(failure_of(code), latency=0.0, retry_backoff=BACKOFF)[0] == "possibly_persisted"


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"])
def test_a_code_of_the_whole_topic_is_no_proof(code):
    """librdkafka gives it to messages that wait for their retry, too."""
    verdict, reason = judge(failure_of(code), latency=0.0, retry_backoff=BACKOFF)

    assert verdict == "possibly_persisted"
    assert reason.startswith(f"The broker rejected the topic ({code}), ")


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
def test_a_code_that_brokers_return_after_the_write_is_not_a_rejection(code):
    assert judge(failure_of(code), latency=0.0, retry_backoff=BACKOFF)[0] == "possibly_persisted"


@given(st.integers(-(2**31), 2**31 - 1))
def test_an_unknown_number_is_possibly_persisted(number):
    failure = failure_of(number)
    assert failure.number == number or failure.verdict == "possibly_persisted"


@given(st.text(max_size=30))
def test_an_unknown_name_is_possibly_persisted(name):
    if name not in {failure.code for failure in known_failures()}:
        assert failure_of(name).verdict == "possibly_persisted"


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
def test_an_error_is_found_by_any_common_name(name, code):
    assert lookup(name).code == code


def test_a_name_that_does_not_identify_an_error_is_rejected():
    for name in PARENTS:
        with pytest.raises(ConfigError, match="base class of many errors"):
            lookup(name)
    for name in NO_ERROR:
        with pytest.raises(ConfigError, match="is not an error"):
            lookup(name)


def test_the_timeouts_of_the_client_and_of_the_broker_are_different_codes():
    assert lookup("_TIMED_OUT").code == "_TIMED_OUT"
    assert lookup("REQUEST_TIMED_OUT").code == "REQUEST_TIMED_OUT"


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean NOT_LEADER_FOR_PARTITION"):
        lookup("NotLeaderForPartitonError")


@pytest.mark.parametrize("name", ["nonsense", "foo", "hello"])
def test_an_unrelated_name_gets_the_list_of_codes_instead_of_a_suggestion(name):
    with pytest.raises(ConfigError) as raised:
        lookup(name)
    assert raised.value.fix == "See producer-core explain --all."


def test_the_default_retriable_errors_are_codes():
    assert retriable_codes(DEFAULT_RETRIABLE) == {
        "_MSG_TIMED_OUT",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
    }


def test_a_rejection_within_the_time_of_one_transmission_is_rejected():
    verdict, reason = judge(lookup("POLICY_VIOLATION"), latency=0.79 * BACKOFF, retry_backoff=BACKOFF)
    assert verdict == "rejected"
    assert "only transmission" in reason


@pytest.mark.parametrize("latency", [0.8 * BACKOFF, 1.0, 119.0, None])
def test_a_rejection_after_a_possible_earlier_transmission_is_possibly_persisted(latency):
    verdict, reason = judge(lookup("POLICY_VIOLATION"), latency=latency, retry_backoff=BACKOFF)
    assert verdict == "possibly_persisted"
    assert "earlier transmission" in reason


@pytest.mark.parametrize(
    "code", ["SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_RESOLVE", "SECURITY_DISABLED"]
)
def test_expired_credentials_after_a_transmission_are_possibly_persisted(code):
    assert judge(failure_of(code), latency=30.0, retry_backoff=BACKOFF)[0] == "possibly_persisted"


@pytest.mark.parametrize("code", ["_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "_MSG_TIMED_OUT"])
def test_a_message_without_a_partition_is_not_sent(code):
    verdict, reason = judge(failure_of(code), latency=120.0, retry_backoff=BACKOFF, assigned=False)
    assert (verdict, reason) == not_sent_verdict(failure_of(code))
    assert verdict == "not_sent"


@pytest.mark.parametrize("code", ["malformed", "held"])
def test_own_codes_are_always_not_sent(code):
    assert judge(failure_of(code), latency=None, retry_backoff=BACKOFF)[0] == "not_sent"


@given(
    code=st.sampled_from(sorted(CODES)),
    latency=st.none() | st.floats(0, 200),
    retry_backoff=st.floats(0, 10),
)
def test_a_message_with_a_partition_is_safe_to_resend_only_after_a_quick_rejection(
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


@pytest.mark.slow
def test_a_written_message_whose_topic_disappears_is_not_classified_as_not_sent():
    """librdkafka returns _UNKNOWN_PARTITION for a message that is in the log, so a resend is not safe."""
    no_retry, counter = RetryConfig(max_retries=0), TransmissionCounter()
    settings = {"topic.metadata.propagation.max.ms": 100, "statistics.interval.ms": 50, "linger_ms": 0}
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        with ReliableKafkaProducer(
            broker.bootstrap_servers, settings, no_retry, store=None, hooks=[counter]
        ) as producer:
            producer.send_message("orders", {"warm": 1})
            producer.flush(10)
            leader = broker.leader("orders")
            broker.set_latency(30, leader)
            message_id = producer.send_message("orders", {"n": 1})
            eventually(lambda: counter.messages == 2)

            hide_topic(broker, "orders", UNKNOWN_TOPIC_OR_PART)
            broker.down(leader)
            dead_letter = eventually(lambda: producer.dlq.get(message_id), timeout=20)

        hide_topic(broker, "orders", 0)
        broker.set_latency(0, leader)
        broker.up(leader)
        assert high_watermark(broker, "orders") == 2  # the message is in the log
    # mostly _UNKNOWN_PARTITION, sometimes _DESTROY
    assert dead_letter.verdict == "possibly_persisted", dead_letter.code


class TransmissionCounter(Hook):
    """Count the messages that librdkafka has transmitted."""

    messages = 0

    def client_statistics(self, statistics):
        self.messages = statistics["txmsgs"]


def high_watermark(broker, topic):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    finally:
        consumer.close()


def hide_topic(broker, topic, code):
    """Remove the topic from the metadata of the embedded broker."""
    set_error = library().rd_kafka_mock_topic_set_error
    set_error.argtypes, set_error.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int], None
    set_error(broker._mock._cluster, topic.encode(), code)


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
def test_errors_of_one_cause_have_one_fingerprint(one, other):
    assert fingerprint("_TRANSPORT", one) == fingerprint("_TRANSPORT", other)


def test_errors_of_two_causes_have_two_fingerprints():
    assert fingerprint("_TRANSPORT", "refused") != fingerprint("_SSL", "refused")
    assert fingerprint("_TRANSPORT", "refused") != fingerprint("_TRANSPORT", "timed out")


@given(st.text(max_size=200))
def test_a_fingerprint_is_twelve_hex_digits_of_any_text(text):
    digest = fingerprint("X", text)
    assert len(digest) == 12
    assert int(digest, 16) >= 0
    assert digest == fingerprint("X", text)
    assert not any(digit in normalise(text) for digit in "0123456789")
