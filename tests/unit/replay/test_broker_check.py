"""The findings of a preflight check on librdkafka's mock brokers, and the comparison of dead-letter keys."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from producer_core import replay
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter
from producer_core.kafka import newer_keys
from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import KeyIndex
from producer_core.kafka.topic_config import TimeLimit
from producer_core.messages import ID_HEADER, id_bytes, id_text
from producer_core.replay.broker_check import check
from producer_core.replay.open_records import ListedRecord
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import ScriptedSender, add_dead_letters, write_heartbeat

SESSION = uuid.UUID("01930000-0000-7000-8000-00000000000a")
OTHER = uuid.UUID("01930000-0000-7000-8000-00000000000b")


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 4, "empty": 2, "wide": 1000}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "linger.ms": 1})
        for number in range(100):
            producer.produce("orders", b"x", key=b"key-%d" % number)
        assert producer.flush(20) == 0
        yield running


def name_of(number: int, session: uuid.UUID = SESSION) -> str:
    return id_text(id_bytes(session, number))


def listed(number, topic="orders", key=b"k", *, size=10, ago=60.0, partition=None) -> ListedRecord:
    at = time.time() - ago
    return ListedRecord(name_of(number), topic, partition, key, size, at, at + 1)


def look(broker, dead_letters, **choices):
    return check({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"}, dead_letters, **choices)


@pytest.mark.slow
def test_newer_keys_are_found_without_a_time_index_by_scanning_the_whole_topic(broker):
    found, flags = look(broker, [listed(1, key=b"key-7"), listed(2, key=b"nobody's")])

    assert flags == {name_of(1): "newer_key"}
    assert found.topics[0].looked_at == 100
    assert found.topics[0].complete


@pytest.mark.slow
def test_newer_keys_are_checked_on_topics_with_an_unknown_cleanup_policy(broker):
    """`--newer auto` sent the old values, and on a compacted topic they replaced the newer ones permanently."""
    found, flags = look(broker, [listed(1, key=b"key-7")], newer="compacted")

    assert flags == {name_of(1): "newer_key"}
    assert (found.topics[0].compacted, found.topics[0].may_be_compacted) == (False, True)


@pytest.mark.slow
def test_the_check_reports_that_the_broker_does_not_expose_its_settings(broker):
    found, flags = look(broker, [listed(1, size=5_000_000)])

    assert flags == {}
    assert found.topics[0].max_message_bytes is None
    assert "this broker does not report its settings" in found.topics[0].text


@pytest.mark.slow
def test_records_above_the_size_limit_of_the_sending_client_are_too_large(broker):
    found, flags = look(broker, [listed(1, size=2_000), listed(2, size=100)], sends_at_most=1_000)

    assert flags == {name_of(1): "too_large"}
    assert "1 of 2 is larger than the 1,000 bytes that the sending client allows" in found.topics[0].text


def test_each_dead_letter_of_a_missing_topic_is_flagged(broker):
    found, flags = look(broker, [listed(1, "gone"), listed(2, "gone", None)])

    assert set(flags.values()) == {"no_topic"}
    assert (found.topics[0].records, found.topics[0].partitions) == (2, None)


def test_empty_topics_and_topics_with_many_partitions_are_checked_completely(broker):
    found, flags = look(broker, [listed(1, "empty"), listed(2, "wide")])

    assert flags == {}
    assert [(topic.partitions, topic.complete) for topic in found.topics] == [(2, True), (1000, True)]


class OnceUnknown:
    """A client that knows the partitions only from its second query on."""

    def __init__(self, handle):
        self.handle, self.refused = handle, 0

    def list_topics(self, *asked, **more):
        return self.handle.list_topics(*asked, **more)

    def offsets_for_times(self, asked, timeout):
        self.refused += 1
        if self.refused == 1:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, "Failed to get offsets"))
        return self.handle.offsets_for_times(asked, timeout=timeout)


def keys_of(key):
    keys = KeyIndex()
    keys.add(name_of(1), key, time.time() - 60)
    return keys


@pytest.mark.slow
def test_the_scan_retries_a_partition_that_the_client_does_not_know_yet(broker):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    with reader(settings, {"isolation.level": "read_uncommitted"}) as handle:
        unknown, keys = OnceUnknown(handle), keys_of(b"key-7")
        found = newer_keys.scan_topic(
            settings, unknown, "orders", 4, keys, limit=TimeLimit(120), max_records=1_000
        )

    assert unknown.refused > 1
    assert (found.trouble, found.complete, [*keys.newer()]) == ("", True, [name_of(1)])


def test_the_check_explains_a_partition_that_stays_unknown_in_plain_language(broker):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    with reader(settings, {"isolation.level": "read_uncommitted"}) as handle:
        handle.list_topics("orders", timeout=60)
        found = newer_keys.scan_topic(
            settings, handle, "orders", 5, keys_of(b"k"), limit=TimeLimit(2), max_records=1_000
        )

    assert not found.complete
    assert "UNKNOWN_PARTITION" not in found.trouble
    assert "try again in a few seconds" in found.trouble


@pytest.mark.slow
@pytest.mark.parametrize(("newer", "flagged"), [(None, 0), ("skip", 1)])
def test_newer_keys_on_the_embedded_broker_need_no_decision(tmp_path, broker, newer, flagged):
    store = Store.open(tmp_path / "store.duckdb")
    write_heartbeat(store, time.time(), cluster=broker.cluster_id)
    add_dead_letters(store, 1, cluster_id=broker.cluster_id, key=b"key-7")
    operation = replay.plan(
        store,
        DeadLetterFilter(),
        who="ann",
        origin="python",
        check_first=True,
        go_by_itself=True,
        newer=newer,
    )
    sender = ScriptedSender()
    sender.cluster_id = broker.cluster_id
    client = {"bootstrap.servers": broker.bootstrap_servers}

    replay_runner(store, sender, client=client).poll(preflight=True)

    operation = replay.get(store, operation.operation_id)
    assert operation.state == ("ready" if flagged else "planned")


@pytest.mark.slow
def test_the_check_of_an_unreachable_broker_ends_within_its_timeout():
    dead_letters = [listed(number, f"topic-{number}") for number in range(500)]

    found, flags = check({"bootstrap.servers": "127.0.0.1:1"}, dead_letters, timeout=0.5)

    assert flags == {}
    assert {topic.partitions for topic in found.topics} == {0}
    assert "The topic topic-0 could not be checked: no broker responded" in found.topics[0].text
    assert "127.0.0.1" not in found.topics[0].text, "the text of the client library is not shown"
    assert not found.complete


def test_a_stopped_check_reports_that_it_is_incomplete(broker):
    found, flags = look(broker, [listed(1, key=b"key-7")], stopping=lambda: True)

    assert flags == {}
    assert not found.complete


def test_a_check_of_no_dead_letters_needs_no_broker():
    found, flags = check({"bootstrap.servers": "127.0.0.1:1"}, [])

    assert (found.topics, flags) == ((), {})


@pytest.mark.slow
def test_the_check_counts_and_reports_keys_above_its_memory_limit(broker, monkeypatch):
    monkeypatch.setattr(newer_keys, "MOST_KEYS", 3)

    found, _ = look(broker, [listed(number) for number in range(5)])

    assert not found.complete
    assert "2 more keys were not looked up: the limit is 3 keys." in found.topics[0].text


class Record:
    """A record as a reader sees it."""

    def __init__(self, key, *, at, session=None, number=0, original=None):
        self._key, self._at = key, at
        self._headers = None if session is None else [(ID_HEADER, id_bytes(session, number))]
        if original is not None:
            self._headers = [*(self._headers or ()), ("pc-original-timestamp", original)]

    def key(self):
        return self._key

    def headers(self):
        return self._headers

    def timestamp(self):
        return 1, int(self._at * 1000)


@pytest.mark.parametrize(
    ("record", "newer"),
    [
        (Record(b"k", at=101.0), True),
        (Record(b"k", at=99.0), False),
        (Record(b"k", at=100.0), False),
        (Record(b"other", at=101.0), False),
        (Record(None, at=101.0), False),
        (Record(b"k", at=101.0, session=SESSION, number=5), False),  # itself
        (Record(b"k", at=101.0, session=SESSION, number=4), False),
        (Record(b"k", at=99.0, session=SESSION, number=6), True),
        (Record(b"k", at=101.0, session=OTHER, number=1), True),
        (Record(b"k", at=500.0, session=OTHER, number=9, original=b"99000"), False),
        (Record(b"k", at=500.0, session=OTHER, number=9, original=b"101000"), True),
        (Record(b"k", at=500.0, original=b"no number"), True),
        (Record(b"k", at=-0.001), False),
    ],
)
def test_a_record_is_newer_by_sequence_within_its_session_and_by_time_across_sessions(record, newer):
    keys = KeyIndex()
    keys.add(name_of(5), b"k", 100.0)

    keys.observe(record)

    assert list(keys.newer()) == ([name_of(5)] if newer else [])


def test_each_dead_letter_of_a_key_is_compared_separately():
    keys = KeyIndex()
    for number, accepted in enumerate((100.0, 200.0, 300.0)):
        keys.add(name_of(number), b"k", accepted)

    keys.observe(Record(b"k", at=250.0, session=OTHER))
    keys.observe(Record(b"k", at=900.0, session=SESSION, number=1))

    assert set(keys.newer()) == {name_of(0), name_of(1)}


def test_a_dead_letter_with_a_foreign_id_is_compared_by_time():
    keys = KeyIndex()
    keys.add("spring-17", b"k", 100.0)

    keys.observe(Record(b"k", at=101.0, session=SESSION, number=1))

    assert list(keys.newer()) == ["spring-17"]


def test_a_key_with_thousands_of_dead_letters_and_records_is_compared_in_linear_time():
    keys = KeyIndex()
    for number in range(20_000):
        keys.add(name_of(number), b"k", float(number))
    for number in range(20_000):
        keys.observe(Record(b"k", at=15_000.5, session=OTHER, number=number))

    assert sum(1 for _ in keys.newer()) == 15_001
