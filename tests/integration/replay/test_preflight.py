"""Test replays on a real broker: the preflight check, the wait for a confirmation, and exactly-once delivery."""

from __future__ import annotations

import os
import time
import uuid

import pytest
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer, replay
from producer_core.config import client_config
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.cluster import Cluster
from producer_core.messages import ID_HEADER, parse_id
from producer_core.replay.broker_check import BrokerCheck
from producer_core.replay.dry_run import dry_run
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import ScriptedSender, dead_letter, message_id

pytestmark = pytest.mark.kafka

ACT = {"who": "ada", "origin": "cli"}


@pytest.fixture
def rig(kafka, tmp_path):
    return ReplayRig(kafka, Store.open(tmp_path / "store.duckdb"))


class ReplayRig:
    def __init__(self, kafka, store):
        self.kafka, self.store = kafka, store
        self.config = client_config(kafka.bootstrap_servers, {})
        self.cluster_id = Cluster(self.config).view().cluster_id
        self.dead_letters = DeadLetters(store)
        sender = ScriptedSender()  # a transactional replay does not use it
        sender.cluster_id = self.cluster_id
        self.runner = replay_runner(store, sender, client=self.config.settings, quiet=0.0)

    def topic(self, **config):
        name = f"ahead-{uuid.uuid4().hex[:8]}"
        self.kafka.create_topic(name, 2, config)
        return name

    def add_dead_letters(self, topic, count, **changes):
        now = time.time()
        given = {"topic": topic, "cluster_id": self.cluster_id, "key": b"k", **changes}
        self.dead_letters.add(
            [
                dead_letter(n, accepted_at=now - 60 + n / 1000, failed_at=now - 50 + n / 1000, **given)
                for n in range(count)
            ]
        )

    def plan(self, **choices):
        return replay.plan(self.store, DeadLetterFilter(), can_run=self.cluster_id, **ACT, **choices)

    def write(self, topic, value, key, headers=()):
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        producer.produce(topic, value, key, headers=list(headers))
        assert producer.flush(30) == 0


def test_a_replay_is_exactly_once_on_a_real_broker(rig):
    rig.add_dead_letters(rig.topic(), 300)

    done = rig.runner.run_one(rig.plan().operation_id, 60)

    assert (done.state, done.acknowledged, done.delivery) == ("done", 300, "exactly_once")
    assert rig.dead_letters.count(DeadLetterFilter(state="replayed")) == 300


def test_a_record_already_on_the_topic_is_settled_as_landed(rig):
    topic = rig.topic()
    rig.add_dead_letters(topic, 20, verdict="possibly_persisted")
    there = message_id(7)
    rig.write(topic, b"v7", b"k", [(ID_HEADER, parse_id(there))])

    done = rig.runner.run_one(rig.plan(inconclusive="send").operation_id, 60)

    assert (done.acknowledged, done.landed) == (19, 1)
    assert rig.dead_letters.count(DeadLetterFilter(state="landed", message_id=there)) == 1


def test_a_replay_with_check_first_waits_for_go_before_it_sends(rig):
    topic = rig.topic()
    rig.add_dead_letters(topic, 5)
    planned = rig.plan(check_first=True)

    assert rig.runner.poll()
    ready = replay.get(rig.store, planned.operation_id)
    assert (ready.state, ready.acknowledged, ready.owner) == ("ready", 0, None)
    assert topic in ready.checked
    assert not rig.runner.poll()
    assert rig.plan(check_first=True).operation_id == planned.operation_id

    replay.go(rig.store, planned.operation_id, **ACT)
    assert rig.runner.run_one(planned.operation_id, 60).acknowledged == 5


def test_a_replay_skips_old_values_on_a_compacted_topic_by_default(rig):
    topic = rig.topic(**{"cleanup.policy": "compact"})
    rig.add_dead_letters(topic, 1, key=b"old")
    rig.write(topic, b"newer", b"old")

    done = rig.runner.run_one(rig.plan().operation_id, 60)
    assert (done.acknowledged, done.skipped) == (0, 1)
    assert "newer record" in done.message

    done = rig.runner.run_one(rig.plan(newer="send").operation_id, 60)
    assert done.acknowledged == 1


def test_dead_letters_of_a_deleted_topic_are_skipped_with_a_reason(rig):
    rig.add_dead_letters(f"gone-{uuid.uuid4().hex[:8]}", 3)

    done = rig.runner.run_one(rig.plan().operation_id, 60)

    assert (done.acknowledged, done.skipped) == (0, 3)
    assert "no longer exists" in done.message
    assert rig.dead_letters.count(DeadLetterFilter()) == 3


def test_a_rejected_record_does_not_affect_the_others(rig):
    topic = rig.topic(**{"max.message.bytes": "2000"})
    rig.add_dead_letters(topic, 40)
    rig.dead_letters.add(
        [
            dead_letter(
                99,
                topic=topic,
                cluster_id=rig.cluster_id,
                value=os.urandom(4000),  # does not compress
                accepted_at=time.time() - 59.99,
            )
        ]
    )

    done = rig.runner.run_one(rig.plan().operation_id, 120)

    assert (done.acknowledged, done.failed_again) == (40, 1)
    again = rig.dead_letters.get(message_id(99))
    assert (again.code, again.verdict, again.replay_count) == ("MSG_SIZE_TOO_LARGE", "rejected", 1)


def test_a_one_click_replay_starts_automatically_and_reports_its_delivery_guarantee(rig):
    topic = rig.topic()
    rig.add_dead_letters(topic, 5, key=b"mine")

    done = rig.runner.run_one(rig.plan(check_first=True, go_by_itself=True).operation_id, 60)

    assert (done.state, done.acknowledged, done.delivery) == ("done", 5, "exactly_once")
    assert BrokerCheck.from_json(done.checked).delivery == "exactly_once"


def test_a_one_click_replay_waits_for_a_decision_if_an_uncompacted_topic_has_newer_records(rig):
    topic = rig.topic()
    rig.add_dead_letters(topic, 3, key=b"old")
    rig.write(topic, b"newer", b"old")

    planned = rig.plan(check_first=True, go_by_itself=True)
    waits = rig.runner.run_one(planned.operation_id, 60)

    assert (waits.state, waits.acknowledged) == ("ready", 0)
    run = dry_run(rig.store, DeadLetterFilter(), operation=waits)
    assert run.newer_keys == 3
    assert any(said.startswith("Sent exactly once: consumers") for said in run.sentences)
    replay.go(rig.store, planned.operation_id, newer="skip", **ACT)
    assert rig.runner.run_one(planned.operation_id, 60).skipped == 3


def test_the_python_api_skips_old_values_only_on_compacted_topics(rig):
    plain, compacted = rig.topic(), rig.topic(**{"cleanup.policy": "compact"})
    for topic in (plain, compacted):
        rig.write(topic, b"newer", b"old")
    now = time.time()
    rig.dead_letters.add(
        [
            dead_letter(
                n,
                topic=topic,
                cluster_id=rig.cluster_id,
                key=b"old",
                accepted_at=now - 60,
                failed_at=now - 50,
            )
            for n, topic in enumerate((plain, compacted))
        ]
    )
    with ReliableKafkaProducer(rig.kafka.bootstrap_servers, store=rig.store, run_replays=False) as producer:
        assert producer.replay_dlq_messages(plain) == 1
        assert producer.replay_dlq_messages(compacted) == 0
