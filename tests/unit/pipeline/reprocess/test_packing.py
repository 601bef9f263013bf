"""Packed dead letters keep their order and every byte."""

from __future__ import annotations

from producer_core.pipeline.reprocess import Slicing, batches
from producer_core.pipeline.reprocess.packing import unpacked
from tests.fixtures.replays import replay_record


def test_packing_keeps_the_order_and_every_byte_of_dead_letters():
    dead_letters = [
        replay_record(number, key=None if number % 2 else b"", value=None if number == 3 else b"\x00\xff")
        for number in range(6)
    ]
    table = batches.slice_table(dead_letters, Slicing(3))
    (content,) = table["dead_letters"].to_pylist()
    back = unpacked(content)

    for before, after in zip(dead_letters, back, strict=True):
        for name in (
            "message_id",
            "topic",
            "partition",
            "key",
            "value",
            "headers",
            "timestamp_ms",
            "accepted_at",
            "verdict",
        ):
            assert getattr(after, name) == getattr(before, name)
    assert [one.message_id for one in back] == [one.message_id for one in dead_letters]
