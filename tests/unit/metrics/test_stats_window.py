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
        describe=lambda: row()._replace(cluster_id="".join(known)),
    )  # fmt: skip
    ledger.acknowledged(acknowledged(3))
    (batch,) = window.take(())
    assert batch.acknowledgements == 3 and batch.cluster_id == "c"
