"""Test the errors page."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from producer_core.store import Batch
from tests.fixtures.errors import POLICY, error, fill
from tests.fixtures.pages import HOSTILE, counts, dead_letter, links, opened, rows_of, text_of, tiles_of

NOW = 0.0


def shown(page):
    """Return the source of all components of the page."""
    return " ".join(str(item.proto) for item in page.get("bidi_component"))


def test_the_page_of_an_empty_store_has_no_numbers(path, store, monkeypatch):
    page = opened("errors", path, monkeypatch)
    assert not page.exception
    assert "No messages sent in the last 15 min." in text_of(page)
    assert [value for _, value in tiles_of(page)] == ["0", "0", "0", "–", "–", "0"]


def test_the_page_links_to_the_dead_letters_of_codes_and_groups(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", topic="payments")
    assert not page.exception
    assert "dead-letters?topic=payments&code=POLICY_VIOLATION" in links(page)
    assert f"errors?topic=payments&range=5+min&group={POLICY}" in links(page)
    folded = opened("errors", path, monkeypatch, range="5 min", topic="payments", fold="Groups")
    assert f"dead-letters?topic=payments&group={POLICY}" in links(folded)
    assert f"errors?topic=payments&range=5+min&group={POLICY}&fold=Groups" in links(folded)


def test_the_page_names_new_codes(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", fold="Codes")
    assert "New: MSG_SIZE_TOO_LARGE." in text_of(page)
    codes = rows_of(page, "Error codes, most dead letters first")
    assert [row[0].split()[:2] for row in codes][1] == ["MSG_SIZE_TOO_LARGE", "new"]
    assert codes[0][2] == "4 before: 5" and codes[0][3] == "2 unchanged"


def test_a_row_is_an_issue_with_its_state_and_actions(path, store, monkeypatch):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min")
    rows = rows_of(page, "Issues, a code on a topic, most dead letters first")
    assert [row[0].split()[0] for row in rows] == ["POLICY_VIOLATION", "MSG_SIZE_TOO_LARGE", "_TIMED_OUT"]
    policy, size, timed_out = rows
    assert (policy[2], policy[3]) == ("4 before: 5", "2 unchanged")
    assert policy[5].startswith("failing now") and "4 dead letters" in policy[5]
    assert policy[6] == "Replay or clear Details"
    assert size[0].split()[:2] == ["MSG_SIZE_TOO_LARGE", "new"]
    assert timed_out[6] == "none"


@pytest.mark.parametrize("fold", ["Issues", "Groups", "Codes", "Kinds", "Topics"])
def test_the_list_has_one_table_whatever_it_is_folded_by(path, store, monkeypatch, fold):
    fill(store)
    page = opened("errors", path, monkeypatch, range="5 min", fold=fold)
    assert not page.exception
    tables = {
        "Issues": "Issues, a code on a topic, most dead letters first", "Groups": "Groups of dead letters, largest first",
        "Codes": "Error codes, most dead letters first", "Kinds": "Kinds of errors", "Topics": "Topics, most dead letters first",
    }  # fmt: skip
    assert {name for name, alt in tables.items() if alt in shown(page)} == {fold}


@pytest.mark.slow
def test_texts_are_masked_and_names_are_never_markup(path, store, monkeypatch):
    fill(store)
    error_text = f"{HOSTILE} password=hunter2"
    DeadLetters(store).add([dead_letter(9, failed_at=NOW - 5, topic=HOSTILE, code="ODD", text=error_text)])
    store.append(Batch("q", 0, (counts(NOW - 5, HOSTILE, dead=1),), (), (error(5, "ODD", topic=HOSTILE),)))
    page = opened("errors", path, monkeypatch)
    assert not page.exception
    assert not any(HOSTILE in element.body for element in page.get("html"))
    assert not any(HOSTILE in element.value for element in page.markdown)
    assert "hunter2" not in text_of(page)
    assert all("evil" not in href or href.startswith(("errors?", "dead-letters?")) for href in links(page))


def test_an_unreadable_store_shows_an_error_and_the_page_stays_up(path, store, monkeypatch):
    from producer_core.dashboard.views import errors as view
    from producer_core.errors import StoreLocked

    def locked(*_):
        raise StoreLocked("Another process holds it.")

    monkeypatch.setattr(view, "read_errors", locked)
    page = opened("errors", path, monkeypatch)
    assert not page.exception
    assert "Another process holds it." in text_of(page)
