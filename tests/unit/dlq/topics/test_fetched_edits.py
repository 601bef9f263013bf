"""An edit and its original on one dead-letter topic: another store that reads both replays only the edit."""

from __future__ import annotations

import json
import time

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.revisions.revision import revised_dead_letters
from producer_core.dlq.topics import DeadLetterRecord, SourceTopic, write
from producer_core.dlq.topics.fetcher import _FetchJob
from producer_core.store import Store
from tests.fixtures.edits import add, edit, fields, json_dead_letter, state_of

ANN = {"who": "ann", "origin": "python"}


def published(store, message_id):
    """Return a dead letter as a record of a dead-letter topic, as a producer publishes it."""
    with store.borrow() as connection:
        (one,) = revised_dead_letters(connection, DeadLetters(store).bodies([message_id]))
    return DeadLetterRecord(0, 1, one.key, one.value, tuple(write(one)), 1_700_000_000_000)


def fetch(store, record):
    source = SourceTopic("cluster-1", "orders-dlt", "topic-id")
    job = _FetchJob(store, source, "ann", "python", None, time.time)
    job.pending.append(record)
    job._store_slice()


@pytest.mark.parametrize("edit_first", [False, True])
def test_a_store_that_reads_an_original_and_its_edit_replays_the_edit_only(tmp_path, edit_first):
    store, other = Store.open(tmp_path / "from.duckdb"), Store.open(tmp_path / "to.duckdb")
    (one,) = add(store, json_dead_letter(1, {"amount": 1}, verdict="possibly_persisted"))
    original = published(store, one)
    new = edit(store, fields({"amount": 7}), one).replacements[one]
    records = [original, published(store, new)]

    for record in reversed(records) if edit_first else records:
        fetch(other, record)

    assert (state_of(other, one), state_of(other, new)) == ("archived", "dead")
    assert json.loads(DeadLetters(other).get(new).value) == {"amount": 7}
    assert DeadLetters(other).restore(DeadLetterFilter(ids=(one,), state="archived"), **ANN).count == 0
    operation = replay.plan(other, DeadLetterFilter(), **ANN, can_run=True)
    planned = [row["message_id"] for row in other.rows("operation_records", operation=operation.operation_id)]
    assert planned == [new]
