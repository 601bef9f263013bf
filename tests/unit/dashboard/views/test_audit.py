"""Test the page of one audit."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from tests.fixtures.audits import LOST, audited, job
from tests.fixtures.pages import HOSTILE, dead_letter, links, opened, rows_of, text_of


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert len(rows_of(page, "Other audits of this topic, latest first")) == 1
    assert {"fleet?audit=a-1&kind=duplicated", "fleet?audit=older", "fleet"} <= set(links(page))
    assert any("found/a-1/*.parquet" in code.value for code in page.code)
    assert "4 records without a producer-core message id" in text_of(page)

    other = opened("fleet", path, monkeypatch, audit="a-1", kind="duplicated")
    assert rows_of(other, "Findings: Duplicated")[0][4] == "dead letter, pending"
    assert any(f"letter={failed.message_id}" in href for href in links(other))


@pytest.mark.slow
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


@pytest.mark.slow
def test_names_of_topics_and_findings_are_never_markup(path, store, now, monkeypatch):
    audited(store, "a-1", at=now - 90, topic=HOSTILE, lost=1, sentence=HOSTILE, path=HOSTILE,
            findings=[("lost", HOSTILE, 0, 1, HOSTILE)])  # fmt: skip
    job(store, HOSTILE, "integrity", began=now - 9, seen=now, message=HOSTILE)
    for address in ({}, {"audit": "a-1"}):
        page = opened("fleet", path, monkeypatch, **address)
        assert not page.exception
        assert not any(HOSTILE in element.body for element in page.get("html"))
        assert "onerror" in text_of(page)
