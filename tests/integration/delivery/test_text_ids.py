"""Message ids as text: records of both forms on one topic are the same to everything that reads them."""

from __future__ import annotations

import time
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from producer_core import ReliableKafkaProducer, replay
from producer_core._internal.id_header import ID_HEADER, text_header
from producer_core.brokers import embedded
from producer_core.config import client_config
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import LogPosition
from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.duplicate_filter import Seen
from producer_core.kafka.record_lookup import find_records
from producer_core.messages import id_bytes, id_text, parse_id, record_id
from tests.fixtures.replays import dead_letter
from tests.support import eventually

TEXT = {"message_id_format": "text"}


@pytest.fixture(scope="module")
def broker():
    with embedded.start() as running:
        yield running


@pytest.fixture
def topic(broker):
    name = f"orders-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1)
    return name


def producer_of(broker, config=None, **options):
    return ReliableKafkaProducer(
        broker.bootstrap_servers, config, store=None, health_check_interval=3600, **options
    )


def read(broker, topic):
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "enable.partition.eof": True}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(message)
        return found


def test_other_tools_see_the_id_that_send_message_returned(broker, topic):
    with producer_of(broker, TEXT) as producer:
        ids = [producer.send_message(topic, b"1"), producer.send_message(topic, b"2", headers={"trace": "x"})]
        assert producer.close().lost == 0

    first, second = (message.headers() for message in read(broker, topic))
    assert first == [(ID_HEADER, ids[0].encode())]
    assert second == [(ID_HEADER, ids[1].encode()), ("trace", b"x")]


@pytest.mark.parametrize("config", [None, {"message_id_format": "binary"}])
def test_ids_are_binary_by_default(broker, topic, config):
    with producer_of(broker, config) as producer:
        id = producer.send_message(topic, b"1")

    assert type(producer._engine.transport._live[0]) is Producer, "the default has no code of the text form"
    assert read(broker, topic)[0].headers() == [(ID_HEADER, parse_id(id))]


def test_a_lookup_and_a_filter_find_both_forms_on_one_topic(broker, topic):
    ids = []
    for config in (None, TEXT, None, TEXT):
        with producer_of(broker, config) as producer:
            ids += [producer.send_message(topic, b"x", partition=0) for _ in range(3)]

    found = find_records(
        {"bootstrap.servers": broker.bootstrap_servers}, topic, [*ids, id_text(bytes(24))], since_ms=0
    )
    messages, seen = read(broker, topic), Seen()

    assert [(found[one].partition, found[one].offset) for one in ids] == [(0, offset) for offset in range(12)]
    assert [id_text(record_id(one.headers())) for one in messages] == ids
    assert all(map(seen.first, messages)) and seen.without_id == 0


def test_a_replacement_client_keeps_the_format(broker, topic):
    with producer_of(broker, TEXT) as producer:
        assert type(producer._engine.transport._new_client()) is type(producer._engine.transport._live[0])
        assert type(producer._engine.transport._live[0]) is not Producer


def test_a_journaled_message_keeps_its_id_when_the_format_changes(broker, topic, tmp_path):
    with embedded.start() as down:
        down.down()
        producer = producer_of(down, TEXT, journal_dir=tmp_path / "journal")
        id = producer.send_message(topic, b"1")
        assert producer.close(timeout=0.2).journaled == 1

    with producer_of(broker, journal_dir=tmp_path / "journal") as producer:
        producer.flush(30)

    assert read(broker, topic)[0].headers() == [(ID_HEADER, parse_id(id))]


def test_a_read_back_finds_committed_records_of_both_forms(kafka):
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    ids = [id_bytes(uuid.uuid4(), number) for number in range(6)]
    for number, id in enumerate(ids):
        send_in_transaction(kafka, topic, id, TEXT if number % 2 else {})

    read_back = ReadBack(
        {"bootstrap.servers": kafka.bootstrap_servers}, lambda _: None, lambda *_: None, lambda _: None
    )
    found = read_back({(topic, 0): -1}, set(ids).__contains__).found[topic, 0]

    assert [id for id, _ in found] == ids
    assert all(isinstance(position, LogPosition) for _, position in found)
    forms = [message.headers()[0][1] for message in read(kafka, topic)]
    assert forms == [text_header(id) if number % 2 else id for number, id in enumerate(ids)]


def send_in_transaction(kafka, topic, id, config):
    settings = transactional_settings(client_config(kafka.bootstrap_servers, config).settings)
    client = TransactionalClient(
        settings, topic, statistics=lambda _: None, connection_error=lambda _: None, stopping=lambda: False
    )
    client.fence(lambda _: None)
    reports, rejected = client.transact([Delivery(id, 0, topic, None, b"x")], time.monotonic() + 30)
    assert (len(reports), rejected) == (1, [])
    client.destroy()


def test_a_replay_in_transactions_finds_both_forms_and_writes_its_own(kafka, store):
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    lost = [
        dead_letter(
            number,
            topic=topic,
            cluster_id=kafka.cluster_id,
            verdict="possibly_persisted",
            accepted_at=time.time(),
        )
        for number in range(6)
    ]
    DeadLetters(store).add(lost)
    write(kafka, topic, [parse_id(lost[0].message_id), text_header(parse_id(lost[1].message_id))])

    with ReliableKafkaProducer(kafka.bootstrap_servers, TEXT, store=store) as producer:
        operation = replay.plan(
            store, DeadLetterFilter(topic=topic), who="ann", origin="python", can_run=kafka.cluster_id,
            inconclusive="send",
        )  # fmt: skip
        done = eventually(lambda: ended(store, operation), timeout=60)
        assert producer.close().lost == 0

    assert (done.delivery, done.landed, done.acknowledged) == ("exactly_once", 2, 4)
    values = [message.headers()[0][1] for message in read(kafka, topic)]
    assert values[1:] == [one.message_id.encode() for one in lost[1:]]


def ended(store, operation):
    found = replay.get(store, operation.operation_id)
    return found if found.state == "done" else None


def write(kafka, topic, ids):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in ids:
        producer.produce(topic, b"x", partition=0, headers=[(ID_HEADER, value)])
    assert producer.flush(30) == 0
