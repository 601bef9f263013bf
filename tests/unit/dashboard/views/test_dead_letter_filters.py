"""Test the filters of the dead letters page."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery, dead_letter_query
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures.dead_letter_pages import add_runner, dead_letter, page_of
from tests.fixtures.pages import html_of


@pytest.mark.slow
def test_filters_and_address_stay_in_sync(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, topic="orders")
    assert page.selectbox(key="dead_letters_topic").value == "orders"
    assert "Topic orders" in html_of(page)
    assert page.button(key="replay").label.startswith("Replay 1")
    page.selectbox(key="dead_letters_topic").set_value("payments").run()
    assert page.query_params["topic"] in ("payments", ["payments"])
    page.selectbox(key="dead_letters_state").set_value("any").run()
    assert page.query_params["state"] in ("any", ["any"])
    page.button(key="dead_letters_all").click().run()
    assert "topic" not in page.query_params
    assert page.selectbox(key="dead_letters_topic").value is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given", "written"),
    [
        ("text", "policy", "policy"), ("body", "needle", "needle"), ("key", "0x00ff", "0x00ff"), ("message_id", "m-1", "m-1"),
        ("group", "ab12", "ab12"), ("ids", "m-1\nm-2, m-1", "m-1,m-2"), ("cluster_id", "c", "c"),
        ("code", "POLICY_VIOLATION", "POLICY_VIOLATION"), ("verdict", "rejected", "rejected"), ("span", "1 hour", "1 hour"),
    ],
)  # fmt: skip
def test_every_filter_field_has_a_control(path, store, monkeypatch, name, given, written):
    DeadLetters(store).add([dead_letter(1)])
    page = page_of(path, monkeypatch)
    control = next(
        one
        for kind in (page.selectbox, page.text_input, page.text_area)
        for one in kind
        if one.key == f"dead_letters_{name}"
    )
    control.set_value(given).run()
    assert not page.exception
    value = page.query_params["range" if name == "span" else name]
    assert value in (written, [written])
    page.run()
    assert not page.exception


@pytest.mark.slow
def test_show_only_these_puts_the_ids_into_the_address(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, selected=("m-1",), topic="orders", letter="m-2")
    page.button(key="dead_letters_only").click().run()
    query, problem = dead_letter_query({name: "".join(text) for name, text in page.query_params.items()})
    assert (query, problem) == (
        DeadLetterQuery(DeadLetterFilter(ids=("m-1",), state=None), dead_letter="m-2"),
        None,
    )
