"""Test the page of one group of dead letters."""

from __future__ import annotations

import time

import pytest

from producer_core.dlq import DeadLetters
from tests.fixtures.dead_letters import dead_letter
from tests.fixtures.errors import POLICY, fill
from tests.fixtures.pages import links, opened, text_of


@pytest.mark.slow
def test_the_address_opens_one_group(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", group=POLICY)
    assert not page.exception
    text = text_of(page)
    assert "2 dead letters, unchanged" in text and "4 dead" in text
    assert f"dead-letters?group={POLICY}" in links(page)


def test_a_missing_group_shows_a_note(path, store, monkeypatch):
    page = opened("errors", path, monkeypatch, group="<b>missing</b>")
    assert not page.exception
    assert "No dead letter in this store has the cause &lt;b&gt;missing&lt;/b&gt;" in text_of(page)


def test_the_advice_for_messages_that_were_not_sent_is_to_send_them_again(path, store, monkeypatch):
    fields = {"code": "_MSG_TIMED_OUT", "fingerprint": "unsent", "failed_at": time.time()}
    DeadLetters(store).add([dead_letter(1, verdict="not_sent", **fields)])
    page = opened("errors", path, monkeypatch, group="unsent")

    assert not page.exception
    group = text_of(page).partition("What to do")[2].partition("In this range")[0]
    assert "The message never left the client: it is safe to send again." in group
