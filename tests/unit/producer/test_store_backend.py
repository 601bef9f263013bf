"""A producer and its store: the ledger, and statistics after a restart."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.errors import ConfigError
from producer_core.store import Store
from producer_core.testing import InMemoryTransport


def run(path, count=300, **options):
    made = []
    producer = ReliableKafkaProducer(
        "nowhere:9092",
        store=path,
        transport=InMemoryTransport.factory(made, **options.pop("broker", {})),
        **options,
    )
    for number in range(count):
        producer.send_message("orders", {"n": number}, key=str(number % 7))
    producer.close()
    return producer, made[0]


def in_store(path):
    with Store.open(path).borrow() as connection:
        rows = connection.execute(
            "SELECT session, topic, partition, seqs, offs, count, late FROM ledger"
        ).fetchall()
        given_up_rows = connection.execute(
            "SELECT session, seq, code, verdict FROM ledger_given_up"
        ).fetchall()
    return rows, given_up_rows


@pytest.mark.slow
def test_a_producer_with_ledger_enabled_keeps_it_in_the_store(tmp_path):
    producer, broker = run(tmp_path / "s.duckdb", ledger=True, broker={"script": lambda delivery: "MSG_SIZE_TOO_LARGE" if delivery.seq == 17 else None})  # fmt: skip
    rows, given_up_rows = in_store(tmp_path / "s.duckdb")

    acknowledgements = {}
    for session, _, _, seqs, offs, _, _ in rows:
        assert session == producer.identity
        offset = seq = 0
        for seq_step, offset_step in zip(seqs, offs, strict=True):
            seq, offset = seq + seq_step, offset + offset_step
            acknowledgements[seq] = offset
    assert acknowledgements == {delivery.seq: offset for offset, delivery in enumerate(broker.log["orders"])}
    assert len(acknowledgements) == 299
    assert given_up_rows == [(producer.identity, 17, "MSG_SIZE_TOO_LARGE", given_up_rows[0][3])]


def test_a_producer_keeps_no_ledger_by_default(tmp_path):
    run(tmp_path / "s.duckdb")
    assert in_store(tmp_path / "s.duckdb") == ([], [])


def test_a_ledger_needs_a_store():
    with pytest.raises(ConfigError, match="A ledger needs a store"):
        ReliableKafkaProducer("nowhere:9092", store=None, ledger=True, transport=InMemoryTransport.factory())


@pytest.mark.slow
def test_statistics_after_a_restart_with_a_journal_are_added_to_the_earlier_ones(tmp_path):
    for _ in range(3):
        run(tmp_path / "s.duckdb", 100, journal_dir=tmp_path / "j", ledger=True)
    with Store.open(tmp_path / "s.duckdb").borrow() as connection:
        assert connection.execute("SELECT sum(acknowledged) FROM statistics").fetchone() == (300,)
        assert connection.execute("SELECT sum(count), count(DISTINCT session) FROM ledger").fetchone() == (
            300,
            3,
        )
        ranges = connection.execute(
            "SELECT first_batch, count(*) FROM merged_batches GROUP BY ALL"
        ).fetchall()
    assert ranges == [(0, 3)]  # each start has its own session, whose batches have no gaps


def test_the_store_names_a_producers_journal_so_that_its_next_producer_is_recognized(tmp_path):
    for _ in range(2):
        run(tmp_path / "s.duckdb", 1, journal_dir=tmp_path / "j")

    with Store.open(tmp_path / "s.duckdb").borrow(write=True) as connection:
        connection.execute("UPDATE producers SET closed_at = NULL")  # as after a kill
    rows = Store.open(tmp_path / "s.duckdb").rows("alerts_producers", since=0.0, closed_since=0.0)
    assert [row["succeeded"] for row in sorted(rows, key=lambda row: row["started_at"])] == [True, False]
