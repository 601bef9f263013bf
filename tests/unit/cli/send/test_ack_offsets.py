"""The offsets that a state file saves: all records of unsettled rows are above them."""

from __future__ import annotations

from producer_core.cli.send.ack_offsets import AckOffsets
from producer_core.events import Acknowledged


def acked(partition, offset):
    return Acknowledged("orders", partition, offset, 0.0, 1, 1, 0, b"id")


def advance(acks, *, enqueued, settled):
    return acks.advance(lambda: enqueued, lambda rows: rows <= settled)


def test_offsets_are_returned_once_every_row_before_their_checkpoint_is_settled():
    acks = AckOffsets(0)
    acks.acknowledged([acked(0, 4), acked(0, 5), acked(1, 7)])

    assert advance(acks, enqueued=20, settled=10) == {}
    acks.acknowledged([acked(0, 6)])
    assert advance(acks, enqueued=30, settled=19) == {}, "row 19 may be above or below offset 5"
    assert advance(acks, enqueued=30, settled=20) == {("orders", 0): 5, ("orders", 1): 7}
    assert advance(acks, enqueued=30, settled=30) == {("orders", 0): 6, ("orders", 1): 7}


def test_rows_that_earlier_runs_may_have_sent_hold_the_offsets_back():
    acks = AckOffsets(50)
    acks.acknowledged([acked(0, 5)])

    assert advance(acks, enqueued=20, settled=20) == {}
    assert advance(acks, enqueued=60, settled=49) == {}
    assert advance(acks, enqueued=60, settled=50) == {}, "the first checkpoint"
    assert advance(acks, enqueued=60, settled=60) == {("orders", 0): 5}


def test_an_acknowledgement_without_an_offset_changes_nothing():
    acks = AckOffsets(0)
    acks.acknowledged([acked(0, 5), acked(0, None), acked(0, -1)])
    advance(acks, enqueued=1, settled=1)

    assert advance(acks, enqueued=1, settled=1) == {("orders", 0): 5}
