"""Notes on a report: an expired ledger, and other causes of a loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.pipeline.integrity import caveats, topic_bounds
from producer_core.pipeline.integrity.ledger_sources import LedgerSource
from producer_core.pipeline.integrity.spans import PartitionBounds


@pytest.fixture
def ledger(monkeypatch):
    """Return a ledger topic of two partitions; retention has removed the second one's records below offset 10."""
    now = {0: PartitionBounds(0, 50, 50), 1: PartitionBounds(10, 50, 50)}
    monkeypatch.setattr(topic_bounds, "bounds", lambda admin, facts: now)
    return LedgerSource(
        topic_bounds.TopicFacts("telemetry", "x", (0, 1), "delete"),
        {0: PartitionBounds(0, 50, 50), 1: PartitionBounds(0, 50, 50)},
    )


@pytest.mark.parametrize(("known", "noted"), [({}, True), ({1: 9}, True), ({0: 50, 1: 10}, False)])
def test_a_ledger_that_expired_before_it_was_read_is_noted(ledger, known, noted):
    notes = [*caveats.expired_ledger(None, [ledger], lambda name: known if name == "telemetry x" else {})]
    assert [one.partition(":")[0] for one in notes] == noted * [
        "Retention has removed part of the ledger on telemetry (partition 1 before offset 10)"
    ]


@pytest.mark.parametrize(("first", "count"), [(10, 1), (11, 0), (None, 1)])
def test_a_ledger_that_is_complete_since_the_start_of_the_audit_is_not_noted(
    ledger, monkeypatch, first, count
):
    monkeypatch.setattr(topic_bounds, "first_since", lambda admin, facts, moment: {0: 0, 1: first})
    assert len([*caveats.expired_ledger(None, [ledger], lambda name: {}, since=1.0)]) == count


def test_a_loss_is_reported_with_other_possible_causes():
    topic = topic_bounds.TopicFacts("orders", "x", (0,), "delete")
    assert [*caveats.of_loss(topic, recreated=False)] == []
    (text,) = caveats.of_loss(topic, recreated=True)
    assert "deleted and re-created" in text
    (unknown,) = caveats.of_loss(replace(topic, policy=""), recreated=False)
    assert "may have been compacted away" in unknown
