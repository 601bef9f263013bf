"""A record of a dead-letter topic becomes a dead letter, also with wrong headers."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.dlq.topics import DeadLetterRecord, RecordPlace, dead_letter_of, derived_id, write
from producer_core.events import Attempt
from producer_core.messages import id_bytes, id_text
from tests.fixtures.dead_letter_headers import (
    CONNECT,
    FOREIGN,
    OURS,
    OWN,
    RETRY_TOPICS,
    SHARE_GROUP,
    SPRING,
    one,
)

PLACE = RecordPlace("cluster-1", "orders-dlt", "topic-id")


def record(headers, *, key=b"k", value=b"v", offset=17, timestamp_ms=1_700_000_009_000):
    return DeadLetterRecord(3, offset, key, value, tuple(headers), timestamp_ms)


def made(headers, **changes):
    options = {name: changes.pop(name) for name in ("original_topic",) if name in changes}
    return dead_letter_of(record(headers, **changes), PLACE, now=1_700_000_010.0, **options)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka_dlt-original-offset", b"\x01\x02\x03", "has 3 bytes instead of 8 (0x010203)"),
        ("kafka_dlt-original-offset", b"", "has 0 bytes instead of 8 (0x)"),
        ("kafka_dlt-original-offset", None, "is null"),
        ("kafka_dlt-original-partition", b"\xff\xff\xff\xff", "is -1"),
        ("kafka_dlt-original-topic", b"\xff\xfe", "is not UTF-8 (0xfffe)"),
        ("kafka_dlt-original-topic", b"a/b", "is no name of a topic (0x612f62)"),
        ("retry_topic-original-timestamp", b"\x01" * 9, "has 9 bytes instead of 1 to 8"),
        ("kafka_dlt-original-timestamp", b"\x7f" + b"\xff" * 7, "is too large (9223372036854775807)"),
        ("__connect.errors.offset", b"12x", "is not a number (0x313278)"),
        ("__connect.errors.partition", b"4294967296", "is too large (4294967296)"),
        ("__dlq.errors.delivery.count", b"\xd9\xa3", "is not a number (0xd9a3)"),
    ],
)
def test_a_wrong_header_never_raises_and_is_said_in_the_source(name, value, said):
    dead_letter = made(
        [("kafka_dlt-exception-message", b"m")] * name.startswith(("kafka", "retry")) + [(name, value)]
    )
    assert f"{name} {said}" in dead_letter.source


@given(st.lists(st.tuples(st.sampled_from(sorted({name for name, _ in SPRING + RETRY_TOPICS + CONNECT + OURS + SHARE_GROUP})), st.none() | st.binary(max_size=24))))  # fmt: skip
def test_no_bytes_under_known_names_raise(headers):
    found = made(headers)
    assert (found.key, found.value) == (b"k", b"v")
    struct.pack(">iqq", found.partition or 0, found.timestamp_ms or 0, found.replay_count)


def test_what_a_consumer_gave_up_is_on_its_topic_and_not_called_safe():
    found = made(SPRING)
    assert found.verdict == "found"
    assert (
        "billing (Spring Kafka) gave it up after it read it at orders[2]@4294967338" in found.verdict_reason
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
def test_each_foreign_dialect_makes_a_letter_that_can_be_replayed(dialect):
    found = made(FOREIGN[dialect])
    assert (found.topic, found.partition, found.verdict, found.replayable) == ("orders", 2, "found", True)
    assert (found.key, found.value) == (b"k", b"v")


def test_a_record_without_headers_waits_for_somebody_to_say_its_topic():
    found = made(())
    assert (found.topic, found.replayable, found.verdict) == ("orders-dlt", False, "possibly_persisted")
    assert "no header says which topic" in found.source
    told = made((), original_topic="orders")
    assert (told.topic, told.replayable, told.message_id) == ("orders", True, found.message_id)


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"v"), (b"k", None), (b"", b""), (b"\xff\x00", b"\xfe" * 9)]
)
def test_keys_and_values_are_what_they_are(key, value):
    found = made(CONNECT, key=key, value=value)
    assert (found.key, found.value) == (key, value)


def test_a_share_group_that_copies_no_records_leaves_nothing_to_replay():
    empty = made(SHARE_GROUP, key=None, value=None)
    assert not empty.replayable
    assert "copies no records" in empty.source
    assert made(SHARE_GROUP, value=None).replayable, "a tombstone with its key"


def test_the_id_of_a_foreign_record_is_made_of_its_place():
    ids = {
        made(SPRING).message_id,
        made(SPRING, offset=18).message_id,
        derived_id(PLACE, 4, 17),
        derived_id(replace(PLACE, topic_id="another"), 3, 17),
        derived_id(replace(PLACE, cluster_id="another"), 3, 17),
    }
    assert len(ids) == 5
    assert made(SPRING, value=b"other").message_id == made(SPRING).message_id


def test_the_id_that_a_foreign_record_carried_is_said_and_not_used():
    carried = id_bytes(uuid.UUID(int=7), 9)
    found = made((("pc-id", carried), *SPRING))
    assert found.message_id == derived_id(PLACE, 3, 17)
    assert f"carried the message id {id_text(carried)}" in found.source
    assert "pc-id" not in dict(found.headers)


@pytest.mark.parametrize("dialect", ["producer_core", "spring", "connect"])
def test_what_is_published_and_fetched_is_the_same_letter(dialect):
    before = one(attempts=(Attempt(1000.0, "_MSG_TIMED_OUT", "slow"), Attempt(1003.0, "POLICY_VIOLATION", "Broker: Policy violation")))  # fmt: skip
    sent = (("pc-id", b"\x01" * 24), *write(before, dialect), ("pc-original-timestamp", b"1700000000123"))
    after = dead_letter_of(record(sent), PLACE, now=1.0)
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


def test_a_doubt_stays_and_its_reason_does_not_grow():
    doubtful = one(verdict="possibly_persisted", verdict_reason="It timed out.")
    for _ in range(3):
        doubtful = made(write(doubtful))
    assert (doubtful.verdict, doubtful.verdict_reason) == ("possibly_persisted", "It timed out.")


@pytest.mark.parametrize("dialect", ["producer_core", "spring", "connect"])
def test_headers_and_source_do_not_grow_from_round_to_round(dialect):
    sizes, current = [], one()
    for _ in range(6):
        headers = write(current, dialect)
        sizes.append((len(headers), sum(len(name) + len(value or b"") for name, value in headers)))
        current = made(headers)
    assert len(set(sizes[2:])) == 1, "the first rounds add the source, and where that was from"


def test_a_letter_that_comes_back_from_replays_again_and_again_is_quarantined():
    """Replayed, given up by its consumer, fetched: the record carries how often."""
    current = made(SPRING)
    seen = []
    for _ in range(4):
        seen.append((current.replay_count, current.quarantined))
        current = made((*current.headers, *SPRING))
    assert seen == [(0, False), (1, False), (2, False), (3, True)]


def test_what_could_not_be_replayed_there_cannot_be_replayed_here():
    found = made(write(one(replayable=False, verdict="not_sent", source="line 17 of flights.csv")))
    assert (found.replayable, found.verdict) == (False, "not_sent")
    assert "before: line 17 of flights.csv" in found.source
