"""Test a raw incident bundle on a real Apache Kafka: its dead letters are replayed from another store, each once."""

from __future__ import annotations

import time
import uuid

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.integration.cli.test_replay_group import add_dead_letters, run
from tests.integration.replay.test_runner import values_on

pytestmark = pytest.mark.kafka


def incident(*arguments):
    result = CliRunner().invoke(main, ["incident", *map(str, arguments)])
    assert result.exit_code == 0, result.output


def test_the_dead_letters_of_a_raw_bundle_are_replayed_from_another_store(kafka, store, tmp_path):
    """The topic already has one of them: the import finds it, and sends only the others."""
    topic = f"incident-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=2)
    add_dead_letters(kafka, store, topic, range(4))
    earlier = run(kafka, store, "--topic", topic, "--limit", "1", "--yes")
    assert earlier.returncode == 0, earlier.stderr
    with store.borrow(write=True) as connection:  # as if the copy had been made before this replay
        connection.execute(
            "UPDATE dead_letters SET state = 'dead', verdict = 'not_sent', landed_partition = NULL, landed_offset = NULL"
        )
    target, other = tmp_path / "INC-42.zip", tmp_path / "other.duckdb"
    incident(
        "export", "--since", f"@{time.time() - 3600}", "-o", target, "--raw", "--yes", "--store", store.path
    )
    incident("import", target, "--yes", "--store", other)
    result = run(kafka, Store.open(other), "--topic", topic, "--inconclusive", "send", "--yes")

    assert result.returncode == 0, result.stderr
    assert values_on(kafka, topic) == {f"v{number}": 1 for number in range(4)}
    assert DeadLetters(Store.open(other)).count(DeadLetterFilter(state="dead")) == 0
