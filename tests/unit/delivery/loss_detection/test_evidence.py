"""The classification of a checkpoint by the evidence on its partition."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from producer_core.delivery.loss_detection import BrokerView, Checkpoint, Evidence, classify
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_bytes
from tests.fixtures.loss_monitor import SESSION

CHECKPOINT = Checkpoint(100, 7, 1_790_000_000.0)
VIEW = BrokerView(
    exists=True, topic_id="A", low=0, high=150, found_at=100, found_id=id_bytes(SESSION, 7), compacted=False
)


def evidence(trigger="idle", last=CHECKPOINT, **view):
    return Evidence("orders", 3, trigger, last, replace(VIEW, **view), session=SESSION.bytes, topic_id="A")


@pytest.mark.parametrize("trigger", ["out_of_order", "unknown_producer"])
def test_our_record_at_its_offset_means_that_the_client_is_desynchronised(trigger):
    finding = classify(evidence(trigger))

    assert (finding.case, finding.kind, finding.severity) == (
        "desynchronised",
        "producer_desynchronised",
        "warning",
    )
    assert "no acknowledged record is missing" in finding.text
    assert "the log goes from 0 to 150" in finding.text


@pytest.mark.parametrize("trigger", ["idle", "epoch_rose", "not_rising", "asked"])
def test_without_an_error_code_our_record_at_its_offset_is_intact(trigger):
    assert classify(evidence(trigger)).case == "intact"


@pytest.mark.parametrize("trigger", ["out_of_order", "unknown_producer", "idle", "epoch_rose", "not_rising"])
@pytest.mark.parametrize(
    ("view", "last", "case"),
    [
        ({}, None, "nothing_to_lose"),
        ({"low": 101, "found_at": None}, CHECKPOINT, "retention_removed"),
        ({"low": 150, "found_at": None}, CHECKPOINT, "retention_removed"),
        ({"high": 100, "found_at": None}, CHECKPOINT, "acknowledged_lost"),
        ({"high": 0, "found_at": None}, CHECKPOINT, "acknowledged_lost"),
        ({"found_id": id_bytes(SESSION, 8)}, CHECKPOINT, "acknowledged_lost"),
        ({"found_id": id_bytes(uuid.uuid4(), 7)}, CHECKPOINT, "acknowledged_lost"),
        ({"found_id": None}, CHECKPOINT, "acknowledged_lost"),
        ({"found_at": 120}, CHECKPOINT, "acknowledged_lost"),
        ({"found_at": 120, "compacted": None}, CHECKPOINT, "unknown"),
        ({"found_at": 120, "compacted": True}, CHECKPOINT, "intact"),
        ({"found_id": id_bytes(SESSION, 8), "compacted": True}, CHECKPOINT, "acknowledged_lost"),
        ({"topic_id": "B"}, CHECKPOINT, "topic_recreated"),
        ({"topic_id": "B", "low": 0, "high": 0, "found_at": None}, CHECKPOINT, "topic_recreated"),
        ({"topic_id": None, "low": 0, "high": 0, "found_at": None}, CHECKPOINT, "topic_recreated"),
        ({"exists": False, "low": None, "high": None, "found_at": None}, CHECKPOINT, "topic_recreated"),
        ({"low": None, "high": None, "found_at": None, "problem": "broker down"}, CHECKPOINT, "unknown"),
        ({"found_at": None, "problem": "no permission"}, CHECKPOINT, "unknown"),
    ],
)
def test_each_case_is_proved_by_its_evidence(trigger, view, last, case):
    finding = classify(evidence(trigger, last, **view))

    assert finding.case == case
    assert finding.advice.endswith(".")
    assert finding.text.endswith(".")


def test_a_loss_is_reported_with_numbers():
    finding = classify(evidence(high=61, found_at=None))

    assert "offset 100 was acknowledged at 2026-09-21 14:13:20 UTC" in finding.text
    assert "At least 40 are missing" in finding.text
    assert finding.numbers == {
        "last_acknowledged": 100,
        "acknowledged_at": CHECKPOINT.at,
        "low_watermark": 0,
        "high_watermark": 61,
    }


def test_a_checkpoint_without_a_sequence_matches_any_record_with_an_id():
    assert (
        classify(evidence(last=Checkpoint(100, -1, 1.0), found_id=id_bytes(uuid.uuid4(), 4))).case == "intact"
    )
    assert classify(evidence(last=Checkpoint(100, -1, 1.0), found_id=None)).case == "acknowledged_lost"


def test_a_partition_whose_checkpoint_was_evicted_is_unknown():
    assert classify(replace(evidence(last=None), evicted=True)).case == "unknown"


@pytest.mark.parametrize(
    ("outcome", "case"),
    [("found", "duplicate_confirmed"), ("not_found", "acknowledged_lost"), ("inconclusive", "unknown")],
)
def test_a_success_without_an_offset_is_looked_up_on_the_topic(outcome, case):
    found = ProbeResult(outcome, 3, 99 if outcome == "found" else None, 10, "A text.")

    assert classify(evidence("duplicate", probe=found)).case == case
    assert classify(evidence("duplicate", None, probe=found)).case == case


def test_a_duplicate_that_could_not_be_looked_up_is_unknown():
    assert classify(evidence("duplicate")).case == "unknown"


def test_a_single_missing_record_is_reported_in_the_singular():
    assert "At least 1 is missing." in classify(evidence(high=100, found_at=None)).text
