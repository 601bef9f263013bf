"""The sentences of a report."""

from __future__ import annotations

import pytest

from producer_core.pipeline.integrity.outcome import ExpiredRange, LedgerGap
from tests.fixtures.audit_reports import report


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({}, "orders: all 1,000 acknowledged messages are in the log, each once and in order."),
        ({"acknowledged": 1}, "orders: the only acknowledged message is in the log, once."),
        ({"lost": 1}, "orders: of 1,000 acknowledged messages, 1 is lost."),
        ({"acknowledged": 0, "lost": 604}, "orders: 604 are lost."),
        (
            {"lost": 2, "duplicated": 30, "reordered": 4_000},
            "orders: of 1,000 acknowledged messages, 2 are lost, 30 duplicated and 4,000 out of order.",
        ),
        (
            {"acknowledged": 0},
            "orders: no ledger covers this range, so losses cannot be detected; "
            "of 1,000 messages, none is duplicated or out of order.",
        ),
        (
            {"acknowledged": 0, "foreign": 1_000},
            "orders: no ledger covers this range, so losses cannot be detected; no record has a producer_core message id.",
        ),
        (
            {"acknowledged": 0, "records": 0},
            "orders: this range is empty, both in the log and in the ledgers.",
        ),
        (
            {"compacted": True, "duplicated": 1},
            "orders is compacted, so losses cannot be detected; of 1,000 messages, 1 is duplicated.",
        ),
        (
            {"compacted": None, "lost": 1},
            "orders: of 1,000 acknowledged messages, 1 is lost or compacted away.",
        ),
        (
            {
                "acknowledged": 1,
                "unledgered": 999,
                "gaps": (LedgerGap("p", 3, 400),),
                "ledger_lost": 9,
                "strange": 1_200,
            },
            "orders: the only acknowledged message is in the log, once, as far as the ledgers show: 999 messages in the log are in "
            "no ledger, 398 batches are missing, 9 acknowledgements were not recorded, 1,200 records or rows cannot be read.",
        ),
        (
            {"acknowledged": 0, "records": 0, "expired": 9, "pending": 1},
            "orders: nothing can be checked: of the acknowledged messages, 9 are expired and 1 hidden by an open transaction.",
        ),
    ],
)
def test_the_result_is_one_sentence(numbers, sentence):
    assert report(**numbers).sentence == sentence


@pytest.mark.parametrize(
    ("numbers", "auditable"),
    [
        ({}, True),
        ({"lost": 3}, True),
        ({"compacted": None}, True),
        ({"compacted": None, "lost": 1}, False),
        ({"compacted": True}, False),
        ({"acknowledged": 0}, False),
        ({"acknowledged": 0, "lost": 1}, True),
        ({"acknowledged": 0, "records": 0, "expired": 9}, False),
        ({"acknowledged": 0, "records": 0}, True),
    ],
)
def test_an_audit_reports_whether_losses_are_detected(numbers, auditable):
    found = report(**numbers)
    assert (found.auditable, found.unauditable, found.to_dict()["auditable"]) == (
        auditable,
        not auditable,
        auditable,
    )


def test_further_facts_follow_as_sentences():
    texts = report(
        pending=5,
        expired=30,
        expired_ranges=(ExpiredRange(2, 30, 0, 29),),
        unledgered=1,
        given_up_found=2,
        foreign=7,
        gaps=(LedgerGap("p-1", 17, 20), LedgerGap("p-2", 3, 3)),
        ledger_lost=4,
        undecided=1,
        strange=3,
        notes=("A note.",),
    ).sentences
    assert texts[1:] == (
        "5 acknowledged messages are hidden by an open transaction: audit again after it completes.",
        "30 acknowledged messages expired before this audit and cannot be checked (partition 2, 30 at offsets 0 to 29).",
        "1 message acknowledged at an unknown offset is not in this range; only an audit of the whole topic can determine "
        "whether it is lost.",
        "1 message in the log is in no ledger: its producer keeps none, or never received the acknowledgement.",
        "2 messages dropped by their producers are in the log.",
        "7 of 1,000 records have no producer_core message id; they were counted, not checked.",
        "Batches 17 to 20 of producer p-1 are missing from the ledger.",
        "Batch 3 of producer p-2 is missing from the ledger.",
        "Producers could not record 4 acknowledgements in their ledgers.",
        "3 records or rows of the ledger could not be read: a newer schema, or not telemetry.",
        "A note.",
    )


def test_one_record_of_another_producer_is_counted_in_the_singular():
    texts = report(records=10, foreign=1).sentences

    assert "1 of 10 records has no producer_core message id; it was counted, not checked." in texts


def test_single_gaps_in_the_ledgers_are_reported_in_the_singular():
    gaps = tuple(LedgerGap(f"p-{number}", 3, 4) for number in range(6))
    texts = report(gaps=gaps, ledger_lost=1, strange=1).sentences

    assert texts[0].endswith("1 acknowledgement was not recorded, 1 record or row cannot be read.")
    assert "1 more range of batches is missing from the ledgers." in texts
    assert "Producers could not record 1 acknowledgement in their ledgers." in texts
    assert "1 record or row of the ledger could not be read: a newer schema, or not telemetry." in texts


def test_the_partitions_that_are_not_listed_are_counted():
    ranges = tuple(ExpiredRange(partition, 5, 0, 4) for partition in range(6))
    texts = report(expired=30, expired_ranges=ranges).sentences

    assert any(text.endswith("; and 1 more partition).") for text in texts)
