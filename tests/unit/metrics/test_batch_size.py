"""Batches are split into records of a bounded size, and summed by minute."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.metrics.batch import Batch, ErrorRow, LatencyRow, StatisticsRow
from producer_core.metrics.batch_size import LIMIT, split, sum_by_minute
from producer_core.metrics.telemetry import encode
from tests.fixtures.ledgers import SESSION, Acked, given_up, ledger_rows


@settings(max_examples=25)
@given(st.integers(1, 40_000), st.integers(1, 7), st.integers(0, 9))
def test_a_batch_is_split_into_records_of_bounded_size_without_losing_rows(count, partitions, seed):
    rng = random.Random(seed)
    acknowledgements = [
        Acked(SESSION, seq, "o" * 200, rng.randrange(partitions), seq * rng.randrange(1, 9))
        for seq in range(count)
    ]
    batch = Batch(
        "p",
        7,
        ledger=ledger_rows(acknowledgements),
        given_up=tuple(given_up(SESSION, n, "orders") for n in range(50)),
    )
    limit = 30_000
    parts = split(batch, limit)

    assert [part.sequence for part in parts] == list(range(7, 7 + len(parts)))
    assert tuple(row for part in parts for row in part.ledger) == batch.ledger
    assert tuple(row for part in parts for row in part.given_up) == batch.given_up
    largest = max(len(encode(Batch("p", 0, ledger=(row,)))) for row in batch.ledger)
    assert all(len(encode(part)) <= max(limit, largest) + 500 for part in parts)


@pytest.mark.slow
def test_a_batch_of_many_messages_is_split_below_half_a_megabyte_per_record():
    acknowledgements = [Acked(SESSION, seq, "orders", seq % 12, seq // 12 + 10**9) for seq in range(400_000)]
    parts = split(Batch("p", 0, ledger=ledger_rows(acknowledgements)))
    assert len(parts) > 1 and max(len(encode(part)) for part in parts) < 512_000
    assert LIMIT < 512_000


def test_the_sum_of_two_batches_keeps_every_count():
    where = (1_700_000_001, "c", "p")
    one = Batch(
        "p", 1, (StatisticsRow(*where, "t", 1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5),), (LatencyRow(*where, "t", 3, 2),),
        (ErrorRow(*where, "t", "X", "local", 1),),
    )  # fmt: skip
    both = sum_by_minute(one, Batch("p", 2, one.statistics, one.latencies, one.errors))

    assert both.sequence == 2
    assert both.statistics[0][4:] == (2, 4, 6, 8, 10, 12, 14, 16, 18, 1.0)
    assert (both.latencies[0].count, both.errors[0].count) == (4, 2)
