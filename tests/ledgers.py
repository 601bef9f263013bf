"""Ledgers for tests: what was acknowledged, as a producer would have told it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from producer_core.metrics.ack_ledger import (
    NOTHING,
    GivenUpRow,
    LedgerRow,
    PriorCounts,
    rows_of,
    unplaced_rows,
)
from producer_core.metrics.batch import Batch, ProducerRow
from producer_core.metrics.batch_size import split
from producer_core.metrics.telemetry import encode


class Acked(NamedTuple):
    """One acknowledgement; an `offset` of None: nobody knows where."""

    session: uuid.UUID
    seq: int
    topic: str
    partition: int
    offset: int | None


def ledger_rows(acked: Iterable[Acked], *, before: PriorCounts = NOTHING) -> tuple[LedgerRow, ...]:
    """Rows as `Ledger.take` makes them of these."""
    places: dict[tuple[bytes, str, int], list[Acked]] = {}
    for one in acked:
        places.setdefault((one.session.bytes, one.topic, one.partition), []).append(one)
    rows: list[LedgerRow] = []
    for place, told in places.items():
        placed = [one for one in told if one.offset is not None]
        if placed:
            rows += rows_of(place, [one.seq for one in placed], [one.offset for one in placed], before=before)
        rows += unplaced_rows(place, [one.seq for one in told if one.offset is None])
    return tuple(rows)


def given_up(
    session: uuid.UUID, seq: int, topic: str, *, verdict: str = "not_sent", code: str = "_MSG_TIMED_OUT"
) -> GivenUpRow:
    return GivenUpRow(str(session), seq, topic, code, verdict, 1_700_000_000.0)


def producer_row(producer_id: str, cluster_id: str, now: float = 1_700_000_000.0) -> ProducerRow:
    return ProducerRow(
        producer_id, cluster_id, "client", "host", 1, "0.1.0", now, now, None, True, None, 0, 0, 0, 100, 1, None, False,
        "at_least_once", "{}",
    )  # fmt: skip


def ledger_batches(
    producer_id: str,
    acked: Iterable[Acked],
    *,
    cluster_id: str,
    sequence: int = 0,
    given: Iterable[GivenUpRow] = (),
    lost: int = 0,
) -> list[Batch]:
    """One batch, or several where it would be too large for a record; for `store.append` and `records`."""
    batch = Batch(
        producer_id,
        sequence,
        producer=producer_row(producer_id, cluster_id),
        ledger=ledger_rows(acked),
        given_up=tuple(given),
        ledger_lost=lost,
    )
    return split(batch)


def records(batches: Iterable[Batch]) -> Mapping[int, bytes]:
    """The values of the telemetry records, by batch; their key is the producer's id."""
    return {batch.sequence: encode(batch) for batch in batches}
