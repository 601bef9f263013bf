"""A producer handles only the dead letters of its own cluster in a store shared with producers of other clusters."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError

from producer_core import MessageStatus, ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import OtherCluster
from producer_core.testing import InMemoryTransport
from tests.fixtures.enqueueing import quick_producer
from tests.fixtures.replays import dead_letter, message_id
from tests.support import eventually

HERE, ELSEWHERE, UNKNOWN = message_id(1), message_id(2), message_id(3)
FREQUENT_CHECKS = {"health_check_interval": 0.1}


def add_dead_letters(store, here="here"):
    DeadLetters(store).add(
        [
            dead_letter(1, cluster_id=here),
            dead_letter(2, cluster_id="elsewhere"),
            dead_letter(3, cluster_id=""),
        ]
    )


@pytest.fixture
def dead_letters(store):
    add_dead_letters(store)


@pytest.fixture(scope="module")
def broker():
    with embedded.start(topics={"orders": 1, "refunds": 1}) as started:
        yield started


def producer_of(store, *, cluster="here", found=None, **options):
    class Transport(InMemoryTransport):
        def cluster_id(self, topic, timeout):
            return found

    return ReliableKafkaProducer(
        "memory:1",
        store=store,
        cluster_id=cluster,
        transport=lambda *parts: Transport(*parts),
        run_replays=False,
        **options,
    )


def producer_at(broker, store):
    return ReliableKafkaProducer(
        broker.bootstrap_servers, store=store, cluster_id=broker.cluster_id, run_replays=False
    )


def listed(producer, topic=None):
    return [message.id for message in producer.get_dlq_messages(topic)]


def dead(store):
    return {one.message_id for one in DeadLetters(store).find(DeadLetterFilter())}


@pytest.mark.slow
def test_a_producer_lists_and_counts_dead_letters_of_its_own_or_an_unknown_cluster(store, dead_letters):
    with producer_of(store, **FREQUENT_CHECKS) as producer:
        eventually(lambda: producer.get_health_status()["metrics"]["max_dlq_size"] == 2)
        assert listed(producer) == listed(producer, "orders") == [HERE, UNKNOWN]
        assert producer.get_stats()["dlq_stats"]["total_messages"] == 2
        assert producer.dlq.topic_stats == {"orders": 2}
        assert producer.dlq.to_frame(kind="arrow").num_rows == 2
        assert sum(group.count for group in producer.dlq.groups()) == 2
        assert producer.get_message_status(HERE) is MessageStatus.DLQ
        assert producer.get_message_status(ELSEWHERE) is None


def test_a_filter_with_a_cluster_id_finds_the_dead_letters_of_that_cluster(store, dead_letters):
    with producer_of(store) as producer:
        named = DeadLetterFilter(cluster_id="elsewhere")
        assert producer.dlq.to_frame(named, kind="arrow").column("message_id").to_pylist() == [ELSEWHERE]


@pytest.mark.slow
def test_clearing_leaves_the_dead_letters_of_other_clusters(store, dead_letters):
    with producer_of(store) as producer:
        assert producer.clear_dlq() == 2
    assert dead(store) == {ELSEWHERE}


@pytest.mark.slow
def test_a_replay_skips_the_dead_letters_of_other_clusters_and_logs_it(store, broker, caplog):
    add_dead_letters(store, broker.cluster_id)

    with producer_at(broker, store) as producer:
        assert producer.replay_dlq_messages("orders") == 2

    assert dead(store) == {ELSEWHERE}
    (said,) = [one for one in caplog.records if "dead letters of other clusters skipped" in one.message]
    assert (said.count, said.clusters, said.own) == (1, ["elsewhere"], broker.cluster_id)
    assert "topic=orders, count=1, clusters=elsewhere" in said.message
    assert said.message.endswith(f"pass to_cluster={broker.cluster_id!r}.")


@pytest.mark.slow
def test_a_replay_that_exceeds_its_timeout_reports_that_it_continues_in_the_store(
    store, dead_letters, caplog
):
    with producer_of(store) as producer:
        assert producer.replay_dlq_messages("orders", timeout=0) == 0

    (said,) = [one for one in caplog.records if "replay continues in the store" in one.message]
    assert (said.topic, said.done, said.total) == ("orders", 0, 2)
    assert said.message.startswith(
        f"replay continues in the store: topic=orders, done=0, total=2, operation={said.operation}"
    )


@pytest.mark.slow
def test_dead_letters_of_another_cluster_are_replayed_if_to_cluster_is_the_producers_own(store, broker):
    add_dead_letters(store, broker.cluster_id)

    with producer_at(broker, store) as producer:
        with pytest.raises(OtherCluster, match=f"not to elsewhere.*to_cluster='{broker.cluster_id}'"):
            producer.replay_dlq_messages("orders", to_cluster="elsewhere")
        assert dead(store) == {HERE, ELSEWHERE, UNKNOWN}
        assert producer.replay_dlq_messages("orders", to_cluster=broker.cluster_id) == 3
    assert dead(store) == set()


def test_another_cluster_is_refused_without_a_store_as_well():
    with (
        producer_of(None) as producer,
        pytest.raises(OtherCluster, match="to_cluster='here'"),
    ):
        producer.replay_dlq_messages("orders", to_cluster="elsewhere")


@pytest.mark.slow
def test_a_new_producer_requests_its_cluster_id_before_it_lists_dead_letters(store, dead_letters):
    with producer_of(store, cluster=None, found="here") as producer:
        assert listed(producer) == [HERE, UNKNOWN]


@pytest.mark.slow
def test_without_a_cluster_id_only_dead_letters_of_an_unknown_cluster_are_used(store, dead_letters):
    with producer_of(store, cluster=None) as producer:
        assert listed(producer) == [UNKNOWN]
        with pytest.raises(OtherCluster, match="does not know yet"):
            producer.replay_dlq_messages("orders", to_cluster="here")
        assert producer.clear_dlq() == 1
    assert dead(store) == {HERE, ELSEWHERE}


@pytest.mark.slow
def test_a_replay_sets_the_cluster_of_the_producers_own_dead_letters(store):
    with producer_of(store) as producer:
        producer._components.dead_letter_backend._naming_passes = 0  # the passes of the recorder ran before
        own, other = (
            dead_letter(5, cluster_id="", producer_id=producer.identity),
            dead_letter(6, cluster_id=""),
        )
        DeadLetters(store).add([own, other])
        producer.replay_dlq_messages("orders", timeout=0)
    assert DeadLetters(store).count_by(DeadLetterFilter(state=None), "cluster_id") == {"here": 1, "": 1}


@pytest.mark.slow
def test_the_readme_example_works_again_on_a_new_embedded_broker(store, broker):
    DeadLetters(store).add([dead_letter(4, topic="refunds", cluster_id="mockClusterOfTheFirstRun")])

    broker.reject("refunds", "POLICY_VIOLATION")
    slow = {"retry_backoff_ms": 20_000}  # so that the rejection counts as quick on a busy machine too
    with ReliableKafkaProducer(broker.bootstrap_servers, slow, store=store) as producer:
        sent = producer.send_message("refunds", {"order": 1}, key="alice")
        producer.flush()
        assert listed(producer, "refunds") == [sent]
        broker.accept("refunds")
        assert producer.replay_dlq_messages("refunds") == 1

    assert message_id(4) in dead(store)


@pytest.mark.parametrize("cluster", ["here", "elsewhere", "nowhere", ""])
def test_counts_lists_and_the_filter_in_memory_select_the_same_dead_letters(store, cluster):
    add_dead_letters(store)
    condition, all_dead_letters = DeadLetterFilter(cluster_or_unknown=cluster), DeadLetters(store)
    clusters = {HERE: "here", ELSEWHERE: "elsewhere", UNKNOWN: ""}

    expected = {one for one, its_cluster in clusters.items() if its_cluster in ("", cluster)}

    assert {one.message_id for one in all_dead_letters.find(condition)} == expected
    assert (
        all_dead_letters.count(condition)
        == all_dead_letters.count_by(condition, "topic")["orders"]
        == len(expected)
    )
    assert {one for one in clusters if condition.matches(all_dead_letters.get(one))} == expected


def test_a_replay_of_two_of_five_dead_letters_keeps_the_other_three():
    down = threading.Event()
    down.set()
    producer, _ = quick_producer(lambda delivery: KafkaError.POLICY_VIOLATION if down.is_set() else None)
    ids = [producer.send_message("orders", {"n": n}) for n in range(5)]
    producer.flush(5)

    down.clear()
    replayed = producer.replay_dlq_messages("orders", max_messages=2)

    assert replayed == 2
    assert [message.id for message in producer.get_dlq_messages("orders")] == ids[2:]
    assert producer.get_message_status(ids[0]) is MessageStatus.SENT
    producer.close()


def test_a_replayed_message_that_fails_again_is_kept_once():
    producer, _ = quick_producer(lambda delivery: KafkaError.POLICY_VIOLATION)
    message_id = producer.send_message("orders", {"n": 1})
    producer.flush(5)

    assert producer.replay_dlq_messages("orders") == 0
    (message,) = producer.get_dlq_messages("orders")
    assert message.id == message_id
    producer.close()
