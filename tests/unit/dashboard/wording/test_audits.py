"""Test the texts about audits."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.audits import AuditSources, audits, one
from producer_core.dashboard.wording import audits as wording
from tests.fixtures.audits import WHOLE, audited


@pytest.mark.parametrize(
    ("numbers", "unauditable", "lost", "tone"),
    [
        ({"auditable": False}, True, "?", "warning"),
        ({"acknowledged": 0}, True, "?", "warning"),
        ({"acknowledged": 0, "ours": 0}, False, "none", "good"),
        ({"lost": 4}, False, "4", "bad"),
        ({"reordered": 4}, False, "none", "warning"),
        ({"ledger_gaps": 1}, False, "none", "warning"),
        ({"ledger_lost": 1}, False, "none", "warning"),
        ({"strange": 1}, False, "none", "warning"),
        ({}, False, "none", "good"),
    ],
)
def test_an_undetectable_loss_is_never_reported_as_none(store, now, numbers, unauditable, lost, tone):
    audited(store, "a", at=now - 9, **numbers)
    (last,) = audits(store, None, now)
    assert last.audit.unauditable is unauditable
    assert wording.number(last.audit, "lost") == lost
    assert wording.verdict(last.audit, now)[0] == tone
    assert bool(wording.why_unauditable(last.audit)) is unauditable


@pytest.mark.parametrize(
    ("ranges", "more", "text"),
    [
        (WHOLE, {}, "whole topic, 2 partitions"),
        ({"0": [300, 400, 0, 400]}, {}, "part of the topic: 100 offsets in 1 partition"),
        ({"0": [400, 400, 0, 400]}, {}, "nothing new, 1 partition"),
        ({"0": [0, 400, 0, 400]}, {"since": 0.0}, "from 1970-01-01 00:00:00: 400 offsets in 1 partition"),
        ({}, {}, "–"),
    ],
)
def test_the_audited_range_is_shown(store, now, ranges, more, text):
    audited(store, "a", at=now - 9, ranges=ranges, **more)
    assert wording.audited_range(one(store, "a", now).audit, None, now) == text


def test_commands_quote_their_arguments():
    assert "--store 'my store.duckdb'" in wording.command("my store.duckdb")
    assert wording.query("it's") == "SELECT * FROM 'it''s/*.parquet'"


@pytest.mark.slow
def test_the_summary_names_three_topics_with_faults_at_most(store, now):
    for number in range(5):
        audited(store, f"a{number}", at=now - 9 - number, topic=f"t{number}", lost=5 - number, reordered=1)
    text = wording.faults(audits(store, None, now))
    assert text.startswith("Audits found faults: t0 (5 lost and 1 out of order), t1 (")
    assert "and 2 more topics" in text
    assert wording.faults(()) == ""


def test_one_dead_letter_in_the_log_and_one_missing_batch_are_in_the_singular(store, now):
    audited(store, "a", at=now - 9, given_up_found=1, expired=12, ledger_gaps=1)
    audit = one(store, "a", now).audit
    assert wording.other_counts(audit) == "1 dead letter in the log, 12 expired"
    assert ("Missing from ledgers", "1 batch; its contents are unknown") in wording.facts(audit, None, now)
    audited(store, "b", at=now - 9, given_up_found=2, ledger_gaps=2)
    audit = one(store, "b", now).audit
    assert wording.other_counts(audit) == "2 dead letters in the log"
    assert ("Missing from ledgers", "2 batches; their contents are unknown") in wording.facts(
        audit, None, now
    )


def test_the_audit_command_and_its_options_exist():
    from producer_core.cli.pipeline.integrity import integrity

    known = {option for parameter in integrity.params for option in parameter.opts}
    for sources in (AuditSources(), AuditSources("broker1:9092", secured=True, ledger_in_store=True)):
        words = wording.command("s", "orders", sources).split()
        assert {word for word in words if word.startswith("-")} <= known


def test_the_audit_command_runs_as_it_is_if_the_store_knows_the_brokers_and_the_ledger():
    command = wording.command("s.duckdb", "orders", AuditSources("b1:9092,b2:9092", ledger_in_store=True))
    assert command == (
        "producer-core pipeline integrity --topic orders -b b1:9092,b2:9092 --store s.duckdb --findings findings"
    )
