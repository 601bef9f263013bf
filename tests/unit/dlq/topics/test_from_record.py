"""Headers of dead-letter topics: what each dialect writes, byte by byte, and what we make of it."""

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
from producer_core.dlq.topics import DeadLetterRecord, RecordPlace, dead_letter_of, derived_id, read, write
from producer_core.events import Attempt
from producer_core.messages import id_bytes, id_text
from producer_core.store import Store
from tests.fixtures.replays import dead_letter

PLACE = RecordPlace("cluster-1", "orders-dlt", "topic-id")

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
OURS = (
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


def made(headers, **changes):
    options = {name: changes.pop(name) for name in ("original_topic",) if name in changes}
    return dead_letter_of(record(headers, **changes), PLACE, now=1_700_000_010.0, **options)


# reading, dialect by dialect


def test_spring_says_the_place_in_big_endian_numbers():
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


def test_spring_retry_topics_leave_dlt_out_and_write_times_as_short_as_they_are():
    origin = read(RETRY_TOPICS)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == ("spring", "orders", 1, 42)
    assert (origin.attempts, origin.timestamp_ms, origin.cause) == (
        4,
        1_700_000_000_123,
        "java.net.ConnectException",
    )
    assert origin.notes == ()
    assert read((("retry_topic-attempts", b"\x03"),)).attempts == 3


def test_spring_cloud_stream_is_read():
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
def test_dialects_in_plain_text_are_read(dialect):
    origin = read(FOREIGN[dialect])
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (dialect, "orders", 2, 42)
    assert (origin.headers, origin.notes) == ((), ())
    assert origin.message


def test_connect_names_its_connector_and_what_it_did():
    origin = read(CONNECT)
    assert (origin.consumer, origin.exception) == (
        "jdbc-sink",
        "org.apache.kafka.connect.errors.DataException",
    )
    assert ("__connect.errors.stage", "VALUE_CONVERTER") in origin.also


def test_ours_is_read():
    origin = read(OURS)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "producer_core",
        "orders",
        2,
        None,
    )
    assert (origin.message_id, origin.verdict) == ("01930000-0000-7000-8000-000000000001-3", "rejected")
    assert origin.generation == 0


def test_a_record_that_we_sent_again_is_no_dead_letter_for_that():
    origin = read((("dlq.replay.generation", b"2"), ("a", b"1")))
    assert (origin.dialect, origin.generation, origin.headers) == (None, 2, (("a", b"1"),))


@pytest.mark.parametrize("headers", [*FOREIGN.values(), RETRY_TOPICS, OURS])
def test_headers_that_we_do_not_know_stay_byte_for_byte_in_order_with_duplicates(headers):
    mixed = [one for pair in zip(OWN, headers, strict=False) for one in pair] + list(headers[len(OWN) :])
    assert read(mixed).headers == OWN


def test_of_a_place_named_twice_the_first_counts_and_of_an_exception_the_last():
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
    assert origin.notes == ("it passed through orders-retry",)


# headers that are wrong


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


def test_a_number_as_text_where_binary_belongs_is_read_and_said():
    origin = read((("kafka_dlt-original-offset", b"4711"), ("kafka_dlt-original-partition", b"12345")))
    assert (origin.offset, origin.partition) == (4711, 12345)
    assert all("is text where a binary number belongs" in note for note in origin.notes)


@given(st.lists(st.tuples(st.sampled_from(sorted({name for name, _ in SPRING + RETRY_TOPICS + CONNECT + OURS + SHARE_GROUP})), st.none() | st.binary(max_size=24))))  # fmt: skip
def test_no_bytes_under_known_names_raise(headers):
    found = made(headers)
    assert (found.key, found.value) == (b"k", b"v")
    struct.pack(">iqq", found.partition or 0, found.timestamp_ms or 0, found.replay_count)


# dead letters


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


# writing


def one(**changes):
    return dead_letter(3, **{"headers": OWN, "partition": 2, "timestamp_ms": 1_700_000_000_123, **changes})


def test_canonical_headers_are_plain_text_after_the_messages_own():
    assert write(one()) == (*OWN, *OURS)


def test_what_nobody_knows_is_not_written():
    written = dict(write(one(partition=None, timestamp_ms=None, code="NoSuchCode")))
    absent = {"dlq.original.partition", "dlq.original.timestamp_ms", "dlq.original.offset", "dlq.error.code"}
    assert not absent & written.keys()


def test_spring_is_written_in_big_endian_beside_ours():
    assert write(one(), "spring") == (
        *OWN,
        *OURS,
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x02"),
        ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-exception-fqcn", b"POLICY_VIOLATION"),
        ("kafka_dlt-exception-message", b"Broker: Policy violation"),
    )


def test_connect_is_written_in_text_beside_ours():
    assert write(one(), "connect")[len(OWN) + len(OURS) :] == (
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.connector.name", b"01930000-0000-7000-8000-000000000001"),
        ("__connect.errors.stage", b"KAFKA_PRODUCE"),
        ("__connect.errors.exception.class.name", b"POLICY_VIOLATION"),
        ("__connect.errors.exception.message", b"Broker: Policy violation"),
    )


def test_long_texts_are_cut_between_two_characters():
    written = dict(write(one(error_text="€" * 2000)))["dlq.error.message"]
    assert len(written) <= 1024
    assert written.decode().endswith("€…")


# rounds


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


def test_the_history_stays_short():
    many = tuple(Attempt(float(number), "X", "y" * 1000) for number in range(50))
    written = dict(write(one(attempts=many)))
    assert len(written["dlq.history"]) < 1500
    assert written["dlq.attempts"] == b"50"


def test_what_could_not_be_replayed_there_cannot_be_replayed_here():
    found = made(write(one(replayable=False, verdict="not_sent", source="line 17 of flights.csv")))
    assert (found.replayable, found.verdict) == (False, "not_sent")
    assert "before: line 17 of flights.csv" in found.source


# the command


def test_publishing_says_the_number_and_asks_first(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([one()])
    given = ["--store", str(store.path), "-b", "localhost:1"]

    asked = CliRunner().invoke(main, ["dlq", "publish", "--topic", "orders", *given])

    assert asked.exit_code == 2
    assert "Publish 1 dead letter of orders to {topic}-dlt?" in asked.output
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
