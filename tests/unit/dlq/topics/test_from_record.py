"""A record of a dead-letter topic becomes a dead letter, even with invalid headers."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core._internal.id_header import text_header
from producer_core.dlq.topics import DeadLetterRecord, SourceTopic, dead_letter_of, derived_id, write
from producer_core.events import Attempt
from producer_core.messages import id_bytes, id_text
from tests.fixtures.dead_letter_headers import (
    CONNECT,
    FOREIGN,
    OWN,
    PRODUCER_CORE,
    RETRY_TOPICS,
    SHARE_GROUP,
    SPRING,
    one,
)

SOURCE_TOPIC = SourceTopic("cluster-1", "orders-dlt", "topic-id")


def record(headers, *, key=b"k", value=b"v", offset=17, timestamp_ms=1_700_000_009_000):
    return DeadLetterRecord(3, offset, key, value, tuple(headers), timestamp_ms)


def fetched(headers, **changes):
    options = {name: changes.pop(name) for name in ("original_topic",) if name in changes}
    return dead_letter_of(record(headers, **changes), SOURCE_TOPIC, now=1_700_000_010.0, **options)


@pytest.mark.parametrize(
    ("name", "value", "note"),
    [
        ("kafka_dlt-original-offset", b"\x01\x02\x03", "has 3 bytes instead of 8 (0x010203)"),
        ("kafka_dlt-original-offset", b"", "has 0 bytes instead of 8 (0x)"),
        ("kafka_dlt-original-offset", None, "is null"),
        ("kafka_dlt-original-partition", b"\xff\xff\xff\xff", "is -1"),
        ("kafka_dlt-original-topic", b"\xff\xfe", "is not UTF-8 (0xfffe)"),
        ("kafka_dlt-original-topic", b"a/b", "is not a valid topic name (0x612f62)"),
        ("retry_topic-original-timestamp", b"\x01" * 9, "has 9 bytes instead of 1 to 8"),
        ("kafka_dlt-original-timestamp", b"\x7f" + b"\xff" * 7, "is too large (9223372036854775807)"),
        ("__connect.errors.offset", b"12x", "is not a number (0x313278)"),
        ("__connect.errors.partition", b"4294967296", "is too large (4294967296)"),
        ("__dlq.errors.delivery.count", b"\xd9\xa3", "is not a number (0xd9a3)"),
    ],
)
def test_an_invalid_header_is_noted_in_the_source_and_never_raises(name, value, note):
    dead_letter = fetched(
        [("kafka_dlt-exception-message", b"m")] * name.startswith(("kafka", "retry")) + [(name, value)]
    )
    assert f"{name} {note}" in dead_letter.source


@given(st.lists(st.tuples(st.sampled_from(sorted({name for name, _ in SPRING + RETRY_TOPICS + CONNECT + PRODUCER_CORE + SHARE_GROUP})), st.none() | st.binary(max_size=24))))  # fmt: skip
def test_arbitrary_bytes_in_known_headers_never_raise(headers):
    found = fetched(headers)
    assert (found.key, found.value) == (b"k", b"v")
    struct.pack(">iqq", found.partition or 0, found.timestamp_ms or 0, found.replay_count)


def test_a_dead_letter_of_a_consumer_has_the_verdict_found():
    found = fetched(SPRING)
    assert found.verdict == "found"
    assert (
        "billing (Spring Kafka) read the message at orders[2]@4294967338 and could not process it"
        in found.verdict_reason
    )
    assert "second copy" in found.verdict_reason
    assert (found.topic, found.partition, found.timestamp_ms) == ("orders", 2, 1_700_000_000_123)
    assert (found.code, found.error_text) == (
        "java.lang.IllegalStateException",
        "Listener failed; no such customer",
    )
    assert found.attempts[-1].text.endswith("\tat com.example.Billing")
    assert (found.accepted_at, found.failed_at) == (1_700_000_000.123, 1_700_000_009.0)
    assert found.source.startswith(
        "orders-dlt[3]@17 (Spring Kafka); read by billing from orders[2]@4294967338"
    )


@pytest.mark.parametrize("dialect", FOREIGN)
def test_dead_letters_of_each_foreign_dialect_are_replayable(dialect):
    found = fetched(FOREIGN[dialect])
    assert (found.topic, found.partition, found.verdict, found.replayable) == ("orders", 2, "found", True)
    assert (found.key, found.value) == (b"k", b"v")


def test_a_record_without_headers_is_replayable_only_with_an_original_topic():
    found = fetched(())
    assert (found.topic, found.replayable, found.verdict) == ("orders-dlt", False, "possibly_persisted")
    assert "no header contains the original topic" in found.source
    with_topic = fetched((), original_topic="orders")
    assert (with_topic.topic, with_topic.replayable, with_topic.message_id) == (
        "orders",
        True,
        found.message_id,
    )


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"v"), (b"k", None), (b"", b""), (b"\xff\x00", b"\xfe" * 9)]
)
def test_keys_and_values_are_unchanged(key, value):
    found = fetched(CONNECT, key=key, value=value)
    assert (found.key, found.value) == (key, value)


def test_a_dead_letter_of_a_share_group_without_the_record_is_not_replayable():
    empty = fetched(SHARE_GROUP, key=None, value=None)
    assert not empty.replayable
    assert "does not copy records" in empty.source
    assert fetched(SHARE_GROUP, value=None).replayable, "a tombstone with its key"


def test_the_source_states_how_often_the_record_was_delivered():
    others = tuple(header for header in SHARE_GROUP if header[0] != "__dlq.errors.delivery.count")
    once = fetched((*others, ("__dlq.errors.delivery.count", b"1")))

    assert "read by billing from orders[2]@42, delivered once" in once.source
    assert "read by billing from orders[2]@42, delivered 5 times" in fetched(SHARE_GROUP).source


def test_the_id_of_a_foreign_record_is_derived_from_its_offset():
    ids = {
        fetched(SPRING).message_id,
        fetched(SPRING, offset=18).message_id,
        derived_id(SOURCE_TOPIC, 4, 17),
        derived_id(replace(SOURCE_TOPIC, topic_id="another"), 3, 17),
        derived_id(replace(SOURCE_TOPIC, cluster_id="another"), 3, 17),
    }
    assert len(ids) == 5
    assert fetched(SPRING, value=b"other").message_id == fetched(SPRING).message_id


@pytest.mark.parametrize("form", [bytes, text_header])
def test_the_message_id_of_a_foreign_record_is_noted_and_not_used(form):
    message_id = id_bytes(uuid.UUID(int=7), 9)
    found = fetched((("pc-id", form(message_id)), *SPRING))
    assert found.message_id == derived_id(SOURCE_TOPIC, 3, 17)
    assert f"the record has the message id {id_text(message_id)}" in found.source
    assert "pc-id" not in dict(found.headers)


@pytest.mark.parametrize("dialect", ["producer_core", "spring", "connect"])
def test_a_published_and_fetched_dead_letter_is_the_same(dialect):
    before = one(application="checkout", attempts=(Attempt(1000.0, "_MSG_TIMED_OUT", "slow"), Attempt(1003.0, "POLICY_VIOLATION", "Broker: Policy violation")))  # fmt: skip
    sent = (("pc-id", b"\x01" * 24), *write(before, dialect), ("pc-original-timestamp", b"1700000000123"))
    after = dead_letter_of(record(sent), SOURCE_TOPIC, now=1.0)
    expected = replace(
        before,
        key=b"k",
        value=b"v",
        headers=(*OWN, ("dlq.replay.generation", b"1")),
        verdict="possibly_persisted",
        verdict_reason=after.verdict_reason,
        source=after.source,
    )
    assert after == expected
    assert "rejected" in after.verdict_reason


def test_a_doubtful_verdict_is_kept_and_its_reason_does_not_grow():
    doubtful = one(verdict="possibly_persisted", verdict_reason="It timed out.")
    for _ in range(3):
        doubtful = fetched(write(doubtful))
    assert (doubtful.verdict, doubtful.verdict_reason) == ("possibly_persisted", "It timed out.")


@pytest.mark.parametrize("dialect", ["producer_core", "spring", "connect"])
def test_headers_and_source_do_not_grow_with_repeated_publication(dialect):
    sizes, current = [], one()
    for _ in range(6):
        headers = write(current, dialect)
        sizes.append((len(headers), sum(len(name) + len(value or b"") for name, value in headers)))
        current = fetched(headers)
    assert len(set(sizes[2:])) == 1, "the first publications add the source and its origin"


def test_a_dead_letter_that_returns_from_several_replays_is_quarantined():
    """Each replay fails in the consumer again; the header counts the replays."""
    current = fetched(SPRING)
    states = []
    for _ in range(4):
        states.append((current.replay_count, current.quarantined))
        current = fetched((*current.headers, *SPRING))
    assert states == [(0, False), (1, False), (2, False), (3, True)]


def test_a_dead_letter_published_as_not_replayable_is_not_replayable():
    found = fetched(write(one(replayable=False, verdict="not_sent", source="line 17 of flights.csv")))
    assert (found.replayable, found.verdict) == (False, "not_sent")
    assert "before: line 17 of flights.csv" in found.source
