"""A batch of acknowledgements is divided into runs of one partition."""

from __future__ import annotations

import pytest

from producer_core.metrics.ack_batch import Acknowledgements
from tests.fixtures.loss_monitor import ack


def runs(batch):
    acks = Acknowledgements.of(batch)
    return [(acks[first], acks[last]) for first, last in acks.runs()]


def expected_runs(batch):
    """Return the runs for offsets without gaps, computed item by item."""
    found = []
    for item in batch:
        previous = found[-1][1] if found else None
        if (
            previous is not None
            and previous.offset is not None
            and item.offset == previous.offset + 1
            and item[:2] == previous[:2]
        ):
            found[-1] = (found[-1][0], item)
        else:
            found.append((item, item))
    return found


@pytest.mark.parametrize("lengths", [[1], [2], [3, 1, 2], [1000], [257, 1, 700, 64, 5], [1] * 50])
def test_a_batch_is_divided_into_runs_of_one_partition(lengths):
    next_offset, batch = [0, 0], []
    for number, length in enumerate(lengths):
        for _ in range(length):
            batch.append(ack(next_offset[number % 2], number % 2))
            next_offset[number % 2] += 1

    assert runs(batch) == expected_runs(batch)


def test_runs_end_at_a_gap_a_lower_offset_and_a_missing_offset():
    batch = [ack(offset) for offset in [5, 6, 9, 10, 3, 4, None, 5, None, None]]

    assert [(first.offset, last.offset) for first, last in runs(batch)] == [
        (5, 6), (9, 10), (3, 4), (None, None), (5, 5), (None, None), (None, None),
    ]  # fmt: skip
    assert runs([]) == []
