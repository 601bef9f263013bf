"""Check fingerprints against a fixed corpus: one cause has one fingerprint, different causes have different ones.

The keys are the normalised texts that identify a group. Changing one separates existing dead letters of a cause from
later ones, so such a change must be intentional.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.kafka.classify import fingerprint, normalise

UUID = "0192a4c0-7b1e-7d44-9c3a-2b9f0c1d2e3f"

CORPUS = {
    "local: message timed out": ["Local: Message timed out"],
    "<address>: disconnected (after <number>ms in state up, <number> identical error(s) suppressed)": [
        "broker-1.kafka.svc:9092/1: Disconnected (after 3ms in state UP, 2 identical error(s) suppressed)",
        "broker-2.kafka.svc:9092/2: Disconnected (after 90210ms in state UP, 17 identical error(s) suppressed)",
    ],
    "<address>: connect to <address> failed: connection refused (after <number>ms in state connect)": [
        "localhost:9092: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
        "kafka:29092: Connect to ipv6#[::1]:29092 failed: Connection refused (after 12ms in state CONNECT)",
        "b.shop.example:9: Connect to ipv4#10.1.2.3:9 failed: Connection refused (after 1ms in state CONNECT)",
    ],
    "<address>: ssl handshake failed: certificate verify failed": [
        "ssl://one.shop.example:9093/bootstrap: SSL handshake failed: certificate verify failed",
        "sasl_ssl://two:9094/3: SSL handshake failed: certificate verify failed",
    ],
    "no route to <address>": [
        "No route to 10.0.0.7",
        "No route to 10.0.0.8:9092",
        "No route to 2001:db8::ff00:42:8329",
        "No route to fe80::1%eth0",
        "No route to [2001:db8::1]:9092",
        "No route to ::1",
        "No route to 2001:0db8:0000:0000:0000:ff00:0042:8329",
        "No route to broker-7:9092",
        "No route to ip-10-0-0-1.eu-central-1.compute.internal",
        "No route to kafka.shop.example",
        "No route to localhost",
        "No route to kafka://one:9092",
    ],
    "broker: message size too large (<number> bytes, limit <number>)": [
        "Broker: Message size too large (1048600 bytes, limit 1048576)",
        "Broker: Message size too large (20,000,001 bytes, limit 1,048,576)",
        "Broker: Message size too large (0xff bytes, limit 1.5)",
    ],
    "topic <name> not found": ["Topic 'orders' not found", 'Topic "page-views" not found', "Topic `a.b` not found"],
    "org.apache.kafka.common.errors.timeoutexception: expiring <number> record(s) for orders-<number>:<number> ms": [
        "org.apache.kafka.common.errors.TimeoutException: Expiring 5 record(s) for orders-0:120000 ms",
        "org.apache.kafka.common.errors.TimeoutException: Expiring 50 record(s) for orders-11:30001 ms",
    ],
    "org.apache.kafka.common.errors.recordtoolargeexception: expiring <number> record(s)": [
        "org.apache.kafka.common.errors.RecordTooLargeException: Expiring 5 record(s)"
    ],
    "message <id> refused": [
        f"message {UUID} refused",
        f"message {UUID.upper()}-12345 refused",
        "message 3f2a9c1b refused",
        "message 507f1f77bcf86cd799439011 refused",
        "message 01HZX3KQ5V8RYT2N4M6P7S9W0A refused",
        "message 00:1b:44:11:3a:b7 refused",
    ],
    "offset <number> of partition <number> is gone": [
        "offset 42 of partition 3 is gone",
        "offset -1 of partition 0 is gone",
        "offset 9007199254740993 of partition 17 is gone",
    ],
    "offset:<number> out of range": ["offset:12345 out of range", "offset:7 out of range"],
    "died at <time>": ["died at 2026-11-21T10:58:54.123Z", "died at 2026-01-02 03:04", "died at 2026-01-02T03:04:05+01:00"],
    "expecting value: line <number> column <number> (char <number>)": [
        "Expecting value: line 1 column 1 (char 0)",
        "Expecting value: line 17 column 3 (char 299)",
    ],
    "expecting ',' delimiter: line <number> column <number> (char <number>)": [
        "Expecting ',' delimiter: line 1 column 5 (char 4)"
    ],
    "expecting ':' delimiter: line <number> column <number> (char <number>)": [
        "Expecting ':' delimiter: line 1 column 5 (char 4)"
    ],
    "serializer raised 'valueerror' on <name>": [
        "serializer raised 'ValueError' on 'abc'",
        "Serializer raised 'ValueError' on 'customer-17'",
    ],
    "serializer raised 'java.io.ioexception' on <name>": ["serializer raised 'java.io.IOException' on 'abc'"],
    "the broker said 'msg_size_too_large' of <name>": ["The broker said 'MSG_SIZE_TOO_LARGE' of 'orders'"],
    "the broker said 'invalid_record' of <name>": ["The broker said 'INVALID_RECORD' of 'orders'"],
    "java.io.ioexception: broken pipe": ["java.io.IOException: Broken pipe"],
    "java.net.socketexception: broken pipe": ["java.net.SocketException: Broken pipe"],
    "std::bad_alloc": ["std::bad_alloc"],
    "sasl authentication error: can't log in as <name>": [
        "SASL authentication error: can't log in as 'alice'",
        "SASL authentication  error:\n can't log in as «bob»",
    ],
}  # fmt: skip


@pytest.mark.parametrize("cause", CORPUS)
def test_errors_of_one_cause_have_one_fingerprint(cause):
    assert {normalise(text) for text in CORPUS[cause]} == {cause}
    assert len({fingerprint("_TRANSPORT", text) for text in CORPUS[cause]}) == 1


def test_errors_of_different_causes_have_different_fingerprints():
    fingerprints = [fingerprint("_TRANSPORT", texts[0]) for texts in CORPUS.values()]
    assert len(set(fingerprints)) == len(CORPUS)


def test_one_text_with_two_codes_has_two_fingerprints():
    assert fingerprint("_TRANSPORT", "refused") != fingerprint("_SSL", "refused")


def test_a_fingerprint_never_changes():
    assert fingerprint("_TRANSPORT", "No route to 10.0.0.7") == "8917730b1812"


@given(
    st.sampled_from(list(itertools.chain(*CORPUS.values()))),
    st.integers(0, 2**63),
    st.uuids(),
    st.ip_addresses(v=4),
    st.ip_addresses(v=6),
    st.integers(1, 65535),
)
def test_numbers_ids_and_addresses_do_not_change_the_fingerprint(text, number, identity, four, six, port):
    def example_text(number, identity, four, six, port):
        return f"{text}; {number} {identity}-{number} at {four}:{port}, then [{six}]:{port} and '{identity}'"

    assert fingerprint("X", example_text(number, identity, four, six, port)) == fingerprint(
        "X", example_text(1, UUID, "10.0.0.1", "::1", 9092)
    )


def test_a_very_long_error_text_is_read_only_at_its_beginning():

    text = "Expecting value: line 1 column 1"
    assert fingerprint("malformed", text + " " * 5000) == fingerprint("malformed", text)
    assert len(normalise("no " * 3_500_000)) < 5000
