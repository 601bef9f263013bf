"""Acknowledged batches of a replay: settled by one join, with the same result as single records."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from producer_core import replay
from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import DeadLetterFilter, DeadLetters, claim_and_settle
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.outcome import AcknowledgedBatch, RecordOutcome
from producer_core.store import Store
from tests.fixtures.replays import CLUSTER, add_dead_letters, dead_letter, message_id, records, states
from tests.unit.dlq.test_count import assert_counts

NOW = 1_800_000_000.0
COUNT = 30


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


@pytest.fixture(params=[0, 400])
def operation(store, monkeypatch, request):
    """Plan a replay whose claims are batches from five records on, with and without the counting trigger."""
    monkeypatch.setattr(claim_and_settle, "MIN_BATCH", 5)
    monkeypatch.setattr("producer_core.store.dead_letter_counts._TRIGGER_LIMIT", request.param)
    add_dead_letters(store, COUNT)
    return replay.plan(store, DeadLetterFilter(), who="me", origin="python", can_run=CLUSTER)


@pytest.fixture
def claims(store, operation):
    own = ReplayClaims(store, operation.operation_id, "me", lease=60, clock=lambda: NOW)
    assert own.take()
    return own


def claimed(claims: ReplayClaims, want: int = 20) -> RecordBatch:
    batch = claims.settle_and_claim([], want=want, busy=False).dead_letters
    assert isinstance(batch, RecordBatch)
    return batch


def acknowledged(batch: RecordBatch) -> AcknowledgedBatch:
    return AcknowledgedBatch(batch, [3] * len(batch), range(100, 100 + len(batch)))


def settled_columns(store):
    """Return what a settlement writes, in the order of the records."""
    with store.borrow() as connection:
        return connection.execute(
            """SELECT letters.state, letters.operation_id, state_at, landed_partition, landed_offset, replay_count,
                      quarantined, verdict, records.state, text, settled_at
               FROM dead_letters AS letters JOIN operation_records AS records USING (message_id) ORDER BY ord"""
        ).fetchall()


def test_a_batch_settles_like_single_records(store, operation, claims):
    first, second = claimed(claims, 10), claimed(claims, 10)
    single = [
        RecordOutcome(one.message_id, "acknowledged", None, 3, 100 + at) for at, one in enumerate(second)
    ]
    claims.settle_and_claim(single, acknowledged=[acknowledged(first)], want=0, busy=True)

    columns = settled_columns(store)
    assert columns[:10] == columns[10:20]
    assert Counter(states(store).values()) == {"replayed": 20, "dead": 10}
    assert replay.get(store, operation.operation_id).acknowledged == 20
    assert_counts(store)


def test_each_dead_letter_gets_its_own_position(store, operation, claims):
    batch = claimed(claims)
    claims.settle_and_claim([], acknowledged=[acknowledged(batch)], want=0, busy=False)

    with store.borrow() as connection:
        found = connection.execute(
            "SELECT message_id, landed_partition, landed_offset FROM dead_letters WHERE state = 'replayed'"
        ).fetchall()
    assert sorted(found) == sorted((one.message_id, 3, 100 + at) for at, one in enumerate(batch))
    assert {state for state, _ in records(store, operation).values()} == {"acknowledged", "pending"}
    assert_counts(store)


def test_dead_letters_whose_rows_moved_are_found_by_their_ids(store, claims):
    batch = claimed(claims)
    with store.borrow(write=True) as connection:  # new row ids, in the opposite order
        connection.execute("CREATE TEMP TABLE moved AS SELECT * FROM dead_letters ORDER BY rowid DESC")
        connection.execute("DELETE FROM dead_letters")
        connection.execute("INSERT INTO dead_letters SELECT * FROM moved")
    claims.settle_and_claim([], acknowledged=[acknowledged(batch)], want=0, busy=False)

    with store.borrow() as connection:
        found = dict(
            connection.execute(
                "SELECT message_id, landed_offset FROM dead_letters WHERE state = 'replayed'"
            ).fetchall()
        )
    assert found == {one.message_id: 100 + at for at, one in enumerate(batch)}
    assert_counts(store)


def test_a_batch_that_is_settled_twice_counts_once(store, operation, claims):
    batch = acknowledged(claimed(claims))
    claims.settle_and_claim([], acknowledged=[batch], want=0, busy=True)
    claims.settle_and_claim([], acknowledged=[batch], want=0, busy=True)

    assert replay.get(store, operation.operation_id).acknowledged == 20
    assert_counts(store)


def test_a_dead_letter_that_failed_again_meanwhile_stays_dead(store, claims):
    batch = claimed(claims)
    late = dead_letter(0, failed_at=NOW + 5)
    DeadLetters(store).add([late])
    claims.settle_and_claim([], acknowledged=[acknowledged(batch)], want=0, busy=False)

    assert states(store)[late.message_id] == "dead"
    assert Counter(states(store).values()) == {"replayed": 19, "dead": 11}
    assert_counts(store)


def test_without_the_lease_a_batch_changes_nothing(store, operation, claims):
    batch = claimed(claims)
    store.execute("replay_let_go", operation=operation.operation_id, owner="me")

    assert claims.settle_and_claim([], acknowledged=[acknowledged(batch)], want=0, busy=False).over
    assert Counter(states(store).values()) == {"replaying": 20, "dead": 10}


@pytest.mark.slow
def test_a_batch_is_claimed_and_settled_across_a_row_group_of_duckdb(store):
    """With the trigger, DuckDB fails if it inserts the changed rows again and they cross a multiple of 122,880."""
    add_dead_letters(store, 7)  # the first chunk of 2,048 rows has rows that stay unchanged
    DeadLetters(store).add([dead_letter(7, topic="many")])
    ids = [message_id(number) for number in range(8, 8 + 122_899)]
    with store.borrow(write=True) as connection:
        connection.execute(
            "INSERT INTO dead_letters SELECT one.* REPLACE (unnest(?) AS message_id) FROM dead_letters AS one "
            "WHERE topic = 'many'",
            [ids],
        )
    planned = replay.plan(store, DeadLetterFilter(topic="many"), who="me", origin="python", can_run=CLUSTER)
    claims = ReplayClaims(store, planned.operation_id, "me", lease=60, clock=lambda: NOW)
    assert claims.take()

    batch = claimed(claims, 130_000)
    claims.settle_and_claim([], acknowledged=[acknowledged(batch)], want=0, busy=False)

    assert Counter(states(store).values()) == {"replayed": 122_900, "dead": 7}
    assert replay.get(store, planned.operation_id).acknowledged == 122_900
    assert_counts(store)


KILLED = """
import os, sys
from producer_core.dlq import claim_and_settle
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.outcome import AcknowledgedBatch
from producer_core.store import Store, connection_pool, dead_letter_counts
path, operation, moment = sys.argv[1:]
claim_and_settle.MIN_BATCH, dead_letter_counts._TRIGGER_LIMIT = 5, 0
claims = ReplayClaims(Store.open(path), operation, "me", lease=60, clock=lambda: 1_800_000_000.0)
assert claims.take()
batch = claims.settle_and_claim([], want=20, busy=False).dead_letters
def die(*_, **__):
    os._exit(9)
if moment == "before the commit":
    ReplayClaims._count = die
else:
    connection_pool.ConnectionPool._detach = die
sent = AcknowledgedBatch(batch, [3] * len(batch), range(100, 100 + len(batch)))
claims.settle_and_claim([], acknowledged=[sent], want=0, busy=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "left"), [("before the commit", {"replaying": 20}), ("after the commit", {"replayed": 20})]
)
def test_a_kill_settles_the_whole_batch_or_leaves_it_claimed(store, moment, left):
    add_dead_letters(store, 20)
    planned = replay.plan(store, DeadLetterFilter(), who="me", origin="python", can_run=CLUSTER)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(store.path), planned.operation_id, moment], check=False
    )

    assert killed.returncode == 9
    assert Counter(states(store).values()) == left
    assert replay.get(store, planned.operation_id).acknowledged == left.get("replayed", 0)
    successor = ReplayClaims(store, planned.operation_id, "next", lease=60, clock=lambda: NOW)
    assert len(successor.orphans()) == left.get("replaying", 0)
    assert_counts(store)
