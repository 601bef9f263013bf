"""The schema of telemetry records."""

from __future__ import annotations

import orjson

from producer_core.metrics.ack_ledger import entries
from producer_core.metrics.telemetry import decode, encode
from producer_core.store import Batch
from tests.fixtures.ledgers import SESSION, Acked, given_up, ledger_rows
from tests.fixtures.store_batches import heartbeat


def test_a_batch_with_a_ledger_survives_encoding_and_decoding():
    rows = ledger_rows([Acked(SESSION, 1, "orders", 0, 5), Acked(SESSION, 2, "orders", 0, None)])
    batch = Batch("p", 9, ledger=rows, given_up=(given_up(SESSION, 3, "orders"),), first=0, ledger_lost=4)
    found = decode(encode(batch))
    assert [list(entries(row)) for row in found.ledger] == [list(entries(row)) for row in rows]
    assert (found.given_up, found.first, found.ledger_lost, found.begins) == (batch.given_up, 0, 4, 0)
    assert [row[:10] for row in found.ledger] == [row[:10] for row in rows]


def test_a_record_has_the_application_in_a_field_that_earlier_readers_ignore():
    named, unnamed = heartbeat("p", 1, application="checkout"), heartbeat("p", 1)

    assert orjson.loads(encode(named))["application"] == "checkout"
    assert "application" not in orjson.loads(encode(unnamed))
    assert orjson.loads(encode(named))["producer"] == orjson.loads(encode(unnamed))["producer"]
    assert [decode(encode(one)).application for one in (named, unnamed)] == ["checkout", ""]
