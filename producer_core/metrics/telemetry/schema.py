"""Encode and decode telemetry records of schema version 1; docs/reference/telemetry.md describes the schema for readers.

A record is one JSON object: `v`, `producer_id`, `sequence` (without gaps), `cluster_id`, `application` if the producer has
one, and the rows of each kind of `metrics.batch.KINDS` as arrays in the order of their tuples. A kind without rows may be left
out. A producer with a ledger adds `ledger` and `given_up` in the same form. A reader merges each (producer_id, sequence) once,
sets aside records with an unknown `v`, and ignores unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from producer_core.metrics.batch import Batch, ProducerRow

SCHEMA_VERSION = 1
HIGHEST = 2**53
"""The bound of the integers in a batch, in both directions: every JSON reader represents integers up to it exactly."""
_ADDED_KINDS = ("client_statistics", "broker_statistics")
"""Kinds of rows that were added later: older writers do not send them, and older readers ignore them."""
_RARE_FIELDS = ("ledger", "given_up", "first", "ledger_lost", "application")
"""Fields that are left out of most records."""


class UnknownVersion(ValueError):
    """Another version of producer_core wrote the record, in a form that this version does not read."""


def encode(batch: Batch) -> bytes:
    """Return the batch as the value of a record."""
    return orjson.dumps(
        {
            "v": SCHEMA_VERSION,
            "producer_id": batch.producer_id,
            "sequence": batch.sequence,
            "cluster_id": batch.cluster_id,
            "statistics": batch.statistics,
            "latencies": batch.latencies,
            "errors": batch.errors,
            "producer": None if batch.producer is None else batch.producer[:-1],
            **{name: getattr(batch, name) for name in _ADDED_KINDS if getattr(batch, name)},
            **{
                name: getattr(batch, name)
                for name in _RARE_FIELDS
                if getattr(batch, name) not in ((), None, 0, "")
            },
            **({"first": 0} if batch.first == 0 else {}),
        },
        default=list,  # named tuples as arrays
    )


def decode(value: bytes) -> Batch:
    """Return the batch of a record. Raise ValueError for an invalid record, UnknownVersion for one of another version."""
    from producer_core.metrics.ack_ledger import GivenUpRow, LedgerRow
    from producer_core.metrics.batch import KINDS, Batch

    try:
        data = orjson.loads(value)
        if data["v"] != SCHEMA_VERSION:
            raise UnknownVersion(f"telemetry version {data['v']}; only version {SCHEMA_VERSION} is supported")
        rows: dict[str, Any] = {
            name: tuple(
                kind.row(*row) for row in (data.get(name) or () if name in _ADDED_KINDS else data[name])
            )
            for name, kind in KINDS.items()
        }
        return Batch(
            data["producer_id"],
            data["sequence"],
            producer=_heartbeat(data),
            ledger=tuple(LedgerRow(*row) for row in data.get("ledger", ())),
            given_up=tuple(GivenUpRow(*row) for row in data.get("given_up", ())),
            first=data.get("first"),
            ledger_lost=data.get("ledger_lost", 0),
            **rows,
        )
    except (KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"not a telemetry record: {error}") from error


def _heartbeat(data: Mapping[str, Any]) -> ProducerRow | None:
    from producer_core.metrics.batch import ProducerRow

    if not data["producer"]:
        return None
    return ProducerRow(*data["producer"])._replace(application=data.get("application", ""))
