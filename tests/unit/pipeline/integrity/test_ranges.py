"""Parts of an audit without Spark: the audited offsets, the ranges of the second pass, and the wording."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from producer_core.cli import main
from producer_core.errors import ConfigError
from producer_core.pipeline.integrity import caveats, topic_bounds, watermarks
from producer_core.pipeline.integrity.ledger_sources import LedgerSource
from producer_core.pipeline.integrity.outcome import ExpiredRange, LedgerGap
from producer_core.pipeline.integrity.ranges import covered, layers, merged
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.scope import AuditScope
from producer_core.pipeline.integrity.spans import (
    OffsetSpan,
    PartitionBounds,
    above_low,
    cut_back,
    lowered,
    refreshed,
    spans,
)
from producer_core.pipeline.integrity.suspects import ranges_to_read
from producer_core.pipeline.integrity.watermarks import AuditWatermarks
from producer_core.store import Store

# ranges of the second pass

INTERVALS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 40)).map(lambda one: (one[0], one[0] + one[1])), max_size=40
)


@given(INTERVALS, st.integers(1, 5))
def test_a_few_disjoint_ranges_cover_every_interval(intervals, most):
    ranges = merged(intervals, most)

    assert len(ranges) <= most
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))
    assert all(any(a <= start and end <= b for a, b in ranges) for start, end in intervals if start < end)


@given(INTERVALS)
def test_offsets_between_a_few_intervals_are_not_read_again(intervals):
    offsets = {offset for start, end in intervals for offset in range(start, end)}
    assert covered({0: merged(intervals, 100)}) == len(offsets)


def test_the_widest_gaps_are_not_read():
    assert merged([(0, 1), (2, 3), (100, 101), (103, 104), (500, 501)], 3) == [(0, 3), (100, 104), (500, 501)]


def test_a_small_partition_is_read_again_in_one_piece():
    found = pa.table(
        {"partition": [0, 0, 1, 1], "off_min": [5, 90, 5, 90_000], "off_max": [6, 95, 6, 90_000]}
    )
    small, large = OffsetSpan(0, 100, 0, 100, 100, 100), OffsetSpan(0, 100_000, 0, 100_000, 100_000, 100_000)
    assert ranges_to_read(found, {0: small, 1: large}) == {0: [(5, 96)], 1: [(5, 7), (90_000, 90_001)]}


def test_each_read_has_one_range_per_partition():
    assert layers({0: [(0, 1), (5, 6)], 1: [(2, 3)]}) == [{0: (0, 1), 1: (2, 3)}, {0: (5, 6)}]
    assert layers({}) == []


# audited offsets


def test_an_audit_covers_the_records_that_its_reader_sees():
    partitions = {0: PartitionBounds(3, 8, 10)}
    assert spans(partitions)[0] == OffsetSpan(3, 8, 3, 8, 10, 10, 0)
    uncommitted = spans(partitions, isolation="read_uncommitted")[0]
    assert (uncommitted.end, uncommitted.stable, uncommitted.whole) == (10, 10, True)


def test_an_audit_begins_at_the_given_offset_or_the_low_watermark():
    partitions = {0: PartitionBounds(3, 8, 10), 1: PartitionBounds(0, 5, 5)}
    found = spans(partitions, begin={0: 1})
    assert (found[0].start, found[0].floor, found[1].start) == (3, 1, 0)
    assert spans(partitions, begin={0: 99})[0].start == spans(partitions, begin={0: 99})[0].end == 8


def test_an_audit_ends_before_the_first_offset_that_is_too_late():
    partitions = {0: PartitionBounds(0, 8, 10), 1: PartitionBounds(0, 8, 8)}
    found = spans(partitions, until={0: 4, 1: None})
    assert [span.end for span in found.values()] == [4, 8]


def test_a_partition_that_does_not_exist_is_rejected():
    with pytest.raises(ConfigError, match="no partition 7; it has 1"):
        spans({0: PartitionBounds(0, 1, 1)}, begin={7: 0})


def test_bounds_are_requested_again_after_the_read():
    before = spans({0: PartitionBounds(0, 8, 8), 1: PartitionBounds(0, 5, 5)})
    after = refreshed(before, {0: PartitionBounds(4, 9, 12), 2: PartitionBounds(0, 3, 3)})
    assert (after[0].low, after[0].after, after[0].end, after[1]) == (4, 12, 8, before[1])
    assert (after[2].end, after[0].whole) == (0, True)


def test_an_audit_begins_at_the_low_watermark_after_retention():
    (span,) = above_low({0: OffsetSpan(5, 8, 9, 20, 20, after=20)}).values()
    assert (span.start, span.end) == (9, 9)


def test_late_ledger_rows_make_an_audit_begin_earlier():
    before = spans({0: PartitionBounds(2, 8, 8), 1: PartitionBounds(0, 5, 5)}, begin={0: 6, 1: 4})
    after = lowered(before, {0: 1})
    assert (after[0].start, after[0].floor, after[1].start) == (2, 6, 4)


def test_a_log_that_ends_below_its_watermark_was_truncated():
    assert cut_back({0: 5, 1: 5, 2: 5}, {0: PartitionBounds(0, 4, 4), 1: PartitionBounds(0, 5, 5)}) == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": 1.0, "incremental": True},
        {"from_offsets": {0: 1}, "since": 1.0},
        {"incremental": True, "until": 2.0},
        {"since": 2.0, "until": 2.0},
        {"isolation": "serializable"},
    ],
)
def test_a_contradictory_scope_is_rejected(wrong):
    with pytest.raises(ConfigError):
        AuditScope(**wrong)


# wording


def report(**more):
    values = {"records": 1_000, "foreign": 0, "acknowledged": 1_000, **more}
    return AuditReport(
        audit_id="a-1", topic="orders", cluster_id="c", started_at=1.0, finished_at=2.0, isolation="read_committed",
        spans={0: OffsetSpan(0, 1_000, 0, 1_000, 1_000, 1_000)}, **values,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({}, "orders: all 1,000 acknowledged messages are on the log, each once and in order."),
        ({"acknowledged": 1}, "orders: the 1 acknowledged message is on the log, once."),
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
            "orders: this range is empty, both on the log and in the ledgers.",
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
            "orders: the 1 acknowledged message is on the log, once, as far as the ledgers show: 999 messages on the log are in "
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
        "5 acknowledged messages are hidden by an open transaction: audit again when it has ended.",
        "30 acknowledged messages expired before this audit and cannot be checked (partition 2, 30 at offsets 0 to 29).",
        "1 message acknowledged at an unknown offset is not in this range; only an audit of the whole topic can determine "
        "whether it is lost.",
        "1 message on the log is in no ledger: its producer keeps none, or never received the acknowledgement.",
        "2 messages that their producer gave up are on the log.",
        "7 of 1,000 records have no producer_core message id; they were counted, not checked.",
        "Batches 17 to 20 of producer p-1 are missing from the ledger.",
        "Batch 3 of producer p-2 is missing from the ledger.",
        "Producers could not record 4 acknowledgements in their ledgers.",
        "3 records or rows of the ledger could not be read: a newer schema, or not telemetry.",
        "A note.",
    )


def test_one_record_of_another_producer_is_counted_in_the_singular():
    texts = report(records=10, foreign=1).sentences

    assert "1 of 10 records has no producer_core message id; they were counted, not checked." in texts


def findings(*rows):
    names = ("kind", "message_id", "partition", "offset", "other_partition", "other_offset")
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


FINDINGS = findings(
    ("lost", "s-1", 0, 12, None, None),
    ("duplicated", "s-2", 1, 90, 1, 40),
    ("duplicated", "s-2", 0, 91, 1, 40),
    ("reordered", "s-3", 0, 7, 0, 5),
    ("reordered", "s-4", 0, 8, 0, -1),
    ("unledgered", "s-5", 0, 9, None, None),
)


def test_each_finding_has_its_position():
    found = report(findings=FINDINGS, lost=1, duplicated=1, reordered=2, unledgered=1)
    assert [row["text"] for row in found.rows()] == [
        "acknowledged at partition 0, offset 12; not on the log",
        "a copy at partition 1, offset 90; the original is at offset 40",
        "a copy at partition 0, offset 91; the original is at partition 1, offset 40",
        "at partition 0, offset 7, after a message of its session with a higher sequence at offset 5",
        "at partition 0, offset 8, after a message of its session with a higher sequence below this range",
        "at partition 0, offset 9; in no ledger",
    ]
    assert found.ids("duplicated") == ["s-2"]
    assert "s-1 acknowledged at partition 0" in repr(found)
    assert not found.clean


def test_a_notebook_shows_the_report_without_a_script():
    html = report(findings=FINDINGS, lost=1, findings_path="<b>")._repr_html_()
    assert "of 1,000 acknowledged messages, 1 is lost" in html
    assert "s-1" in html
    assert "<script" not in html
    assert "&lt;b&gt;" in html


def test_the_report_as_json_has_numbers():
    found = json.loads(json.dumps(report(lost=2, gaps=(LedgerGap("p", 1, 3),)).to_dict()))
    names = ("lost", "duplicated", "reordered", "expired", "pending", "unledgered", "ledger_gaps")
    assert [found[name] for name in names] == [2, 0, 0, 0, 0, 0, 3]
    assert found["ranges"] == {"0": [0, 1_000, 0, 1_000]}
    assert report(lost=2).found(("lost", "duplicated")) == ["lost"]
    assert report(compacted=True).found(("unauditable",)) == ["unauditable"]
    assert report().found(("unauditable", "lost")) == []


# notes


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
        "Retention has removed a part of the ledger on telemetry (partition 1 before offset 10)"
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


# in the store


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


def test_a_finished_audit_moves_its_watermarks_and_a_failed_one_does_not(store):
    first = watermarks.begin(store, "orders", "c", isolation="read_committed", now=1.0)
    watermarks.fail(store, first, 2.0, "The broker went away.")
    marks = AuditWatermarks(store, "c", "orders", "x", "read_committed", ("telemetry",))
    assert marks.verified() == {}

    second = watermarks.begin(store, "orders", "c", isolation="read_committed", now=3.0)
    waits = findings(("pending", f"{uuid.UUID(int=5)}-7", 0, None, None, None))
    done = report(findings=pa.concat_tables([FINDINGS, waits.cast(FINDINGS.schema)]), lost=1, pending=1)
    done = AuditReport(
        **{**{name: getattr(done, name) for name in done.__dataclass_fields__}, "audit_id": second}
    )
    here = {0: OffsetSpan(0, 1_000, 0, 1_000, 1_000, after=1_003), 1: OffsetSpan(0, 4, 0, 4, 4, after=4)}
    watermarks.finish(store, done, marks.moved(here, {"telemetry y": {0: 7}}))

    assert (marks.verified(), marks.judged()) == ({0: 1_000, 1: 4}, {0: 1_003, 1: 4})
    assert (marks.ledger_read_until("telemetry y"), marks.ledger_read_until("telemetry z")) == ({0: 7}, {})
    assert marks.waiting() == [(uuid.UUID(int=5).bytes, 7)]
    for other in (
        {"incarnation": "y"},
        {"isolation": "read_uncommitted"},
        {"ledgers": ("more", "telemetry")},
    ):
        assert replace(marks, **other).verified() == {}
    assert [replace(marks, topic=name).is_recreated() for name in ("orders", "order")] == [False, False]
    assert replace(marks, incarnation="y").is_recreated()
    with store.borrow() as connection:
        rows = connection.execute(
            "SELECT state, lost, ours, sentence FROM audits ORDER BY started_at"
        ).fetchall()
        kinds = connection.execute(
            "SELECT kind, count(*) FROM audit_findings GROUP BY kind ORDER BY kind"
        ).fetchall()
    assert rows == [("failed", None, None, "The broker went away."), ("done", 1, 1_000, done.sentence)]
    assert kinds == [("duplicated", 2), ("lost", 1), ("pending", 1), ("reordered", 2), ("unledgered", 1)]


# on the command line


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--fail-on", "lost,mislaid"], "'mislaid' is not a finding"),
        (["--from-offsets", "[1]"], "is not a JSON object of offsets by partition"),
        (["--from-offsets", '{"0": -4}'], "is not a JSON object of offsets by partition"),
        (["--since", "yesterday"], "is not a time"),
        (["--since", "2h", "--incremental"], "An audit has one start."),
    ],
)
def test_invalid_options_are_rejected_before_anything_starts(options, text):
    result = CliRunner().invoke(
        main, ["pipeline", "integrity", "--topic", "t", "-b", "127.0.0.1:1", *options]
    )
    assert result.exit_code == 2
    assert text in result.output
