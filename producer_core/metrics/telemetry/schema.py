"""The schema of a telemetry record, version 1; docs/telemetry.md describes it for readers.

One JSON object a record: `v`, `producer_id`, `sequence` (dense), `cluster_id`, and the rows of each kind of
`store.batch.KINDS` as arrays in the order of their tuples; a kind without rows may be left out. Where a ledger is kept,
`ledger` and `given_up` likewise. A reader merges a batch once by (producer_id, sequence), sets aside what has a `v` that
it does not know, and passes over names that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from producer_core.metrics.batch import Batch

SCHEMA_VERSION = 1
HIGHEST = 2**53
"""No whole number of a batch is beyond it, either way: up to here every reader of JSON has the same."""
_LATER = ("client_statistics", "broker_statistics")
"""Kinds of rows that came after the first: older writers do not send them, older readers pass them over."""
_SELDOM = ("ledger", "given_up", "first", "ledger_lost")
"""Fields of a batch that most do not have."""


def encode(batch: Batch) -> bytes:
    """The batch as the value of a record."""
    return orjson.dumps(
        {
            "v": SCHEMA_VERSION,
            "producer_id": batch.producer_id,
            "sequence": batch.sequence,
            "cluster_id": batch.cluster_id,
            "statistics": batch.statistics,
            "latencies": batch.latencies,
            "errors": batch.errors,
            "producer": batch.producer,
            **{name: getattr(batch, name) for name in _LATER if getattr(batch, name)},
            **{name: getattr(batch, name) for name in _SELDOM if getattr(batch, name) not in ((), None, 0)},
            **({"first": 0} if batch.first == 0 else {}),
        },
        default=list,  # named tuples as arrays
    )


def decode(value: bytes) -> Batch:
    """The batch of a record; ValueError for what is none, or of a version that this code does not know."""
    from producer_core.metrics.ack_ledger import GivenUpRow, LedgerRow
    from producer_core.metrics.batch import KINDS, Batch, ProducerRow

    try:
        data = orjson.loads(value)
        if data["v"] != SCHEMA_VERSION:
            raise ValueError(f"telemetry of version {data['v']}, this code knows {SCHEMA_VERSION}")
        rows: dict[str, Any] = {
            name: tuple(kind.row(*row) for row in (data.get(name) or () if name in _LATER else data[name]))
            for name, kind in KINDS.items()
        }
        return Batch(
            data["producer_id"],
            data["sequence"],
            producer=ProducerRow(*data["producer"]) if data["producer"] else None,
            ledger=tuple(LedgerRow(*row) for row in data.get("ledger", ())),
            given_up=tuple(GivenUpRow(*row) for row in data.get("given_up", ())),
            first=data.get("first"),
            ledger_lost=data.get("ledger_lost", 0),
            **rows,
        )
    except (KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"not a telemetry record: {error}") from error
