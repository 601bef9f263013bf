"""Test the data of audits on a real store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dashboard.queries.audits import AuditedPart, AuditSources, audits, findings, one, sources
from producer_core.dashboard.wording import audits as wording
from producer_core.dlq import DeadLetters
from producer_core.store import Batch
from tests.fixtures.audits import LOST, audited, job
from tests.fixtures.ledgers import SESSION, Acked, ledger_batches
from tests.fixtures.pages import dead_letter, producer


@pytest.mark.slow
def test_the_latest_audit_per_topic_is_listed_faults_first(store, now):
    audited(store, "a", at=now - 900, topic="orders", lost=3)
    audited(store, "b", at=now - 800, topic="orders")
    audited(store, "c", at=now - 700, topic="payments", duplicated=2)
    audited(store, "d", at=now - 600, topic="refunds")
    found = audits(store, None, now)
    assert [(last.audit.topic, last.audit.audit_id) for last in found] == [
        ("payments", "c"),
        ("refunds", "d"),
        ("orders", "b"),
    ]
    assert [last.audit.audit_id for last in audits(store, "refunds", now)] == ["d"]


def test_the_last_finished_audit_stays_beside_a_newer_unfinished_one(store, now):
    audited(store, "done", at=now - 900)
    begin = {"topic": "orders", "cluster": "c", "isolation": "read_committed"}
    store.execute("begin_audit", id="next", started=now - 61, **begin)
    (killed,) = audits(store, None, now)
    store.execute("audit_seen", id="next", now=now - 1)
    (running,) = audits(store, None, now)
    store.execute("fail_audit", id="next", now=now, sentence="The topic was deleted.")
    (failed,) = audits(store, None, now)
    assert [last.audit.audit_id for last in (killed, running, failed)] == ["done"] * 3
    assert [last.later.state for last in (killed, running, failed)] == ["dead", "running", "failed"]
    assert wording.later(killed.later, now) == "A newer audit started 61 s ago and was killed."
    assert wording.later(failed.later, now).endswith("The topic was deleted.")


@pytest.mark.slow
def test_faults_of_an_earlier_range_stay_after_a_clean_partial_audit(store, now):
    audited(store, "monday", at=now - 900, lost=3, sentence="3 are lost.")
    audited(store, "tuesday", at=now - 800, duplicated=1, sentence="1 is there more than once.")
    audited(store, "thursday", at=now - 700, ranges={"0": [400, 500, 0, 500]})
    (last,) = audits(store, None, now)
    assert (last.audit.audit_id, last.earlier.audit_id) == ("thursday", "tuesday")
    assert wording.earlier(last.earlier, now) == "Earlier audit, 13 min ago: 1 is there more than once."
    audited(store, "whole", at=now - 600)
    (last,) = audits(store, None, now)
    assert (last.audit.audit_id, last.earlier) == ("whole", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [{"acknowledged": 0, "unledgered": 1000}, {"acknowledged": 10, "unledgered": 990}, {"auditable": False}],
)
def test_known_losses_stay_after_audits_that_cannot_detect_them(store, now, numbers):
    audited(store, "monday", at=now - 900, lost=10, sentence="10 are lost.")
    for ago, night in ((800, "tuesday"), (700, "wednesday")):
        audited(store, night, at=now - ago, duplicated=1, **numbers)
        (last,) = audits(store, None, now)
        assert (last.audit.audit_id, last.earlier.audit_id) == (night, "monday")
    audited(store, "thursday", at=now - 600)
    (last,) = audits(store, None, now)
    assert (last.audit.audit_id, last.earlier) == ("thursday", None)


def test_concurrent_audits_of_a_topic_have_separate_heartbeats(store, now):
    begin = {"topic": "orders", "cluster": "c", "isolation": "x"}
    store.execute("begin_audit", id="first", started=now - 900, **begin)
    store.execute("begin_audit", id="second", started=now - 60, **begin)
    store.execute("audit_seen", id="first", now=now - 2)
    store.execute("audit_seen", id="second", now=now - 1)
    job(store, "integrity orders", "integrity", began=now - 60, seen=now - 1)
    assert [one(store, name, now).audit.state for name in ("first", "second")] == ["running", "running"]
    store.execute("audit_seen", id="first", now=now + 99)
    assert [one(store, name, now + 99).audit.state for name in ("first", "second")] == ["running", "dead"]


def test_malformed_ranges_are_ignored(store, now):
    audited(store, "a", at=now - 9, ranges=["what"])
    audited(store, "b", at=now - 9, ranges={"1": [0, 9, 0, 9], "0": [1, 2, 0, 9]})
    assert one(store, "a", now).audit.parts == ()
    assert one(store, "b", now).audit.parts == (AuditedPart(0, 1, 2, 0, 9), AuditedPart(1, 0, 9, 0, 9))


def test_findings_link_to_the_dead_letter_in_the_store(store, now):
    failed = dead_letter(1, failed_at=now - 50)
    DeadLetters(store).add([failed])
    audited(store, "a", at=now - 9, lost=1, given_up_found=1,
            findings=[("given_up_found", failed.message_id, 0, 5, "given up"), *LOST])  # fmt: skip
    (known,) = findings(store, "a", "given_up_found", 10)
    assert (known.dead_letter, known.operation_id) == ("dead", None)
    assert [found.message_id for found in findings(store, "a", "lost", 2)] == ["m-0", "m-2"]
    assert findings(store, "a", "lost", 2)[0].dead_letter is None


def test_undecided_messages_are_counted_and_listed(store, now):
    audited(store, "a", at=now - 9, findings=[("undecided", "m-1", 0, None, "acknowledged"), *LOST], lost=3,
            undecided=1)  # fmt: skip
    page = one(store, "a", now)
    assert page.audit.numbers["undecided"] == 1
    assert page.kinds == ("lost", "undecided")
    assert page.faults == {0: {"lost": 2}, 1: {"lost": 1}}
    assert [kind for kind, *_ in wording.counts(page.audit)] == [
        "lost",
        "duplicated",
        "reordered",
        "undecided",
    ]


def test_a_missing_audit_is_none(store, now):
    assert one(store, "missing", now) is None


def test_the_sources_of_an_audit_are_the_brokers_of_the_producers_and_the_ledger_of_the_topic(store, now):
    assert sources(store, "orders") == AuditSources()
    plain = producer("p", now, settings='{"bootstrap.servers": "broker1:9092"}')
    store.append(Batch("p", 0, producer=plain))
    for batch in ledger_batches("l", [Acked(SESSION, 1, "orders", 0, 7)], cluster_id="c", sequence=1):
        store.append(replace(batch, producer=plain._replace(producer_id="l", seen_at=now - 5)))

    assert sources(store, "orders") == AuditSources("broker1:9092", ledger_in_store=True)
    assert sources(store, "payments") == AuditSources("broker1:9092")


def test_the_sources_of_an_audit_name_no_broker_if_the_store_has_several_clusters(store, now):
    for name, cluster in (("a", "c"), ("b", "other")):
        settings = f'{{"bootstrap.servers": "{name}:9092", "security.protocol": "SASL_SSL"}}'
        store.append(Batch(name, 0, producer=producer(name, now, cluster_id=cluster, settings=settings)))

    assert sources(store, None) == AuditSources()
    assert sources(store, None, "other") == AuditSources("b:9092", secured=True)
