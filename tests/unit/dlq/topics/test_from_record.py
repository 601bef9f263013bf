"""Headers of dead-letter topics: reading and writing each dialect byte by byte."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.topics import DeadLetterRecord, SourceTopic, dead_letter_of, derived_id, read, write
from producer_core.events import Attempt
from producer_core.messages import id_bytes, id_text
from producer_core.store import Store
from tests.fixtures.replays import dead_letter

SOURCE_TOPIC = SourceTopic("cluster-1", "orders-dlt", "topic-id")

SPRING = (
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\x00\x00\x00\x02"),
    ("kafka_dlt-original-offset", b"\x00\x00\x00\x01\x00\x00\x00\x2a"),
    ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"Listener failed; no such customer"),
    ("kafka_dlt-exception-stacktrace", b"java.lang.IllegalStateException\n\tat com.example.Billing"),
)
RETRY_TOPICS = (
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", b"\x00\x00\x00\x01"),
    ("kafka_original-offset", b"\x00\x00\x00\x00\x00\x00\x00\x2a"),
    ("kafka_original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
    ("kafka_original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_exception-cause-fqcn", b"java.net.ConnectException"),
    ("kafka_exception-message", b"refused"),
    ("kafka_exception-stacktrace", b"java.net.ConnectException: refused"),
    ("retry_topic-attempts", b"\x00\x00\x00\x04"),
    ("retry_topic-original-timestamp", b"\x01\x8b\xcf\xe5\x68\x7b"),
    ("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5\x6c\x63"),
)
CLOUD_STREAM = (
    ("x-original-topic", b"orders"),
    ("x-original-partition", b"\x00\x00\x00\x02"),
    ("x-original-offset", b"\x00\x00\x00\x00\x00\x00\x00\x2a"),
    ("x-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
    ("x-original-timestamp-type", b"CreateTime"),
    ("x-exception-fqcn", b"java.lang.RuntimeException"),
    ("x-exception-message", b"boom"),
    ("x-exception-stacktrace", b"java.lang.RuntimeException: boom"),
)
CONNECT = (
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"42"),
    ("__connect.errors.connector.name", b"jdbc-sink"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"Converting byte[] to Kafka Connect data failed"),
    ("__connect.errors.exception.stacktrace", b"org.apache.kafka.connect.errors.DataException"),
)
STREAMS = (
    ("__streams.errors.exception", b"org.apache.kafka.common.errors.SerializationException"),
    ("__streams.errors.message", b"Size of data received is not 8"),
    ("__streams.errors.stacktrace", b"org.apache.kafka.common.errors.SerializationException"),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"2"),
    ("__streams.errors.offset", b"42"),
)
SHARE_GROUP = (
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"42"),
    ("__dlq.errors.group", b"billing"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
)
SMALLRYE = (
    ("dead-letter-reason", b"no such customer"),
    ("dead-letter-cause", b"row missing"),
    ("dead-letter-topic", b"orders"),
    ("dead-letter-partition", b"2"),
    ("dead-letter-offset", b"42"),
    ("dead-letter-exception-class-name", b"java.lang.IllegalStateException"),
    ("dead-letter-cause-class-name", b"java.util.NoSuchElementException"),
)
PRODUCER_CORE = (
    ("dlq.message.id", b"01930000-0000-7000-8000-000000000001-3"),
    ("dlq.original.topic", b"orders"),
    ("dlq.original.partition", b"2"),
    ("dlq.original.timestamp_ms", b"1700000000123"),
    ("dlq.original.cluster_id", b"cluster-1"),
    ("dlq.error.type", b"POLICY_VIOLATION"),
    ("dlq.error.code", b"44"),
    ("dlq.error.kind", b"permanent"),
    ("dlq.error.message", b"Broker: Policy violation"),
    ("dlq.error.fingerprint", b"abc"),
    ("dlq.attempts", b"1"),
    ("dlq.accepted_ms", b"1002000"),
    ("dlq.first_attempt_ms", b"1000000"),
    ("dlq.failed_ms", b"1003000"),
    ("dlq.delivery.verdict", b"rejected"),
    ("dlq.delivery.reason", b"The broker refused it."),
    ("dlq.client.id", b"01930000-0000-7000-8000-000000000001"),
    ("dlq.history", b'[[1000000,"POLICY_VIOLATION","Broker: Policy violation"]]'),
    ("dlq.replay.generation", b"0"),
)
FOREIGN = {
    "spring": SPRING,
    "spring_cloud_stream": CLOUD_STREAM,
    "connect": CONNECT,
    "streams": STREAMS,
    "share_group": SHARE_GROUP,
    "smallrye": SMALLRYE,
}
OWN = (("trace", b"\x00\x01"), ("trace", None), ("", b""), ("dlq.mine", b"\xff"), ("trace", b"\x00\x01"))


def record(headers, *, key=b"k", value=b"v", offset=17, timestamp_ms=1_700_000_009_000):
    return DeadLetterRecord(3, offset, key, value, tuple(headers), timestamp_ms)


def fetched(headers, **changes):
    options = {name: changes.pop(name) for name in ("original_topic",) if name in changes}
    return dead_letter_of(record(headers, **changes), SOURCE_TOPIC, now=1_700_000_010.0, **options)


# reading, dialect by dialect


def test_spring_headers_with_big_endian_numbers_are_read():
    origin = read(SPRING)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "spring",
        "orders",
        2,
        4_294_967_338,
    )
    assert (origin.timestamp_ms, origin.consumer) == (1_700_000_000_123, "billing")
    assert origin.cause == "java.lang.IllegalStateException"
    assert origin.message == "Listener failed; no such customer"
    assert (origin.headers, origin.notes) == ((), ())


def test_headers_of_spring_retry_topics_are_read():
    origin = read(RETRY_TOPICS)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == ("spring", "orders", 1, 42)
    assert (origin.attempts, origin.timestamp_ms, origin.cause) == (
        4,
        1_700_000_000_123,
        "java.net.ConnectException",
    )
    assert origin.notes == ()
    assert read((("retry_topic-attempts", b"\x03"),)).attempts == 3


def test_spring_cloud_stream_headers_are_read():
    origin = read(CLOUD_STREAM)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "spring_cloud_stream",
        "orders",
        2,
        42,
    )
    assert (origin.timestamp_ms, origin.exception, origin.message) == (
        1_700_000_000_123, "java.lang.RuntimeException", "boom",
    )  # fmt: skip


@pytest.mark.parametrize("dialect", ["connect", "streams", "share_group", "smallrye"])
def test_plain_text_dialects_are_read(dialect):
    origin = read(FOREIGN[dialect])
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (dialect, "orders", 2, 42)
    assert (origin.headers, origin.notes) == ((), ())
    assert origin.message


def test_connect_headers_contain_the_connector_and_the_stage():
    origin = read(CONNECT)
    assert (origin.consumer, origin.exception) == (
        "jdbc-sink",
        "org.apache.kafka.connect.errors.DataException",
    )
    assert ("__connect.errors.stage", "VALUE_CONVERTER") in origin.other_headers


def test_producer_core_headers_are_read():
    origin = read(PRODUCER_CORE)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "producer_core",
        "orders",
        2,
        None,
    )
    assert (origin.message_id, origin.verdict) == ("01930000-0000-7000-8000-000000000001-3", "rejected")
    assert origin.generation == 0


def test_a_replayed_record_is_not_a_dead_letter():
    origin = read((("dlq.replay.generation", b"2"), ("a", b"1")))
    assert (origin.dialect, origin.generation, origin.headers) == (None, 2, (("a", b"1"),))


@pytest.mark.parametrize("headers", [*FOREIGN.values(), RETRY_TOPICS, PRODUCER_CORE])
def test_unknown_headers_are_kept_unchanged_in_order_with_duplicates(headers):
    mixed = [one for pair in zip(OWN, headers, strict=False) for one in pair] + list(headers[len(OWN) :])
    assert read(mixed).headers == OWN


def test_the_first_position_and_the_last_exception_count():
    twice = (
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x01"),
        ("kafka_dlt-exception-message", b"first"),
        ("kafka_dlt-original-topic", b"orders-retry"),
        ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x09"),
        ("kafka_dlt-exception-message", b"last"),
    )
    origin = read(twice)
    assert (origin.topic, origin.offset, origin.message) == ("orders", 1, "last")
    assert origin.notes == ("passed through orders-retry",)


# invalid headers


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


def test_a_decimal_text_instead_of_a_binary_number_is_read_and_noted():
    origin = read((("kafka_dlt-original-offset", b"4711"), ("kafka_dlt-original-partition", b"12345")))
    assert (origin.offset, origin.partition) == (4711, 12345)
    assert all("is decimal text instead of a binary number" in note for note in origin.notes)


@given(st.lists(st.tuples(st.sampled_from(sorted({name for name, _ in SPRING + RETRY_TOPICS + CONNECT + PRODUCER_CORE + SHARE_GROUP})), st.none() | st.binary(max_size=24))))  # fmt: skip
def test_no_bytes_in_known_headers_raise(headers):
    found = fetched(headers)
    assert (found.key, found.value) == (b"k", b"v")
    struct.pack(">iqq", found.partition or 0, found.timestamp_ms or 0, found.replay_count)


# dead letters


def test_a_dead_letter_of_a_consumer_has_the_verdict_found():
    found = fetched(SPRING)
    assert found.verdict == "found"
    assert (
        "billing (Spring Kafka) read it at orders[2]@4294967338 and could not process it"
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


def test_the_message_id_of_a_foreign_record_is_noted_and_not_used():
    message_id = id_bytes(uuid.UUID(int=7), 9)
    found = fetched((("pc-id", message_id), *SPRING))
    assert found.message_id == derived_id(SOURCE_TOPIC, 3, 17)
    assert f"the record has the message id {id_text(message_id)}" in found.source
    assert "pc-id" not in dict(found.headers)


# writing


def one(**changes):
    return dead_letter(3, **{"headers": OWN, "partition": 2, "timestamp_ms": 1_700_000_000_123, **changes})


def test_producer_core_headers_are_plain_text_after_the_messages_own():
    assert write(one()) == (*OWN, *PRODUCER_CORE)


def test_unknown_values_are_not_written():
    written = dict(write(one(partition=None, timestamp_ms=None, code="NoSuchCode")))
    absent = {"dlq.original.partition", "dlq.original.timestamp_ms", "dlq.original.offset", "dlq.error.code"}
    assert not absent & written.keys()


def test_spring_headers_are_written_in_big_endian_after_producer_core_headers():
    assert write(one(), "spring") == (
        *OWN,
        *PRODUCER_CORE,
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x02"),
        ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-exception-fqcn", b"POLICY_VIOLATION"),
        ("kafka_dlt-exception-message", b"Broker: Policy violation"),
    )


def test_connect_headers_are_written_as_text_after_producer_core_headers():
    assert write(one(), "connect")[len(OWN) + len(PRODUCER_CORE) :] == (
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.connector.name", b"01930000-0000-7000-8000-000000000001"),
        ("__connect.errors.stage", b"KAFKA_PRODUCE"),
        ("__connect.errors.exception.class.name", b"POLICY_VIOLATION"),
        ("__connect.errors.exception.message", b"Broker: Policy violation"),
    )


def test_long_texts_are_truncated_between_characters():
    written = dict(write(one(error_text="€" * 2000)))["dlq.error.message"]
    assert len(written) <= 1024
    assert written.decode().endswith("€…")


# repeated publication


@pytest.mark.parametrize("dialect", ["producer_core", "spring", "connect"])
def test_a_published_and_fetched_dead_letter_is_the_same(dialect):
    before = one(attempts=(Attempt(1000.0, "_MSG_TIMED_OUT", "slow"), Attempt(1003.0, "POLICY_VIOLATION", "Broker: Policy violation")))  # fmt: skip
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


def test_the_history_has_limited_length():
    many = tuple(Attempt(float(number), "X", "y" * 1000) for number in range(50))
    written = dict(write(one(attempts=many)))
    assert len(written["dlq.history"]) < 1500
    assert written["dlq.attempts"] == b"50"


def test_a_dead_letter_published_as_not_replayable_is_not_replayable():
    found = fetched(write(one(replayable=False, verdict="not_sent", source="line 17 of flights.csv")))
    assert (found.replayable, found.verdict) == (False, "not_sent")
    assert "before: line 17 of flights.csv" in found.source


# the command


def test_publish_asks_for_confirmation_with_the_count(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([one()])
    options = ["--store", str(store.path), "-b", "localhost:1"]

    result = CliRunner().invoke(main, ["dlq", "publish", "--topic", "orders", *options])

    assert result.exit_code == 2
    assert "Publish 1 dead letter of orders to {topic}-dlt?" in result.output
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
