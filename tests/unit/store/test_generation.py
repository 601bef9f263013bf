"""A store restored from a copy is recognised, and its safe verdicts are revoked."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetters
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.store import Store
from tests.fixtures.replays import add_dead_letters


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


def verdicts(store):
    return {dead_letter.verdict for dead_letter in DeadLetters(store).find(DeadLetterFilter(), limit=100)}


@pytest.mark.slow
def test_dead_letters_of_a_restored_store_are_probed_and_none_is_written_twice(path, tmp_path):
    with embedded.start(topics={"refunds": 1}) as broker:
        broker.reject("refunds", "POLICY_VIOLATION")
        with ReliableKafkaProducer(broker.bootstrap_servers, store=path) as producer:
            for number in range(20):
                producer.send_message("refunds", {"order": number})
            producer.flush()
            assert len(producer.get_dlq_messages()) == 20
        Store.open(path).snapshot(tmp_path / "copy.duckdb")
        broker.accept("refunds")
        with ReliableKafkaProducer(broker.bootstrap_servers, store=path) as producer:
            assert producer.replay_dlq_messages("refunds", inconclusive="send") == 20
        (tmp_path / "copy.duckdb").replace(path)

        with ReliableKafkaProducer(broker.bootstrap_servers, store=path) as producer:
            # all were found on the topic
            assert producer.replay_dlq_messages("refunds", inconclusive="send") == 20
            assert producer.get_dlq_messages() == []

        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
        assert consumer.get_watermark_offsets(TopicPartition("refunds", 0), timeout=60)[1] == 20
        consumer.close()


@pytest.mark.slow
def test_a_restored_store_is_logged_and_has_no_safe_verdict(path, tmp_path, caplog):
    store = Store.open(path)
    add_dead_letters(store, 3)
    store.close()
    shutil.copy(path, tmp_path / "copy.duckdb")
    store.begin_replay()
    store.close()
    assert verdicts(Store.open(path)) == {"rejected"}
    shutil.copy(tmp_path / "copy.duckdb", path)

    again = Store.open(path)

    assert verdicts(again) == {"possibly_persisted"}
    assert "restored from a copy" in caplog.text
    assert "3 dead letters" in again.rows("audit_latest")[0]["outcome"]
    again.close()
    caplog.clear()
    Store.open(path).close()
    assert "restored" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("replayed", [False, True])
def test_a_copy_at_another_path_is_recognised_with_and_without_a_replay_before(path, tmp_path, replayed):
    store = Store.open(path)
    add_dead_letters(store, 2)
    if replayed:
        store.begin_replay()
    store.close()

    copy = store.snapshot(tmp_path / "elsewhere.duckdb")

    assert verdicts(Store.open(copy)) == {"possibly_persisted"}
    assert verdicts(Store.open(path)) == {"rejected"}


def test_a_copy_in_the_place_of_another_store_is_recognised(path, tmp_path):
    store, other = Store.open(path), Store.open(tmp_path / "other.duckdb")
    add_dead_letters(store, 2)
    for one in (store, other):
        one.close()
    shutil.copy(path, other.path)

    assert verdicts(Store.open(other.path)) == {"possibly_persisted"}


def test_a_copy_in_the_place_of_a_deleted_store_is_recognised(path, tmp_path):
    store = Store.open(path)
    add_dead_letters(store, 2)
    copy = store.snapshot(tmp_path / "copy.duckdb")
    store.begin_replay()
    store.close()
    for file in tmp_path.glob("store.duckdb*"):
        file.unlink()

    shutil.copy(copy, path)

    assert verdicts(Store.open(path)) == {"possibly_persisted"}


@pytest.mark.slow
def test_a_new_store_at_the_path_of_a_deleted_one_is_not_a_copy(path):
    store = Store.open(path)
    store.begin_replay()
    store.close()
    path.unlink()

    store = Store.open(path)
    add_dead_letters(store, 2)
    store.close()

    assert verdicts(Store.open(path)) == {"rejected"}


def test_a_store_restored_under_a_running_process_is_recognised_by_its_next_replay(path, tmp_path):
    store = Store.open(path)
    add_dead_letters(store, 2)
    store.close()
    shutil.copy(path, tmp_path / "copy.duckdb")
    store.begin_replay()
    store.close()
    shutil.copy(tmp_path / "copy.duckdb", path)

    store.begin_replay()

    assert verdicts(store) == {"possibly_persisted"}
