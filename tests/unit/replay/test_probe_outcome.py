"""The outcome of records that were read back: found, removed, or never written."""

from __future__ import annotations

import pytest

from producer_core.replay.probe_outcome import ProbeOutcome, outcome_after_search
from tests.fixtures.replays import replay_record

RECORD = replay_record(1)


def test_a_found_record_is_settled_at_its_position():
    outcome = outcome_after_search(RECORD, ProbeOutcome({RECORD.message_id: (3, 42)}))

    assert (outcome.ending, outcome.partition, outcome.offset, outcome.verdict) == ("landed", 3, 42, "found")
    assert "orders, partition 3, at offset 42" in outcome.text


def test_a_missing_record_is_sent_again():
    assert outcome_after_search(RECORD, ProbeOutcome({})).ending == "pending"


@pytest.mark.parametrize(
    ("partition", "removed", "ending"),
    [
        (None, ("orders", 5), "skipped"),
        (5, ("orders", 5), "skipped"),
        (4, ("orders", 5), "pending"),
        (5, ("refunds", 5), "pending"),
    ],
)
def test_a_missing_record_is_inconclusive_if_its_partition_lost_records(partition, removed, ending):
    outcome = outcome_after_search(
        replay_record(1, partition=partition), ProbeOutcome({}, removed=frozenset({removed}))
    )

    assert outcome.ending == ending
    assert (outcome.verdict == "inconclusive") == (ending == "skipped")


def test_a_missing_record_with_a_newer_record_of_its_key_is_inconclusive():
    newer = ProbeOutcome({}, newer=frozenset({RECORD.message_id}))

    assert (
        outcome_after_search(RECORD, newer).ending,
        outcome_after_search(replay_record(2), newer).ending,
    ) == (
        "skipped",
        "pending",
    )


def test_a_found_record_is_not_treated_as_removed():
    found = ProbeOutcome({RECORD.message_id: (0, 0)}, removed=frozenset({("orders", 0)}))

    assert not found.may_be_gone(RECORD)
