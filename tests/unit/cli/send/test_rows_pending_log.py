"""Rows that may have been compacted away are not sent where their key has a newer record."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.unsaved_rows import UnsavedRows
from producer_core.kafka.newer_keys import LaterRecords
from producer_core.testing import InMemoryTransport
from tests.fixtures.sends import LEAST, saved, state


def newer_record(key):
    later = LaterRecords(lambda id: None)
    later.observe(
        SimpleNamespace(key=lambda: key, headers=lambda: None, timestamp=lambda: (1, 5000), offset=lambda: 9)
    )
    return later


@pytest.mark.parametrize(
    ("row", "key", "held_back"),
    [
        (15, "k", True),
        (15, "other", False),
        (15, None, False),
        (20, "k", False),  # no earlier run has sent it
    ],
)
def test_a_row_is_held_back_where_an_earlier_run_may_have_sent_it(file, row, key, held_back):
    unsaved = UnsavedRows(newer=newer_record(b"k"))
    progress = FileProgress(file, state(LEAST, settled=((0, 12),), reached=20), unsaved)
    made = []
    producer = ReliableKafkaProducer(
        "memory:1", store=None, health_check_interval=3600, journal=progress, transport=InMemoryTransport.factory(made)
    )  # fmt: skip

    progress.row.at = row
    producer.send_message("orders", b"old", key)
    producer.flush(5)
    dead_letters = producer.dlq.dead_letters()
    progress.save()
    producer.close()

    assert progress.held_back == ([row] if held_back else [])
    assert [(one.code, one.verdict) for one in dead_letters] == [("newer_record", "inconclusive")] * held_back
    assert (row in saved(file).settled) != held_back, "a dead letter in memory can still be lost"
