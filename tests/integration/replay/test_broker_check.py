"""Test the broker check of a replay on a real Apache Kafka: sizes, deleted topics, and keys with a newer record."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from producer_core.brokers import kafka as real
from producer_core.brokers import secure
from producer_core.kafka.acls import Permission
from producer_core.messages import ID_HEADER, id_bytes, id_text
from producer_core.replay.broker_check import BrokerCheck, check
from producer_core.replay.open_records import ListedRecord
from tests.conftest import needs
from tests.support import eventually

pytestmark = pytest.mark.kafka

SESSION = uuid.UUID("01930000-0000-7000-8000-00000000000a")
OTHER = uuid.UUID("01930000-0000-7000-8000-00000000000b")
TIMEOUT = 60.0


def name_of(number: int, session: uuid.UUID = SESSION) -> str:
    return id_text(id_bytes(session, number))


def listed(
    number, topic, key=b"k", *, size=10, accepted_at=None, partition=None, session=SESSION
) -> ListedRecord:
    at = time.time() - 60 if accepted_at is None else accepted_at
    return ListedRecord(name_of(number, session), topic, partition, key, size, at, at + 1)


def write(kafka, topic, records) -> None:
    """Write records given as (key, value, sequence of SESSION or None)."""
    producer = Producer({"bootstrap.servers": kafka.direct_servers, "linger.ms": 5})
    for key, value, number in records:
        headers = None if number is None else [(ID_HEADER, id_bytes(SESSION, number))]
        producer.produce(topic, value, key=key, headers=headers)
    assert producer.flush(60) == 0


def look(kafka, dead_letters, **choices) -> tuple[BrokerCheck, dict]:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "acks": "all"}
    return check(settings, dead_letters, **{"timeout": TIMEOUT, **choices})


def the_only(found: BrokerCheck):
    (topic,) = found.topics
    return topic


@pytest.fixture
def topic(kafka):
    name = f"check-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


@pytest.fixture
def compacted(kafka):
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3, config={"cleanup.policy": "compact"})
    return name


def test_the_check_flags_records_whose_key_has_a_newer_record_on_a_compacted_topic(kafka, compacted):
    dead_letters = [listed(number, compacted, b"key-%d" % number) for number in range(20)]
    write(kafka, compacted, [(b"key-%d" % number, b"new", None) for number in range(5)])
    write(kafka, compacted, [(b"another", b"new", None)] * 50)

    found, flags = look(kafka, dead_letters)

    said = the_only(found)
    assert flags == {name_of(number): "newer_key" for number in range(5)}
    assert (said.newer_keys, said.records, said.compacted, said.complete) == (5, 20, True, True)
    assert (said.looked_at, said.partitions, said.max_message_bytes) == (55, 3, 1_048_588)
    assert "5 of 20 have a newer record with the same key." in said.text


def test_the_dead_letters_own_record_and_older_records_are_not_newer(kafka, compacted):
    write(kafka, compacted, [(b"k", b"old", None)])
    middle = time.time() + 1.0
    eventually(lambda: time.time() > middle)
    accepted = time.time()
    write(kafka, compacted, [(b"k", b"itself", 7), (b"k", b"an earlier one, late", 3)])

    _, flags = look(kafka, [listed(7, compacted, accepted_at=accepted)])

    assert flags == {}


def test_a_higher_sequence_of_the_same_session_is_newer_regardless_of_timestamps(kafka, topic):
    write(kafka, topic, [(b"k", b"later", 9)])

    _, flags = look(kafka, [listed(7, topic, accepted_at=time.time() + 5.0)])

    assert flags == {name_of(7): "newer_key"}


def test_a_replayed_record_is_compared_by_its_original_timestamp(kafka, topic):
    original = int((time.time() - 3600) * 1000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers = [(ID_HEADER, id_bytes(OTHER, 1)), ("pc-original-timestamp", b"%d" % original)]
    producer.produce(topic, b"an hour old", key=b"k", headers=headers)
    assert producer.flush(60) == 0

    found, flags = look(kafka, [listed(1, topic)])

    assert (the_only(found).looked_at, flags) == (1, {})


def test_a_tombstone_counts_as_newer_and_a_dead_lettered_tombstone_is_checked_by_key(kafka, compacted):
    write(kafka, compacted, [(b"deleted", None, None)])

    found, flags = look(
        kafka, [listed(1, compacted, b"deleted", size=None), listed(2, compacted, b"else", size=None)]
    )

    assert flags == {name_of(1): "newer_key"}
    assert the_only(found).bytes == len(b"deleted") + len(b"else")


def test_dead_letters_without_a_key_are_not_checked_for_newer_records(kafka, compacted, topic):
    write(kafka, topic, [(None, b"x", None)] * 20)

    found, flags = look(kafka, [listed(1, topic, None)])

    assert flags == {}
    assert (the_only(found).looked_at, the_only(found).complete) == (0, True)


def test_binary_keys_and_the_empty_key_are_checked(kafka, topic):
    strange = [b"\xff\xfe\x00", b"", b"\x80" * 3000]
    write(kafka, topic, [(key, b"new", None) for key in strange])

    _, flags = look(kafka, [listed(number, topic, key) for number, key in enumerate([*strange, b"\xff\xfe"])])

    assert set(flags) == {name_of(0), name_of(1), name_of(2)}


def test_a_lowered_max_message_bytes_flags_dead_letters_that_are_now_too_large(kafka, topic):
    dead_letters = [listed(number, topic, size=900 + number * 100) for number in range(4)]
    assert look(kafka, dead_letters)[1] == {}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", "1200", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    eventually(lambda: the_only(look(kafka, dead_letters)[0]).max_message_bytes == 1200)

    found, flags = look(kafka, dead_letters)

    assert flags == {name_of(2): "too_large", name_of(3): "too_large"}
    assert the_only(found).too_large == 2
    assert "2 of 4 are larger than the 1,200 bytes" in the_only(found).text


def test_the_broker_rejects_exactly_the_records_flagged_as_too_large(kafka):
    name = f"small-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=1, config={"max.message.bytes": "2000"})
    sizes = range(1_700, 2_100, 10)
    _, flags = look(kafka, [listed(size, name, size=size) for size in sizes])
    refused = set()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "batch.num.messages": 1}
    producer = Producer(settings)
    for size in sizes:
        headers = [(ID_HEADER, id_bytes(SESSION, size)), ("pc-original-timestamp", b"1795259340347")]
        producer.produce(
            name,
            b"x" * size,
            key=b"k",
            headers=headers,
            on_delivery=lambda error, _, size=size: error and refused.add(name_of(size)),
        )
        assert producer.flush(60) == 0

    assert refused <= set(flags)
    assert len(set(flags) - refused) <= 1  # the check overestimates by a few bytes at this size


def test_the_check_reports_a_deleted_topic_and_does_not_recreate_it(kafka, topic):
    kafka.delete_topic(topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)

    found, flags = look(kafka, [listed(1, topic), listed(2, topic)])

    assert flags == {name_of(1): "no_topic", name_of(2): "no_topic"}
    assert (the_only(found).partitions, the_only(found).text) == (None, f"The topic {topic} does not exist.")
    assert topic not in admin.list_topics(timeout=10).topics


def test_an_empty_topic_has_no_newer_records(kafka, topic):
    found, flags = look(kafka, [listed(1, topic)])

    assert flags == {}
    assert (the_only(found).looked_at, the_only(found).complete) == (0, True)


def test_the_check_reports_dead_letters_of_a_partition_that_no_longer_exists(kafka, topic):
    found, _ = look(kafka, [listed(1, topic, partition=7), listed(2, topic, partition=2)])

    assert the_only(found).lost_partitions == 1
    assert "1 requests a partition that the topic does not have (it has 3)." in the_only(found).text


def test_the_check_scans_a_thousand_partitions(kafka):
    wide = f"wide-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(wide, partitions=1_000)
    write(kafka, wide, [(b"%d" % number, b"new", None) for number in range(2_000)])

    found, flags = look(kafka, [listed(number, wide, b"%d" % number) for number in range(1_990, 2_010)])
    kafka.delete_topic(wide)  # other tests use this broker, which a thousand partitions slow down

    assert set(flags) == {name_of(number) for number in range(1_990, 2_000)}
    said = the_only(found)
    assert (said.partitions, said.looked_at, said.complete) == (1_000, 2_000, True), said.text


def test_the_check_stops_at_its_record_limit_and_reports_it(kafka, topic):
    write(kafka, topic, [(b"%d" % number, b"x", None) for number in range(3_000)])

    found, _ = look(kafka, [listed(1, topic)], max_records=100)

    said = the_only(found)
    assert not said.complete
    assert 100 <= said.looked_at < 3_000
    assert "records written since" in said.text
    assert "of about 3,000" in said.text
    assert "the limit of 100 records was reached" in said.text


def test_newer_compacted_checks_only_compacted_topics(kafka, topic, compacted):
    write(kafka, topic, [(b"k", b"new", None)])
    write(kafka, compacted, [(b"k", b"new", None)])

    _, flags = look(kafka, [listed(1, topic), listed(2, compacted)], newer="compacted")
    _, none = look(kafka, [listed(1, topic), listed(2, compacted)], newer="none")

    assert (flags, none) == ({name_of(2): "newer_key"}, {})


def test_an_aborted_transaction_has_no_newer_records(kafka, topic):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"t-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never", key=b"k")
    assert producer.flush(60) == 0
    producer.abort_transaction(60)

    found, flags = look(kafka, [listed(1, topic)])

    assert (the_only(found).looked_at, the_only(found).complete, flags) == (0, True, {})


def test_the_check_stops_at_an_open_transaction_and_reports_it(kafka, topic):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"o-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"not yet", key=b"k")
    assert producer.flush(60) == 0

    found, _ = look(kafka, [listed(1, topic)])
    producer.abort_transaction(60)

    assert not the_only(found).complete
    assert "an open transaction hides the remaining records" in the_only(found).text


def test_the_check_reports_records_removed_by_retention(kafka, topic):
    from confluent_kafka import TopicPartition

    write(kafka, topic, [(b"%d" % number, b"x", None) for number in range(300)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    asked = [TopicPartition(topic, number, 20) for number in range(3)]
    for future in admin.delete_records(asked).values():
        future.result(30)

    found, _ = look(kafka, [listed(1, topic)])

    assert the_only(found).complete
    assert "Retention removed records from that time" in the_only(found).text


@pytest.fixture(scope="module")
def secured():
    """One node whose clients need TLS, a password and a permission."""
    needs("openssl", "openssl")
    with real.start(secure=True, auto_create=False) as cluster:
        yield cluster


def test_without_read_permission_the_check_flags_nothing_and_names_the_missing_permission(secured):
    secured.create_topic("orders", partitions=2)
    secured.create_topic("elsewhere", partitions=1)
    granted = [Permission("topic", "elsewhere", "WRITE")]
    secure.grant(secured.direct_servers, "app2", granted)
    write(secured, "elsewhere", [(b"k", b"new", None)])
    dead_letters = [listed(1, "orders"), listed(2, "elsewhere", size=5_000_000)]
    settings = {"bootstrap.servers": secured.bootstrap_servers, **secured.security.settings("app2")}

    def answer():
        found, flags = check(settings, dead_letters, timeout=TIMEOUT)
        return (found, flags) if found.topics[1].partitions == 1 else None

    found, flags = eventually(answer)
    hidden, elsewhere = found.topics

    assert flags == {}
    assert (hidden.partitions, hidden.complete) == (0, False)
    assert (
        "The topic orders could not be checked: no permission to describe orders (grant DESCRIBE"
        in hidden.text
    )
    assert (elsewhere.max_message_bytes, elsewhere.complete) == (None, False)
    assert "grant DESCRIBE_CONFIGS on elsewhere" in elsewhere.text
    assert "no permission to describe elsewhere (grant DESCRIBE and READ" in elsewhere.text
