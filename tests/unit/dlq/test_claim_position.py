"""The position of a replay's claims: no pending record is before it, whatever happened to the last claim."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.claim_position import LAST, ClaimPosition
from producer_core.errors import StoreError
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.outcome import RecordOutcome
from producer_core.store import Store
from tests.fixtures.replays import CLUSTER, add_dead_letters, message_id

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
