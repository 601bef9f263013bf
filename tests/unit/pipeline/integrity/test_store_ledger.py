"""The store's ledger as an audit reads it: one topic of one cluster, in slices, ordered by the time of the merge."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from producer_core.pipeline.integrity.ledger_sources import read_until
from producer_core.pipeline.integrity.store_ledger import slices
from producer_core.store import Batch, Store
from tests.fixtures.ledgers import Acked, given_up, ledger_rows, producer_row

SESSION = uuid.UUID("018bcfe5-6800-7000-8000-000000000001")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    return Store.open(tmp_path / "s.duckdb", clock=clock)


def batch(number, seqs, topic="orders", *, partition=0, cluster="c", producer="p", at=1000.0, **more):
    return Batch(
        producer,
        number,
        producer=producer_row(producer, cluster, at),
        ledger=ledger_rows([Acked(SESSION, seq, topic, partition, 10 * seq) for seq in seqs]),
        **more,
    )


def fetched(store, **choices):
    return [table.to_pylist() for table in slices(store, "orders", "c", **choices)]


def test_only_the_ledger_of_the_topic_in_its_cluster_is_fetched(store):
    store.append(batch(0, range(5)), batch(1, range(5, 9), "payments"))
    store.append(batch(0, range(5), cluster="other", producer="q"))
    ((row,),) = fetched(store)
    assert (row["producer_id"], row["sequence"], row["cluster_id"]) == ("p", 0, "c")
    assert [entry[1:3] + entry[10:] for entry in row["ledger"]] == [
        ["orders", "0", "[0,1,1,1,1]", "[0,10,10,10,10]"]
    ]


def test_another_topics_rows_in_a_shared_window_come_without_offsets(store):
    shared = [*ledger_rows([Acked(SESSION, 0, "orders", 0, 7), Acked(SESSION, 1, "orders", 1, 8)]),
              *ledger_rows([Acked(SESSION, 2, "payments", 0, 9), Acked(SESSION, 5000, "payments", 0, 10)])]  # fmt: skip
    store.append(Batch("p", 0, ledger=tuple(shared)))
    ((row,),) = fetched(store)
    assert sorted((entry[1], entry[3], entry[8], entry[10], entry[11]) for entry in row["ledger"]) == [
        ("orders", "0", "7", "[0]", "[7]"),
        ("orders", "0", "8", "[1]", "[8]"),
        ("payments", "0", "-1", "[2]", "[]"),
    ]


def test_a_batch_that_was_merged_late_is_new_to_the_next_audit(store, clock):
    """The watermark is close to the start of the last audit: the batch was written before it and merged after it."""
    clock.now = 5000.0
    store.append(batch(0, range(5), at=4000.0))
    ((row,),) = fetched(store)
    assert row["position"] >= read_until([], 4500.0)["store"][0]
    assert row["at"] == 4000.0


def test_a_batch_without_a_cluster_gets_the_one_that_its_producer_reported_later(store):
    store.append(batch(0, range(5), cluster="other", producer="q"))
    store.append(batch(0, range(3), cluster=""), batch(0, range(3), cluster="", producer="q2"))
    store.append(batch(1, range(3, 6)), batch(1, range(3, 6), cluster="other", producer="q2"))
    store.append(batch(0, range(5), cluster="", producer="unknown"))
    assert [(row["producer_id"], row["sequence"], row["cluster_id"]) for (*rows,) in fetched(store) for row in
                    sorted(rows, key=lambda row: (row["producer_id"], row["sequence"]))] == [
                ("p", 0, "c"), ("p", 1, "c"), ("unknown", 0, "")
            ]  # fmt: skip


@pytest.mark.slow
def test_a_ledger_is_read_in_slices_of_whole_merges_with_the_store_free_between_them(store, clock):
    for number in range(20):
        clock.now += 1.0
        store.append(
            batch(number, range(number * 10, number * 10 + 10), given_up=(given_up(SESSION, 900, "orders"),))
        )

    sizes, numbers = [], []
    for table in slices(store, "orders", "c", size=40):
        with store.borrow(write=True, timeout=0.1):
            rows = table.to_pylist()
        sizes.append(sum(int(entry[4]) for row in rows for entry in row["ledger"]))
        numbers += [row["sequence"] for row in rows]
        assert all(len(row["given_up"]) == 1 for row in rows)
    assert sorted(numbers) == list(range(20))
    assert len(sizes) >= 5 and max(sizes) <= 50


def test_given_up_messages_are_fetched_without_a_ledger(store):
    store.append(Batch("p", 0, given_up=(given_up(SESSION, 3, "orders"), given_up(SESSION, 4, "payments"))))
    ((row,),) = fetched(store)
    assert row["ledger"] is None and [dead_letter[1] for dead_letter in row["given_up"]] == ["3"]


def test_an_empty_ledger_has_no_slice(store):
    assert fetched(store) == []
