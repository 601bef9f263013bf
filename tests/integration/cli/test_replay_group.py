"""Test `dlq replay` on a real Apache Kafka as an operator uses it: dry run, prompts and results."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer, replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures.replays import dead_letter
from tests.integration.replay.test_runner import values_on
from tests.support import eventually

pytestmark = pytest.mark.kafka

COMMAND = (sys.executable, "-m", "producer_core.cli")


@pytest.fixture
def state(kafka, store):
    """Create a compacted topic on which two of five dead letters have a newer record with the same key."""
    topic = f"state-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=2, config={"cleanup.policy": "compact"})
    add_dead_letters(kafka, store, topic, range(5))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(2):
        producer.produce(topic, b"newer-%d" % number, key=b"k%d" % number)
    assert producer.flush(60) == 0
    return topic


def add_dead_letters(kafka, store, topic, numbers, **changes):
    now = time.time() - 600
    DeadLetters(store).add(
        [
            dead_letter(
                number, topic=topic, cluster_id=kafka.cluster_id, accepted_at=now, failed_at=now + 1,
                **{"key": b"k%d" % number, **changes},
            )
            for number in numbers
        ]
    )  # fmt: skip


def run(kafka, store, *arguments, answers=None):
    """Run the command with `answers` at a terminal, or without a terminal; with `kafka=None` it gets no address."""
    servers = [] if kafka is None else ["-b", kafka.bootstrap_servers]
    command = [*COMMAND, "dlq", "replay", *servers, "--store", str(store.path), *arguments]
    if answers is None:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, check=False
        )
    controller, terminal = pty.openpty()
    try:
        os.write(controller, "".join(f"{answer}\n" for answer in answers).encode())
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, stdin=terminal, check=False
        )
    finally:
        os.close(controller)
        os.close(terminal)


def test_a_dry_run_checks_the_topics_and_creates_no_operation(kafka, store, state):
    result = run(kafka, store, "--topic", state, "--dry-run")
    found = json.loads(run(kafka, store, "--topic", state, "--dry-run", "--json").stdout)

    assert result.returncode == 0, result.stderr
    assert "2, compacted" in result.stdout
    assert (
        f"2 records of {state} will be skipped: the topic has a newer record with the same key"
        in result.stdout
    )
    assert (found["total"], found["newer_keys"], found["skipped_newer"], found["safe"]) == (5, 2, 2, False)
    assert found["check"]["topics"][0]["looked_at"] == 2
    assert set(values_on(kafka, state)) == {"newer-0", "newer-1"}
    assert replay.list_operations(store) == []
    assert DeadLetters(store).count(DeadLetterFilter(state="dead")) == 5


def test_confirmed_prompts_skip_newer_keys_and_start_the_replay(kafka, store, state):
    result = run(kafka, store, "--topic", state, "--reason", "INC-4711", answers=["y", "y"])

    (operation,) = replay.list_operations(store)
    assert result.returncode == 1, result.stderr  # two were skipped
    assert (
        "The topic has newer records for the keys of 2 records. Keep these 2 records as dead letters?"
        in result.stdout + result.stderr
    )
    assert "Replay 5 dead letters" in result.stdout + result.stderr
    assert (operation.state, operation.acknowledged, operation.skipped) == ("done", 3, 2)
    assert (operation.newer, operation.reason, operation.delivery) == ("skip", "INC-4711", "exactly_once")
    assert values_on(kafka, state)["v0"] == 0
    assert values_on(kafka, state)["v4"] == 1


def test_the_operator_can_send_old_values_over_newer_ones(kafka, store, state):
    result = run(kafka, store, "--topic", state, answers=["n", "y"])

    assert result.returncode == 0, result.stderr
    assert values_on(kafka, state)["v0"] == 1


def test_declining_the_prompt_sends_nothing_and_releases_the_dead_letters(kafka, store, state):
    result = run(kafka, store, "--topic", state, "--newer", "skip", answers=["n"])

    (operation,) = replay.list_operations(store)
    assert result.returncode == 2
    assert (operation.state, operation.acknowledged) == ("cancelled", 0)
    assert DeadLetters(store).count(DeadLetterFilter(state="dead")) == 5


def test_a_live_producer_runs_the_replay_if_the_command_has_no_broker_address(kafka, store, state):
    with ReliableKafkaProducer(kafka.bootstrap_servers, store=store.path, cluster_id=kafka.cluster_id):
        eventually(lambda: replay.runners(store, time.time()))
        result = run(None, store, "--topic", state, answers=["y", "y"])

    (operation,) = replay.list_operations(store)
    assert result.returncode == 1, result.stderr  # two were skipped
    assert f"2 records of {state} will be skipped" in result.stdout
    assert (operation.state, operation.acknowledged, operation.skipped) == ("done", 3, 2)


def test_yes_skips_the_prompt_and_still_keeps_newer_values(kafka, store, state):
    result = run(kafka, store, "--topic", state, "--yes", "--json")

    found = json.loads(result.stdout)
    assert result.returncode == 1, result.stderr
    assert (found["acknowledged"], found["skipped"]) == (3, 2)
    assert "newer record" in found["reasons"][0]["text"]
    assert found["check"]["topics"][0]["newer_keys"] == 2


def test_a_failed_canary_stops_the_replay_and_the_rest_stays_dead(kafka, store):
    topic = f"small-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1, config={"max.message.bytes": "500"})
    noise = os.urandom(1_000)  # no compression makes it small enough
    add_dead_letters(kafka, store, topic, range(30), value=noise)

    result = run(kafka, store, "--topic", topic, "--yes", "--canary", "4", "--stop-percent", "20", "--json")

    found = json.loads(result.stdout)
    assert result.returncode == 1, result.stderr
    assert (found["state"], found["acknowledged"]) == ("stopped", 0)
    assert found["failed_again"] <= 4
    assert "canary" in found["message"]
    assert found["check"]["topics"][0]["too_large"] == 30
    assert DeadLetters(store).count(DeadLetterFilter(state="dead")) == 30


def test_a_dry_run_reports_a_deleted_topic(kafka, store):
    topic = f"gone-{uuid.uuid4().hex[:8]}"
    add_dead_letters(kafka, store, topic, range(3))

    result = run(kafka, store, "--topic", topic, "--dry-run")

    assert result.returncode == 0, result.stderr
    assert (
        f"3 records cannot be sent: the topic {topic} does not exist. They remain dead letters."
        in result.stdout
    )
    assert "no topic" in result.stdout
