"""Records of a replay as columns and as rows: the same records are sent, and the same outcomes are stored."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core import replay
from producer_core.delivery.dead_letter import delivery_of
from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import DeadLetterFilter, DeadLetters, claim_and_settle
from producer_core.messages import ORIGINAL_TIMESTAMP
from producer_core.replay.claims import BYTES, ReplayClaims
from producer_core.replay.outcome import AcknowledgedBatch
from producer_core.store import Store
from tests.fixtures.replays import CLUSTER, dead_letter, replay_record, states
from tests.unit.delivery.test_record_batch import batch_of, sent_as_rows
from tests.unit.dlq.test_count import assert_counts

NOW = 1_800_000_000.0
ALL = DeadLetterFilter()

contents = (
    st.none() | st.binary(max_size=12) | st.sampled_from([b"\xff\xfe\x00", "schlüssel".encode(), b"{}"])
)
names = st.sampled_from(["trace", "", "名", "pc-id", ORIGINAL_TIMESTAMP])
changes = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["orders", "payments"]),
        "key": contents,
        "value": contents,
        "headers": st.lists(st.tuples(names, contents), max_size=3).map(tuple),
        "partition": st.none() | st.integers(0, 2**31 - 1),
        "timestamp_ms": st.none() | st.integers(0, 2**50),
        "accepted_at": st.floats(0, 4e9),
    }
)


@settings(deadline=None, max_examples=60)
@given(st.lists(changes, min_size=1, max_size=8))
def test_columns_send_the_same_records_as_rows(varied):
    records = [replay_record(number, **each) for number, each in enumerate(varied)]

    assert list(batch_of(records)) == records
    assert list(batch_of(records).produce_rows()) == sent_as_rows(records)


@pytest.fixture
def claims_of(tmp_path, monkeypatch):
    """Add dead letters to a new store, plan a replay of all, and claim it as rows or as columns."""

    def make(name, dead_letters, *, columns, trigger_limit=400):
        monkeypatch.setattr(claim_and_settle, "MIN_BATCH", 1 if columns else 10**9)
        monkeypatch.setattr("producer_core.store.dead_letter_counts._TRIGGER_LIMIT", trigger_limit)
        store = Store.open(tmp_path / f"{name}.duckdb", clock=lambda: NOW)
        DeadLetters(store).add(dead_letters)
        operation = replay.plan(store, ALL, who="me", origin="python", can_run=CLUSTER)
        claims = ReplayClaims(store, operation.operation_id, "me", lease=60, clock=lambda: NOW)
        assert claims.take()
        return store, claims

    return make


def claim(claims, want=1_000):
    return claims.settle_and_claim([], want=want, busy=False).dead_letters


def random_dead_letters(count):
    chance = random.Random(3)
    some = (None, b"", b"\xff\x00\xfe", "schlüssel".encode(), b"v" * 300)
    for number in range(count):
        headers = [(chance.choice(("trace", "", "名")), chance.choice(some)) for _ in range(number % 4)]
        yield dead_letter(
            number,
            topic=chance.choice(("orders", "payments")),
            key=chance.choice(some),
            value=chance.choice(some),
            headers=tuple(headers),
            partition=chance.choice((None, 0, 7)),
            timestamp_ms=chance.choice((None, 1_700_000_000_123)),
            accepted_at=chance.uniform(1e9, 2e9),
        )


def test_the_store_returns_the_same_records_as_columns_and_as_rows(claims_of):
    dead_letters = list(random_dead_letters(80))
    rows = claim(claims_of("rows", dead_letters, columns=False)[1])
    columns = claim(claims_of("columns", dead_letters, columns=True)[1])

    assert isinstance(columns, RecordBatch)
    assert list(columns) == list(rows)
    assert list(columns.produce_rows()) == [
        (one.topic, one.value, one.key, one.partition, one.record_headers) for one in map(delivery_of, rows)
    ]
    assert columns.size == sum(one.size for one in rows)


@pytest.mark.parametrize("verdict", ["possibly_persisted", "inconclusive"])
def test_a_batch_with_a_doubtful_record_is_claimed_as_rows(claims_of, verdict):
    dead_letters = [dead_letter(0), dead_letter(1, verdict=verdict), dead_letter(2)]
    claimed = claim(claims_of("doubtful", dead_letters, columns=True)[1])

    assert not isinstance(claimed, RecordBatch)
    assert {one.verdict for one in claimed} <= {"rejected", verdict}


@pytest.mark.slow
def test_a_claim_of_large_values_is_bounded_by_bytes(claims_of):
    dead_letters = [dead_letter(number, value=b"x" * 5_000_000) for number in range(8)]
    claimed = claim(claims_of("large", dead_letters, columns=True)[1], 20_000)

    assert isinstance(claimed, RecordBatch)
    assert len(claimed) == 6
    assert claimed.size <= BYTES
    assert claimed.table.nbytes < BYTES + 10_000
    assert len(claimed.first(20_000, 8 * 1024 * 1024)) == 1


def unclaimed(store, claims, ids):
    assert DeadLetters(store, clock=lambda: NOW).unclaim(claims.operation_id, ids) == ids


def archived(store, claims, ids):
    unclaimed(store, claims, ids)
    assert (
        DeadLetters(store, clock=lambda: NOW)
        .archive(DeadLetterFilter(ids=tuple(ids)), who="me", origin="python")
        .count
        == 3
    )


def purged(store, claims, ids):
    archived(store, claims, ids)
    own, where = (
        DeadLetters(store, clock=lambda: NOW + 10),
        DeadLetterFilter(ids=tuple(ids), state="archived"),
    )
    phrase = own.purge_phrase(where, min_age=-60)
    assert own.purge(where, who="me", origin="python", confirmation=phrase, min_age=-60).count == 3


def claimed_by_another(store, claims, ids):
    unclaimed(store, claims, ids)
    assert DeadLetters(store, clock=lambda: NOW).claim("another", ids) == ids


def failed_again(store, claims, ids):
    DeadLetters(store, clock=lambda: NOW).add([dead_letter(number, failed_at=NOW + 5) for number in range(3)])


def deleted(store, claims, ids):
    with store.borrow(write=True) as connection:
        connection.execute("DELETE FROM dead_letters WHERE message_id IN (SELECT unnest(?))", [ids])


def settled_columns(store):
    with store.borrow() as connection:
        return connection.execute(
            """SELECT records.message_id, letters.state, letters.operation_id = records.operation_id, state_at,
                      landed_partition, landed_offset, replay_count, quarantined, verdict, records.state, text, settled_at
               FROM operation_records AS records LEFT JOIN dead_letters AS letters USING (message_id) ORDER BY ord"""
        ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("trigger_limit", [0, 400])
@pytest.mark.parametrize(
    "change",
    [unclaimed, archived, purged, claimed_by_another, failed_again, deleted],
    ids=lambda one: one.__name__,
)
def test_a_change_between_claim_and_settlement_ends_alike_for_columns_and_rows(
    claims_of, change, trigger_limit
):
    found = {}
    for name in ("rows", "columns"):
        columns = name == "columns"
        store, claims = claims_of(
            name, [dead_letter(n) for n in range(10)], columns=columns, trigger_limit=trigger_limit
        )
        batch = claim(claims)
        change(store, claims, [one.message_id for one in batch[:3]])

        sent = batch if columns else batch_of(list(batch))
        acknowledged = AcknowledgedBatch(sent, [3] * 10, range(100, 110))
        if columns:
            claims.settle_and_claim([], acknowledged=[acknowledged], want=0, busy=False)
        else:
            claims.settle_and_claim(acknowledged.outcomes(), want=0, busy=False)

        assert_counts(store)
        found[name] = (settled_columns(store), states(store), claims.get().acknowledged)

    assert found["columns"] == found["rows"]
    assert Counter(found["columns"][1].values())["replayed"] == 7


@pytest.mark.slow
def test_an_equal_message_id_in_another_store_is_settled_only_there(claims_of):
    dead_letters = [dead_letter(number) for number in range(5)]
    (first, own), (second, other) = (claims_of(name, dead_letters, columns=True) for name in ("a", "b"))
    batch, _ = claim(own), claim(other)

    own.settle_and_claim([], acknowledged=[AcknowledgedBatch(batch, [0] * 5, range(5))], want=0, busy=False)

    assert set(states(first).values()) == {"replayed"}
    assert set(states(second).values()) == {"replaying"}
