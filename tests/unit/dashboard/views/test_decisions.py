"""Test the time to decision on the dead letters page."""

from __future__ import annotations

import time

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.objectives import DecisionObjective, set_objective
from tests.fixtures.dead_letter_pages import dead_letter, page_of
from tests.fixtures.pages import html_of, rows_of

HOUR = 3600.0
TABLE = "Time to decision by topic"


def failed(number, hours_ago, **changes):
    at = time.time() - hours_ago * HOUR
    return dead_letter(number, failed_at=at, accepted_at=at, attempts=(), **changes)


@pytest.mark.slow
def test_without_dead_letters_there_is_no_table_and_no_warning(path, store, monkeypatch):
    page = page_of(path, monkeypatch)

    assert rows_of(page, TABLE) == []
    assert "No dead letter is pending or was decided in this time." in html_of(page)
    assert "must be decided" not in html_of(page)


@pytest.mark.slow
def test_a_topic_shows_its_objective_what_is_late_and_what_comes_next(path, store, monkeypatch):
    DeadLetters(store).add(
        [failed(1, 5), failed(2, 3.5), failed(3, 1, topic="refunds", verdict="possibly_persisted")]
    )
    set_objective(store, "payments", DecisionObjective(95, 4 * HOUR), who="ada", origin="test")

    page = page_of(path, monkeypatch)

    payments, refunds = rows_of(page, TABLE)
    assert payments[:4] == ["payments", "95% within 4 h", "0.00% of 1", "2, 1 late"]
    assert "(in 30 min); 1 within an hour" in payments[4] and payments[5:] == ["–", "–", "not needed"]
    assert refunds[:5] == ["refunds", "–", "–", "1", "–"]
    assert refunds[7] == "unknown: the cluster was not asked"
    warning = html_of(page)
    assert (
        "payments: 0.00% decided in time, 1 late; 1 must be decided within an hour, the first by" in warning
    )


@pytest.mark.slow
def test_the_quantiles_follow_the_range(path, store, monkeypatch):
    DeadLetters(store).add([failed(1, 72)])
    DeadLetters(store, clock=lambda: time.time() - 48 * HOUR).archive(
        DeadLetterFilter(), who="ada", origin="cli"
    )

    page = page_of(path, monkeypatch)
    assert rows_of(page, TABLE)[0][5:7] == ["24 h", "24 h"]
    page.segmented_control(key="decisions-range").set_value("24 hours").run()

    assert rows_of(page, TABLE) == []


@pytest.mark.slow
def test_dead_letters_of_a_cluster_that_no_longer_exists_are_told_apart(path, store, monkeypatch):
    DeadLetters(store).add([failed(1, 5, cluster_id="embedded-1"), failed(2, 5, cluster_id="c")])

    page = page_of(path, monkeypatch)

    shown = html_of(page)
    assert "1 dead letter pending (limit 10,000), and 1 of clusters that no longer exist" in shown
    assert "1 dead letter is of a cluster that no longer exists. No alert counts it." in shown
    verdicts = {row[5] for row in rows_of(page, "Dead letters, latest first")}
    assert verdicts == {"rejected", "rejected, cluster no longer exists"}
    page.button(key="dead_letters_cluster_embedded-1").click().run()
    assert len(rows_of(page, "Dead letters, latest first")) == 1
