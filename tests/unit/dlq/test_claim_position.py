"""The position of a replay's claims: no pending record is before it, whatever happened to the last claim."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters, claim_and_settle, lookup
from producer_core.dlq.claim_position import LAST, ClaimPosition
from producer_core.errors import StoreError
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.outcome import RecordOutcome
from producer_core.store import Store
from tests.fixtures.replays import CLUSTER, add_dead_letters, dead_letter, message_id

COUNT = 12
EVERYTHING = (0, LAST)


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    add_dead_letters(store, COUNT)
    return store


@pytest.fixture
def operation(store):
    return replay.plan(store, DeadLetterFilter(), who="me", origin="python", can_run=CLUSTER).operation_id


@pytest.fixture
def claims(store, operation):
    claims = ReplayClaims(store, operation, "me", lease=60, clock=lambda: 1_800_000_000.0)
    assert claims.take()
    return claims


@pytest.fixture(params=["index", "scan"])
def batches(monkeypatch, request):
    """Claims of five records and more are batches, whose rows are found by the index or by a scan."""
    monkeypatch.setattr(claim_and_settle, "MIN_BATCH", 5)
    monkeypatch.setattr(lookup, "_ALWAYS_INDEXED", 0 if request.param == "scan" else 100)


def claim(claims, want, outcomes=(), **options):
    update = claims.settle_and_claim(list(outcomes), want=want, busy=True, **options)
    return [one.message_id for one in update.dead_letters]


def ids(*numbers):
    return [message_id(number) for number in numbers]


def test_a_claim_searches_only_the_next_records():
    position = ClaimPosition()
    assert position.ranges(5) == [EVERYTHING]

    position.claimed(7)
    assert position.ranges(5) == [(8, 12), EVERYTHING]

    position.forget()
    assert position.ranges(5) == [EVERYTHING]


def test_claims_follow_the_order_of_the_operation(claims):
    assert claim(claims, 5) + claim(claims, 3) + claim(claims, 9) == ids(*range(COUNT))
    assert claim(claims, 9) == []


def test_a_returned_record_is_claimed_first(claims):
    first = claim(claims, 6)
    returned = [RecordOutcome(one, "pending") for one in first[1:3]]

    assert claim(claims, 4, returned) == []  # the update that returns a record claims none
    assert claim(claims, 4) == ids(1, 2, 6, 7)


def test_a_claim_that_is_rolled_back_is_made_again_in_order(claims, monkeypatch):
    assert claim(claims, 3) == ids(0, 1, 2)

    def fail(*_):
        raise StoreError("no space")

    with monkeypatch.context() as patched, pytest.raises(StoreError):
        patched.setattr(claims, "_skip", fail)
        claim(claims, 4)

    assert claim(claims, 4) == ids(3, 4, 5, 6)


def test_records_behind_a_gap_of_skipped_ones_are_found(claims, store):
    assert claim(claims, 2) == ids(0, 1)
    with store.borrow(write=True) as connection:
        connection.execute(
            "UPDATE operation_records SET state = 'skipped' WHERE message_id IN ?", [ids(2, 3, 4)]
        )

    assert claim(claims, 2) == ids(5, 6)


def test_dead_letters_handled_elsewhere_are_skipped_and_the_next_ones_claimed(claims, store, operation):
    assert claim(claims, 2) == ids(0, 1)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET state = 'archived' WHERE message_id IN ?", [ids(2, 3)])

    assert claim(claims, 2) == []
    assert claim(claims, 2) == ids(4, 5)
    assert replay.get(store, operation).skipped == 2


@pytest.mark.usefixtures("batches")
def test_batches_in_the_order_of_the_store_are_complete(claims, store):
    batches = [claims.settle_and_claim([], want=6, busy=True).dead_letters for _ in range(2)]

    assert [one.message_id for batch in batches for one in batch] == ids(*range(COUNT))
    assert all(one.value == dead_letter(number).value for number, one in enumerate(batches[1], 6))


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize(
    "order", [range(39, -1, -1), [*range(20, 40), *range(20)], [*range(0, 40, 2), *range(1, 40, 2)]]
)
def test_batches_in_another_order_than_the_store_are_complete(tmp_path, order):
    store = Store.open(tmp_path / "other.duckdb")
    DeadLetters(store).add([dead_letter(number) for number in order])
    operation = replay.plan(store, DeadLetterFilter(), who="me", origin="python", can_run=CLUSTER)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=60, clock=lambda: 1_800_000_000.0)
    assert claims.take()

    records = [one for _ in range(8) for one in claims.settle_and_claim([], want=5, busy=True).dead_letters]

    assert [one.message_id for one in records] == ids(*range(40))
    assert [one.value for one in records] == [dead_letter(number).value for number in range(40)]


@pytest.mark.usefixtures("batches")
def test_a_dead_letter_that_was_stored_again_elsewhere_is_claimed(claims, store):
    assert claim(claims, 6) == ids(*range(6))
    with store.borrow(write=True) as connection:
        for table in ("dead_letters", "dead_letter_bodies"):
            connection.execute(f"DELETE FROM {table} WHERE message_id = ?", ids(7))
    DeadLetters(store).add([dead_letter(number) for number in [*range(50, 90), 7]])

    assert claim(claims, 6) == ids(*range(6, 12))
