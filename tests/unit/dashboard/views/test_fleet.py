"""Test the fleet page."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.fleet import fleet
from producer_core.dashboard.views.fleet import matches, read_fleet
from producer_core.dlq import DeadLetters
from producer_core.store import Batch
from tests.fixtures.fleet import add
from tests.fixtures.pages import (
    HOSTILE,
    VIEW,
    dead_letter,
    links,
    opened,
    producer,
    rows_of,
    text_of,
    tiles_of,
)

NOW = 0.0
LIST = "Producers, unhealthy ones first"


def test_every_word_of_a_search_must_match(store):
    add(store, "web", host="node-7")
    (member,) = fleet(store, VIEW, NOW).members
    assert matches(member, "WEB node") and matches(member, "") and not matches(member, "web node-8")


def test_the_page_of_an_empty_store_has_no_numbers_and_shows_how_to_add_producers(path, store, monkeypatch):
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    assert "No producer has written to this store yet." in text_of(page)
    assert "producer-core telemetry collect" in page.code[0].value
    assert [value for _, value in tiles_of(page)] == ["0", "0", "0/s", "–", "–", "–", "–", "0"]


@pytest.mark.slow
def test_the_page_lists_producers_by_problem_with_links(path, store, monkeypatch):
    add(store, "web")
    add(store, "batch", connected=False, connection_error="Connection refused")
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 5, producer_id="web")])
    page = opened("fleet", path, monkeypatch, range="5 min")
    assert not page.exception
    first, second = rows_of(page, LIST)
    assert first[0].startswith("batch") and "no connection: Connection refused" in first[1]
    assert second[0].startswith("web") and second[5] == "1"
    assert "dead-letters?producer_id=web" in links(page)
    assert "./?range=5+min&producer=web" in links(page)


@pytest.mark.slow
def test_search_and_problem_filter_narrow_the_list(path, store, monkeypatch):
    add(store, "web")
    add(store, "batch", connected=False)
    assert [row[0].split()[0] for row in rows_of(opened("fleet", path, monkeypatch, find="web"), LIST)] == [
        "web"
    ]
    for scope, shown in (("Unhealthy", ["batch"]), ("a label of another version", ["batch", "web"])):
        page = opened("fleet", path, monkeypatch, who=scope)
        assert [row[0].split()[0] for row in rows_of(page, LIST)] == shown


@pytest.mark.slow
def test_all_producers_are_counted_and_the_worst_are_listed(path, store, monkeypatch):
    with store.borrow(write=True):
        for number in range(300):
            name = f"p-{number:04d}"
            store.append(
                Batch(
                    name,
                    0,
                    producer=producer(name, NOW + 3600, host=f"h-{number % 9}", connected=number != 150),
                )
            )
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    rows = rows_of(page, LIST)
    assert len(rows) == 50 and "not connected yet" in rows[0][1]
    assert "300 producers running on 9 hosts. 1 has no broker connection." in text_of(page)
    assert "Showing the first 50 of 300, worst first." in text_of(page)


def test_names_are_never_markup(path, store, monkeypatch):
    add(
        store,
        "odd",
        client_id=HOSTILE,
        host=HOSTILE,
        version=HOSTILE,
        connected=False,
        connection_error=HOSTILE,
    )
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    assert not any(HOSTILE in element.body for element in page.get("html"))
    assert "onerror" in text_of(page)


@pytest.mark.slow
def test_one_producer_has_no_chart_of_outliers(path, store, monkeypatch):
    add(store, "web")
    page = opened("fleet", path, monkeypatch, range="5 min")
    assert not page.exception and "Outliers" not in text_of(page)

    for name in ("batch", "mail"):
        add(store, name)
    read_fleet.clear()
    assert "Outliers" in text_of(opened("fleet", path, monkeypatch, range="5 min"))


def test_names_and_states_are_not_cut_in_the_middle_of_a_word(path, store, monkeypatch):
    name, host = (
        "a-name-that-is-longer-than-forty-letters-for-sure",
        "node-0123456789.a-long-domain.of-a-cluster.example",
    )
    error = "The broker refused the connection because its certificate has expired. " * 4
    add(
        store,
        "long",
        client_id=name,
        host=host,
        version="2026.11.27+build.of.a.branch",
        connected=False,
        connection_error=error,
    )
    (row,) = rows_of(opened("fleet", path, monkeypatch), LIST)

    assert row[0].split() == [name, f"{host},", "process", "7", "version", "2026.11.27+build.of.a.branch"]
    shown = row[1].removesuffix(" …")
    assert row[1].endswith(" …") and f"no connection: {error}".startswith(f"{shown} ")
