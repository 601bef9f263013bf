"""The window of statistics becomes a batch."""

from __future__ import annotations

import time
from collections import Counter

from producer_core.metrics.ack_ledger import AckLedger
from producer_core.metrics.counters import Metrics
from producer_core.metrics.stats_window import StatsWindow
from tests.fixtures.recording import acknowledged, row


def test_a_batch_contains_a_cluster_id_that_becomes_known_while_the_batch_is_taken():
    known = []

    class LateLedger(AckLedger):
        def take(self):
            known.append("c")  # the first acknowledgement of a producer's life
            return super().take()

    ledger = LateLedger(b"s" * 16)
    window = StatsWindow(
        Metrics(), ledger=ledger, pending=Counter, number=iter(range(9)).__next__, clock=time.time,
        describe=lambda seen_at: row(seen_at)._replace(cluster_id="".join(known)),
    )  # fmt: skip
    ledger.acknowledged(acknowledged(3))
    (batch,) = window.take(())
    assert batch.acknowledgements == 3 and batch.cluster_id == "c"


def test_a_batch_counts_every_message_until_it_was_seen():
    """A reader that waits for a heartbeat after its last message must find that message in the counts."""
    times, metrics = iter(range(100, 200)), Metrics()

    class SlowMetrics:
        def snapshot(self):
            taken = metrics.snapshot()
            acknowledged_at.append(next(times))
            metrics.acknowledged(acknowledged(1))
            return taken

    acknowledged_at = []
    window = StatsWindow(SlowMetrics(), pending=Counter, describe=row, clock=times.__next__)
    (batch,) = window.take(())
    assert not batch.statistics and 100 <= batch.producer.seen_at < acknowledged_at[0]
