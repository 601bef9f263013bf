"""Producers that publish their dead letters to topics of Apache Kafka as they die."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import closing, suppress

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from producer_core import DeadLetterTopic, ReliableKafkaProducer, RetryConfig
from producer_core.dlq import DeadLetterFilter, DeadLetters, topics
from producer_core.dlq.timeline import timeline
from producer_core.messages import id_text, record_id
from producer_core.store import Store
from tests.processes.dead_letter_topic import COUNT
from tests.support import ROOT, eventually

pytestmark = pytest.mark.kafka

WHO = {"who": "ann", "origin": "python"}


@pytest.fixture
def topic(kafka):
    """A topic that rejects records above 2,000 bytes, and its dead-letter topic."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2, config={"max.message.bytes": "2000"})
    kafka.create_topic(f"{name}-dlt", partitions=2)
    return name


@pytest.fixture
def store_path(tmp_path):
    return tmp_path / "state" / "store.duckdb"


def producer_of(kafka, store, **options):
    options = {"dead_letter_topic": "{topic}-dlt", **options}
    return ReliableKafkaProducer(
        kafka.bootstrap_servers, {"compression_type": "none"}, store=store, **options
    )


def too_large(number):
    return b"%d " % number + os.urandom(4_000)


def records(kafka, topic):
    """Read the whole topic as a read_committed consumer."""
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": f"test-{uuid.uuid4().hex}",
        "isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True,
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        partitions = [
            TopicPartition(topic, one, 0) for one in consumer.list_topics(topic).topics[topic].partitions
        ]
        consumer.assign(partitions)
        read, unread = [], {one.partition for one in partitions}
        while unread:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                read.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                unread.discard(message.partition())
        return read
    finally:
        consumer.close()


def ids_on(kafka, topic):
    return Counter(id_text(record_id(one.headers())) for one in records(kafka, topic))


def wait_published(kafka, topic, ids):
    eventually(lambda: ids_on(kafka, topic).keys() >= set(ids), every=0.3)


def events(store, message_id):
    return [event.what for event in timeline(store, message_id) if "publish" in event.what]


def is_file_in_place_of(folder):
    """Put a file in the place of a folder, which a thread of the producer may just have created again."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(IsADirectoryError):
        folder.write_text("no longer a folder")
    return folder.is_file()


def killed(kafka, topic, store):
    command = [sys.executable, "-m", "tests.processes.dead_letter_topic"]
    return subprocess.run(
        [*command, kafka.bootstrap_servers, topic, str(store)], cwd=ROOT, timeout=120, capture_output=True
    )


def test_rejected_messages_are_on_the_dead_letter_topic_and_in_the_store(kafka, topic, store_path, tmp_path):
    values = [too_large(number) for number in range(20)]
    with producer_of(kafka, store_path) as producer:
        sent = [producer.send_message(topic, value, key=f"k{number}") for number, value in enumerate(values)]
        producer.flush()
        good = producer.send_message(topic, b"small", key="k0")
        wait_published(kafka, f"{topic}-dlt", sent)

    found = records(kafka, f"{topic}-dlt")
    assert ids_on(kafka, f"{topic}-dlt") == Counter(sent), "each once"
    assert sorted(one.value() for one in found) == sorted(values)
    headers = dict(found[0].headers())
    assert headers["dlq.original.topic"] == topic.encode()
    assert headers["dlq.error.type"] == b"MSG_SIZE_TOO_LARGE"
    assert ids_on(kafka, topic) == Counter([good])
    with closing(Store.open(store_path)) as store:
        assert DeadLetters(store).count(DeadLetterFilter()) == 20
        assert events(store, sent[0]) == ["publishing", "published"]
        assert {one.verdict for one in DeadLetters(store).find(DeadLetterFilter())} == {"possibly_persisted"}
        again = publish(kafka, store)
        assert (again.published, again.already) == (0, 20)
    with closing(Store.open(tmp_path / "other.duckdb")) as other:
        fetched = topics.fetch({"bootstrap.servers": kafka.bootstrap_servers}, f"{topic}-dlt", other, **WHO)
        assert fetched.new == 20
        read_back = DeadLetters(other).bodies(sent)
        assert {one.message_id: one.value for one in read_back} == dict(zip(sent, values, strict=True))
        assert {one.topic for one in read_back} == {topic}


def publish(kafka, store):
    return topics.publish(
        store,
        DeadLetterFilter(),
        "{topic}-dlt",
        {"bootstrap.servers": kafka.bootstrap_servers},
        open_producer=lambda servers, settings: ReliableKafkaProducer(servers, settings, store=None),
        **WHO,
    )


def test_what_an_ephemeral_disk_loses_is_fetched_from_the_topic_and_replayed(
    kafka, topic, store_path, tmp_path
):
    with producer_of(kafka, tmp_path / "ephemeral" / "store.duckdb") as producer:
        sent = [producer.send_message(topic, too_large(number)) for number in range(5)]
    shutil.rmtree(tmp_path / "ephemeral")
    assert ids_on(kafka, f"{topic}-dlt") == Counter(sent), "close() publishes what there is"

    allow_large_records(kafka, topic)
    with closing(Store.open(store_path)) as store:
        topics.fetch({"bootstrap.servers": kafka.bootstrap_servers}, f"{topic}-dlt", store, **WHO)
        with ReliableKafkaProducer(kafka.bootstrap_servers, store=store) as sender:
            assert sender.replay_dlq_messages(topic, inconclusive="send") == 5
    assert ids_on(kafka, topic) == Counter(sent)


def allow_large_records(kafka, topic):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def test_a_function_chooses_the_topic_and_a_dialect_adds_its_headers(kafka, topic, store_path):
    kafka.create_topic(f"{topic}-large", partitions=1)
    choice = DeadLetterTopic(lambda dead: f"{topic}-large" if dead.key == b"loud" else None, dialect="spring")
    with producer_of(kafka, store_path, dead_letter_topic=choice) as producer:
        loud = producer.send_message(topic, too_large(1), key="loud")
        quiet = producer.send_message(topic, too_large(2), key="quiet")

    assert ids_on(kafka, f"{topic}-large") == Counter([loud])
    assert "kafka_dlt-exception-message" in dict(records(kafka, f"{topic}-large")[0].headers())
    with closing(Store.open(store_path)) as store:
        assert events(store, quiet) == ["not published"]
        assert DeadLetters(store).count(DeadLetterFilter()) == 2


def test_dead_letters_of_an_outage_are_published_once_after_it(kafka, topic, store_path):
    with producer_of(kafka, store_path) as producer:
        first = producer.send_message(topic, too_large(0))
        wait_published(kafka, f"{topic}-dlt", [first])
        kafka.pause(1)
        try:
            sent = [producer.dead_letter(topic, b"{%d" % number, text="invalid JSON") for number in range(50)]
            eventually(lambda: producer.dlq.count() == 51)
            began = time.monotonic()
            assert producer.send_message(topic, b"small"), "sending goes on"
            assert time.monotonic() - began < 30
            eventually(lambda: "publishing" in events(producer.store, sent[-1]))
        finally:
            kafka.resume(1)
        wait_published(kafka, f"{topic}-dlt", sent)
        eventually(lambda: events(producer.store, sent[-1]) == ["publishing", "published"])

    assert ids_on(kafka, f"{topic}-dlt") == Counter([first, *sent])


def test_an_outage_longer_than_the_delivery_timeout_loses_and_repeats_none(kafka, topic, store_path, caplog):
    """The broker keeps the requests that it received before it hangs, and appends them afterwards."""
    settings = {"compression_type": "none", "delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000}
    with ReliableKafkaProducer(
        kafka.bootstrap_servers,
        settings,
        store=store_path,
        dead_letter_topic="{topic}-dlt",
        retry_config=RetryConfig(max_retries=0),
    ) as producer:
        first = producer.send_message(topic, too_large(0))
        wait_published(kafka, f"{topic}-dlt", [first])
        kafka.pause(1)
        try:
            sent = [producer.dead_letter(topic, b"{%d" % number, text="invalid JSON") for number in range(20)]
            eventually(lambda: any("wait for their topic" in text for text in caplog.messages))
        finally:
            kafka.resume(1)
        wait_published(kafka, f"{topic}-dlt", sent)
        eventually(lambda: any("published again" in text for text in caplog.messages))

    assert ids_on(kafka, f"{topic}-dlt") == Counter([first, *sent])


def test_a_missing_topic_delays_the_dead_letters_until_it_is_created(kafka, topic, store_path, caplog):
    name = f"{topic}-later"
    with producer_of(kafka, store_path, dead_letter_topic=name) as producer:
        sent = [producer.send_message(topic, too_large(number)) for number in range(3)]
        eventually(lambda: any(f"{name} does not exist" in text for text in caplog.messages))
        kafka.create_topic(name, partitions=1)
        wait_published(kafka, name, sent)

    assert ids_on(kafka, name) == Counter(sent)


def test_dead_letters_of_a_closed_producer_are_published_by_the_next_one(kafka, topic, store_path):
    name = f"{topic}-later"
    with producer_of(kafka, store_path, dead_letter_topic=name) as producer:
        sent = [producer.send_message(topic, too_large(number)) for number in range(3)]
        producer.flush()
        producer.close(timeout=3.0)
    kafka.create_topic(name, partitions=1)

    with producer_of(kafka, store_path, dead_letter_topic=name) as producer:
        producer.send_message(topic, b"small")
        producer.flush()
        assert producer.cluster_id == kafka.cluster_id
        wait_published(kafka, name, sent)

    assert ids_on(kafka, name) == Counter(sent)


def test_kill_9_before_the_record_of_a_publication_leaves_each_dead_letter_once(kafka, topic, store_path):
    first = killed(kafka, topic, store_path)
    assert first.returncode == -signal.SIGKILL, first.stderr.decode()
    sent = ids_on(kafka, f"{topic}-dlt")
    assert len(sent) == COUNT

    with producer_of(kafka, store_path) as producer, closing(Store.open(store_path)) as store:
        producer.send_message(topic, b"small")
        producer.flush()
        eventually(lambda: all(events(store, one)[-1:] == ["published"] for one in sent))
    assert ids_on(kafka, f"{topic}-dlt") == Counter(sent.keys()), "found on the topic, not sent again"


def test_a_producer_whose_disk_goes_away_publishes_its_dead_letters_and_goes_on(kafka, topic, store_path):
    with producer_of(kafka, store_path, dlq_max_size=10) as producer:
        before = producer.send_message(topic, too_large(0))
        producer.flush()
        wait_published(kafka, f"{topic}-dlt", [before])
        eventually(lambda: is_file_in_place_of(store_path.parent))

        sent = [producer.send_message(topic, too_large(number), max_block_ms=60_000) for number in range(50)]
        producer.flush()
        wait_published(kafka, f"{topic}-dlt", sent)
        assert producer.send_message(topic, b"small")
        report = producer.close()

    assert ids_on(kafka, f"{topic}-dlt") == Counter([before, *sent])
    assert report.lost == 0


def test_a_record_has_the_headers_by_which_pipeline_reprocess_replays_it(kafka, topic, store_path):
    with producer_of(kafka, store_path) as producer:
        sent = producer.send_message(topic, too_large(0))
    (record,) = records(kafka, f"{topic}-dlt")
    headers = dict(record.headers())
    assert headers["dlq.message.id"].decode() == sent == id_text(record_id(record.headers()))
    assert headers["dlq.original.topic"].decode() == topic
    assert json.loads(headers["dlq.history"])
