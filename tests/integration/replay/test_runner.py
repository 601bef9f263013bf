"""Test replays and the probe for landed records on a real Apache Kafka; kcat counts the records."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka import record_lookup
from producer_core.messages import ID_HEADER, parse_id
from tests.fixtures.replays import dead_letter, message_id
from tests.support import ROOT, eventually

pytestmark = pytest.mark.kafka

COUNT = 2_000
LEASE = 1.5


@pytest.fixture
def topic(kafka):
    name = f"replay-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


@contextlib.contextmanager
def runners():
    """Yield a function that starts a process that runs replays; stop all processes at the end."""
    started: list[subprocess.Popen] = []

    def start(store, kafka):
        words = [str(store.path), kafka.bootstrap_servers, kafka.cluster_id, str(LEASE), "0"]
        command = [sys.executable, "-m", "tests.processes.replay", *words]
        started.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.stdin.close()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            process.wait()


def values_on(kafka, topic) -> Counter:
    """Return how often each value is on the topic, as kcat reads it with read_committed."""
    read = subprocess.run(
        ["kcat", "-C", "-q", "-e", "-b", kafka.bootstrap_servers, "-t", topic, "-f", "%s\n", "-o", "beginning",
         "-X", "isolation.level=read_committed"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return Counter(read.stdout.split())


def add_dead_letters(store, kafka, topic, count, **changes):
    dead_letters = [
        dead_letter(number, topic=topic, cluster_id=kafka.cluster_id, **changes) for number in range(count)
    ]
    DeadLetters(store).add(dead_letters)
    return dead_letters


def test_a_replay_killed_repeatedly_loses_no_record_and_writes_none_twice(kafka, topic, store):
    """Of what a killed process had sent, a record that is not found remains a dead letter: it may still arrive."""
    dead_letters = add_dead_letters(store, kafka, topic, COUNT)
    operation = replay.plan(
        store, DeadLetterFilter(topic=topic), who="ann", origin="python", can_run=kafka.cluster_id, rate=200
    )  # several waves, so that a kill finds an unfinished replay
    chance = random.Random(7)

    with runners() as start:
        spare = [start(store, kafka), start(store, kafka)]
        for threshold in sorted(chance.sample(range(50, COUNT - 200), 6)):
            eventually(lambda at=threshold: settled(store, operation) >= at, timeout=60)
            if kill_owner(store, operation):
                spare.append(start(store, kafka))
        done = eventually(lambda: ended(store, operation), timeout=60)

    written, kept = values_on(kafka, topic), pending_values(store)
    assert written.keys() | kept == {one.value.decode() for one in dead_letters}
    assert set(written.values()) == {1}
    assert (done.acknowledged + done.landed, done.failed_again) == (COUNT - len(kept), 0)
    assert done.skipped == len(kept)
    assert [process.returncode for process in spare].count(-signal.SIGKILL) >= 4


def pending_values(store) -> set[str]:
    found = DeadLetters(store).find(DeadLetterFilter(), limit=COUNT)
    return {one.value.decode() for one in DeadLetters(store).bodies([one.message_id for one in found])}


def settled(store, operation):
    now = replay.get(store, operation.operation_id)
    return now.acknowledged + now.landed


def ended(store, operation):
    now = replay.get(store, operation.operation_id)
    return now if now.ended else None


def kill_owner(store, operation) -> bool:
    owner = replay.get(store, operation.operation_id).owner
    if owner is None:
        return False
    os.kill(int(owner.partition(":")[2].partition("/")[0]), signal.SIGKILL)
    eventually(lambda: replay.get(store, operation.operation_id).owner != owner, timeout=60)
    return True


def test_records_already_on_the_topic_are_found_and_only_the_rest_is_sent(kafka, topic, store):
    dead_letters = add_dead_letters(
        store, kafka, topic, 100, verdict="possibly_persisted", accepted_at=time.time()
    )
    produce(kafka, topic, dead_letters[:40])
    operation = replay.plan(
        store,
        DeadLetterFilter(topic=topic),
        who="ann",
        origin="python",
        can_run=kafka.cluster_id,
        inconclusive="send",
    )

    with runners() as start:
        start(store, kafka)
        done = eventually(lambda: ended(store, operation), timeout=60)

    assert (done.landed, done.acknowledged) == (40, 60)
    assert values_on(kafka, topic) == Counter(one.value.decode() for one in dead_letters)


def produce(kafka, topic, dead_letters, *, timestamp_ms=0):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for one in dead_letters:
        headers = [(ID_HEADER, parse_id(one.message_id))]
        producer.produce(topic, one.value, partition=0, headers=headers, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


# the probe


def probe(kafka, topic, number, **choices):
    return record_lookup.probe(
        {"bootstrap.servers": kafka.bootstrap_servers}, topic, None, message_id(number), **choices
    )


def test_an_acceptance_time_an_hour_ahead_hides_no_record(kafka, topic):
    """The clock was an hour ahead at acceptance, so by timestamps the topic has no record that is new enough."""
    now = int(time.time() * 1000)
    produce(kafka, topic, [dead_letter(number) for number in range(50)], timestamp_ms=now)
    produce(kafka, topic, [dead_letter(99)], timestamp_ms=now + 7_200_000)

    assert probe(kafka, topic, 7, since_ms=now + 3_600_000).outcome == "found"
    assert probe(kafka, topic, 98, since_ms=now + 3_600_000).unread == frozenset()


def test_partitions_excluded_by_timestamps_alone_are_reported_as_unread(kafka, topic, monkeypatch):
    monkeypatch.setattr(record_lookup, "_MAX_OLDER_RECORDS", 10)
    now = int(time.time() * 1000)
    produce(kafka, topic, [dead_letter(number) for number in range(50)], timestamp_ms=now)
    produce(kafka, topic, [dead_letter(99)], timestamp_ms=now + 7_200_000)

    answer = probe(kafka, topic, 7, since_ms=now + 3_600_000)

    assert (answer.outcome, answer.unread) == ("not_found", {0})
    assert "according to timestamps" in answer.text


def test_a_probe_uses_the_time_index_to_skip_older_records(kafka, topic, monkeypatch):
    monkeypatch.setattr(record_lookup, "_MAX_OLDER_RECORDS", 10)
    now = int(time.time() * 1000)
    produce(kafka, topic, [dead_letter(number) for number in range(500)], timestamp_ms=now - 3_600_000)
    produce(kafka, topic, [dead_letter(500)], timestamp_ms=now)

    assert probe(kafka, topic, 500, since_ms=now).records_read == 1
    assert probe(kafka, topic, 501, since_ms=now).outcome == "not_found"
    assert probe(kafka, topic, 501, since_ms=now).records_read == 1
    # No record is that new, so the probe reads only the end.
    assert probe(kafka, topic, 501, since_ms=now + 3_600_000).outcome == "not_found"


def transaction(kafka, topic, number):
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": f"t-{uuid.uuid4()}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0, headers=[(ID_HEADER, parse_id(message_id(number)))])
    assert producer.flush(30) == 0
    return producer


def test_a_record_of_an_aborted_transaction_is_not_found(kafka, topic):
    transaction(kafka, topic, 1).abort_transaction(30)

    assert probe(kafka, topic, 1).outcome == "not_found"


def test_a_probe_is_inconclusive_until_an_open_transaction_ends(kafka, topic):
    producer = transaction(kafka, topic, 1)
    produce(kafka, topic, [dead_letter(2)])

    assert probe(kafka, topic, 2, timeout=2.0).outcome == "inconclusive"
    assert probe(kafka, topic, 3, timeout=2.0).outcome == "inconclusive"
    producer.commit_transaction(30)

    assert probe(kafka, topic, 2).outcome == "found"
    assert probe(kafka, topic, 1).outcome == "found"
    assert probe(kafka, topic, 3).outcome == "not_found"


# permissions

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="secret" user_app="secret";'
)


@pytest.fixture(scope="module")
def secured():
    """Start a broker with ACLs whose client listener requires authentication."""
    from producer_core.brokers import kafka as real

    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT,DIRECT:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": PLAIN,
    }
    with real.start(nodes=1, properties=properties) as cluster:
        yield cluster


def allow(secured, kind, name, operation):
    binding = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:app", "*", operation, AclPermissionType.ALLOW
    )
    admin = AdminClient({"bootstrap.servers": secured.direct_servers})
    admin.create_acls([binding])[binding].result(30)


def test_without_read_permission_a_probe_is_inconclusive_and_names_the_missing_permission(secured):
    secured.create_topic("orders", partitions=1)
    allow(secured, ResourceType.TOPIC, "orders", AclOperation.WRITE)
    app = {
        "bootstrap.servers": secured.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": "secret",
    }
    producer = Producer(app)
    producer.produce("orders", b"x", headers=[(ID_HEADER, parse_id(message_id(1)))])
    assert producer.flush(30) == 0

    refused = record_lookup.probe(app, "orders", None, message_id(1), timeout=5.0)
    allow(secured, ResourceType.TOPIC, "orders", AclOperation.READ)
    answers = []

    def found():
        answers.append(record_lookup.probe(app, "orders", None, message_id(1), timeout=10.0))
        return answers[-1].outcome == "found"

    with contextlib.suppress(AssertionError):  # the assertion below shows the actual answer
        eventually(found, timeout=60)
    allowed = answers[-1]

    assert refused.outcome == "inconclusive"
    assert "no permission to read orders" in refused.text
    assert "grant READ" in refused.text
    assert (allowed.outcome, allowed.offset) == ("found", 0), allowed.text
