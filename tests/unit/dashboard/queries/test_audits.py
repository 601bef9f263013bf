"""Test jobs and audits on the fleet page: queries on a real store, texts, and the page of one audit."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.queries.audits import AuditedPart, audits, findings, one
from producer_core.dashboard.queries.jobs import jobs, state_of
from producer_core.dashboard.wording import audits as wording
from producer_core.dashboard.wording import jobs as job_wording
from producer_core.dlq import DeadLetters
from producer_core.store import Batch, Store
from tests.fixtures.audits import WHOLE, audited, job, job_ended
from tests.fixtures.pages import HOSTILE, dead_letter, links, opened, producer, rows_of, text_of

AUDITS = "The last audit of each topic, faults first"
JOBS = "Pipeline jobs, dead ones first"
LOST = [("lost", f"m-{n}", n % 2, 10 * n, f"acknowledged at partition {n % 2}, offset {10 * n}") for n in range(3)]  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


@pytest.fixture
def now():
    return float(int(time.time()))


# jobs


def test_a_running_job_has_progress_and_lag(store, now):
    job(store, began=now - 100, seen=now - 1, records_done=120, records_total=480, lag=9, message="reads")
    (found,) = jobs(store, now)
    assert (found.state, found.share, found.lag, found.message) == ("running", 0.25, 9, "reads")


@pytest.mark.parametrize(
    ("state", "silent", "text"),
    [("running", 59, "running"), ("running", 61, "dead"), ("done", 999, "done"), ("failed", 999, "failed")],
)
def test_a_running_job_without_a_heartbeat_for_a_minute_is_dead(state, silent, text):
    assert state_of(state, silent) == text


def test_jobs_are_sorted_dead_first_then_latest(store, now):
    job(store, "old", began=now - 900, seen=now - 800)
    job_ended(store, "old", "done", began=now - 900, ended=now - 800)
    job(store, "new", began=now - 90, seen=now - 80)
    job_ended(store, "new", "failed", began=now - 90, ended=now - 80)
    job(store, "dead", began=now - 9000, seen=now - 61)
    job(store, "runs", began=now - 500, seen=now)
    assert [found.name for found in jobs(store, now)] == ["dead", "runs", "new", "old"]


def test_progress_is_in_the_unit_of_the_job():
    assert job_wording.progress("integrity", 12_000, 50_000, 0.24) == "24.0 % of 50,000 records"
    assert job_wording.progress("telemetry", 312, None, None) == "312 batches"
    assert job_wording.progress("telemetry", 1, None, None) == "1 batch"
    assert job_wording.progress("reprocess", None, None, None) == "–"
    assert (job_wording.lag(None), job_wording.lag(0), job_wording.lag(1)) == ("–", "none", "1 record")
    assert (job_wording.last_success(None), job_wording.last_success(3.0)) == ("never", "3 s ago")


def test_the_page_shows_jobs_and_marks_dead_ones(path, store, now, monkeypatch):
    job(store, began=now - 600, seen=now, records_done=312, lag=0, last_success_at=now - 1, message="merged")
    job(store, "integrity orders", "integrity", began=now - 600, seen=now - 200, message="token=hunter2")
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    dead, runs = rows_of(page, JOBS)
    assert "dead: never finished, last seen" in dead[1] and dead[0].startswith("Audit integrity orders")
    assert "hunter2" not in text_of(page)
    assert runs[2:4] == ["312 batches", "none"] and "running for 10 min" in runs[1]
    assert "1 job is dead" in text_of(page) and "No telemetry job running" not in text_of(page)
    assert not any("pipeline telemetry" in code.value for code in page.code)


def test_a_stopped_telemetry_job_is_reported_before_silent_producers(path, store, now, monkeypatch):
    store.append(Batch("web", 0, producer=producer("web", now, seen_at=now - 400)))
    job(store, began=now - 900, seen=now - 400)
    text = text_of(opened("fleet", path, monkeypatch))
    cause, effect = "No telemetry job running; last seen 7 min ago.", "1 is not reporting"
    assert 0 <= text.find(cause) < text.find(effect)


# audits


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


def test_gaps_in_the_ledgers_are_reported(path, store, now, monkeypatch):
    audited(
        store, "a-1", at=now - 90, ledger_lost=7, strange=1, notes=f"Its settings may not be read.\n{HOSTILE}"
    )
    page = opened("fleet", path, monkeypatch, audit="a-1")
    assert not page.exception
    text = text_of(page)
    assert "7 acknowledgements; the buffer was full" in text and "1 record or row; a newer" in text
    assert "Its settings may not be read." in text
    assert not any(HOSTILE in element.body for element in page.get("html"))


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
        ({"0": [300, 400, 0, 400]}, {}, "a part: 100 offsets of 1 partition"),
        ({"0": [400, 400, 0, 400]}, {}, "nothing new, 1 partition"),
        ({"0": [0, 400, 0, 400]}, {"since": 0.0}, "from 1970-01-01 00:00:00: 400 offsets of 1 partition"),
        ({}, {}, "–"),
    ],
)
def test_the_audited_range_is_shown(store, now, ranges, more, text):
    audited(store, "a", at=now - 9, ranges=ranges, **more)
    assert wording.audited_range(one(store, "a", now).audit, None, now) == text


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


def test_commands_quote_their_arguments():
    assert "--store 'my store.duckdb'" in wording.command("my store.duckdb")
    assert wording.query("it's") == "SELECT * FROM 'it''s/*.parquet'"


def test_the_summary_names_three_topics_with_faults_at_most(store, now):
    for number in range(5):
        audited(store, f"a{number}", at=now - 9 - number, topic=f"t{number}", lost=5 - number, reordered=1)
    text = wording.faults(audits(store, None, now))
    assert text.startswith("Audit faults found: t0 (5 lost and 1 out of order), t1 (")
    assert "and 2 more topics" in text
    assert wording.faults(()) == ""


# the pages


def test_an_empty_store_shows_the_audit_command(path, store, monkeypatch):
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    assert "No topic has been audited yet" in text_of(page)
    assert any(f"pipeline integrity --topic TOPIC --ledger-topic telemetry -b BROKER:9092 --store {path}" in code.value
               for code in page.code)  # fmt: skip


def test_the_audit_command_and_its_options_exist():
    from producer_core.cli.pipeline.integrity import integrity

    known = {option for parameter in integrity.params for option in parameter.opts}
    assert {word for word in wording.command("s").split() if word.startswith("-")} <= known


def test_the_fleet_page_links_to_the_audit(path, store, now, monkeypatch):
    audited(store, "a-1", at=now - 90, lost=3, expired=2, sentence="orders: of 1,000 messages 3 are lost.")
    audited(store, "a-2", at=now - 80, topic="compact", auditable=False, sentence="compact is compacted.")
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    orders, compact = rows_of(page, AUDITS)
    assert orders[:5] == [
        "orders",
        "orders: of 1,000 messages 3 are lost. Also 2 expired.",
        "3",
        "none",
        "none",
    ]
    assert orders[6] == "whole topic, 2 partitions"
    assert compact[0] == "compact unauditable" and compact[2] == "?"
    assert "fleet?audit=a-1" in links(page)
    assert "orders (3 lost)" in text_of(page)


def test_the_audit_page_shows_findings_positions_and_parameters(path, store, now, monkeypatch):
    failed = dead_letter(1, failed_at=now - 50)
    DeadLetters(store).add([failed])
    audited(store, "older", at=now - 900)
    audited(store, "a-1", at=now - 90, lost=3, duplicated=1, path="found/a-1", foreign_records=4,
            findings=[*LOST, ("duplicated", failed.message_id, 1, 7, "a copy")])  # fmt: skip
    page = opened("fleet", path, monkeypatch, audit="a-1")
    assert not page.exception
    assert [row[0] for row in rows_of(page, "Findings: Lost")] == ["m-0", "m-2", "m-1"]
    assert [row[:2] for row in rows_of(page, "Result by kind of finding")] == [
        ["Lost", "3"],
        ["Duplicated", "1"],
        ["Out of order", "none"],
    ]
    assert rows_of(page, "Offsets read, by partition")[0] == [
        "Partition 0",
        "0",
        "400",
        "0",
        "400",
        "2",
        "none",
        "none",
    ]
    assert len(rows_of(page, "Other audits of this topic, the latest first")) == 1
    assert {"fleet?audit=a-1&kind=duplicated", "fleet?audit=older", "fleet"} <= set(links(page))
    assert any("found/a-1/*.parquet" in code.value for code in page.code)
    assert "4 records without a producer-core message id" in text_of(page)

    other = opened("fleet", path, monkeypatch, audit="a-1", kind="duplicated")
    assert rows_of(other, "Findings: Duplicated")[0][4] == "dead letter, pending"
    assert any(f"letter={failed.message_id}" in href for href in links(other))


def test_the_first_findings_are_shown_and_more_on_request(path, store, now, monkeypatch):
    many = [("lost", f"m-{n:04d}", 0, n, "acknowledged") for n in range(130)]
    audited(store, "a-1", at=now - 90, lost=130, findings=many)
    page = opened("fleet", path, monkeypatch, audit="a-1")
    assert len(rows_of(page, "Findings: Lost")) == 100
    assert "Showing the first 100 of 130" in text_of(page)
    assert "fleet?audit=a-1&kind=lost&findings=more" in links(page)
    more = opened("fleet", path, monkeypatch, audit="a-1", findings="more")
    assert len(rows_of(more, "Findings: Lost")) == 130


@pytest.mark.parametrize("state", ["killed", "failed"])
def test_an_unfinished_audit_shows_its_state(path, store, now, monkeypatch, state):
    store.execute(
        "begin_audit", id="a", topic="orders", cluster="c", started=now - 99, isolation="read_committed"
    )
    if state == "failed":
        store.execute("fail_audit", id="a", now=now, sentence="No broker answers.")
    page = opened("fleet", path, monkeypatch, audit="a")
    assert not page.exception
    text = "The audit failed: No broker answers." if state == "failed" else "was killed"
    assert text in text_of(page)


def test_an_unknown_audit_shows_a_note(path, store, monkeypatch):
    page = opened("fleet", path, monkeypatch, audit=HOSTILE)
    assert not page.exception
    assert "is not in this store" in text_of(page) and "fleet" in links(page)
    assert not any(HOSTILE[:40] in element.body for element in page.get("html"))


def test_names_of_topics_and_findings_are_never_markup(path, store, now, monkeypatch):
    audited(store, "a-1", at=now - 90, topic=HOSTILE, lost=1, sentence=HOSTILE, path=HOSTILE,
            findings=[("lost", HOSTILE, 0, 1, HOSTILE)])  # fmt: skip
    job(store, HOSTILE, "integrity", began=now - 9, seen=now, message=HOSTILE)
    for address in ({}, {"audit": "a-1"}):
        page = opened("fleet", path, monkeypatch, **address)
        assert not page.exception
        assert not any(HOSTILE in element.body for element in page.get("html"))
        assert "onerror" in text_of(page)
