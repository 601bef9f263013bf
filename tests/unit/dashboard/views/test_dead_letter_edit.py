"""The edit form of the open record: drafts that outlive the session, differences, saving and conflicts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from producer_core.dashboard import actions
from producer_core.dashboard.components import draft_form
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.revisions import drafts
from producer_core.dlq.revisions.drafts import Drafts
from producer_core.dlq.revisions.editor import Editor
from tests.fixtures.dead_letter_pages import dead_letter, page_of
from tests.fixtures.edits import add, edit, fields, malformed
from tests.fixtures.pages import html_of
from tests.fixtures.replays import message_id

ONE = message_id(1)
EDITED = '{"n": 2, "password": "***"}'


class Browser:
    """Reports the texts that a test types, as the component does, and holds what it was given."""

    def __init__(self, client="tab-1"):
        self.client, self.number, self.data, self.typed = client, 0, None, None

    def __call__(self, *, data, **more):
        self.data = data
        return {"typed": self.typed}

    @property
    def texts(self):
        return {field["name"]: field["text"] for field in self.data["fields"]}

    def type(self, page, **texts):
        self.number += 1
        self.typed = {
            "form": self.data["form"], "client": self.client, "number": self.number, "stamp": self.data["stamp"],
            "texts": self.texts | texts,
        }  # fmt: skip
        page.run()
        page.run()  # the fields get what the first run saved
        assert not page.exception


@pytest.fixture
def browser(monkeypatch):
    return at(Browser(), monkeypatch)


def at(browser, monkeypatch):
    """Let this browser show the next pages."""
    monkeypatch.setattr(draft_form, "_component", lambda: browser)
    return browser


def open_form(path, store, monkeypatch, **changes):
    DeadLetters(store).add([dead_letter(1, message_id=ONE, **changes)])
    page = page_of(path, monkeypatch, letter=ONE)
    page.button(key=f"dead_letter_edit_{ONE}").click().run()
    assert not page.exception
    return page


def save_button(page):
    return page.button(key=f"edit_save_{ONE}")


def save(page, browser, value=EDITED, reason="wrong number"):
    browser.type(page, value=value, reason=reason)
    save_button(page).click().run()
    assert not page.exception


def test_an_edit_is_saved_with_its_differences_shown_before(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    assert "hunter2" not in browser.texts["value"] and "No changes yet." in html_of(page)
    assert save_button(page).disabled

    browser.type(page, value=EDITED)
    shown = html_of(page)
    assert "<th scope='row'>n</th><td>1</td><td>2</td>" in shown and save_button(page).disabled
    browser.type(page, reason="wrong number")
    save_button(page).click().run()

    assert "Edited 1 dead letter." in html_of(page) and "A replay sends revision 1" in html_of(page)
    assert json.loads(Editor(store).decoded(ONE).value) == {"n": 2, "password": "hunter2"}
    assert Drafts(store, actions.user()).find(ONE) is None
    (revision,) = Editor(store).lineage(ONE).revisions
    assert (revision.who, revision.origin, revision.reason) == (actions.user(), "dashboard", "wrong number")


@pytest.mark.slow
def test_a_draft_is_shown_again_in_a_new_session(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value='{"n": ')
    browser.type(page, headers='{"trace": "x"}')
    assert "The value cannot be saved: it is not JSON" in html_of(page)

    page_of(path, monkeypatch, letter=ONE)

    assert browser.texts["value"] == '{"n": ' and browser.texts["headers"] == '{"trace": "x"}'


@pytest.mark.slow
def test_a_change_in_another_tab_is_shown(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value='{"n": ')
    other = at(Browser("tab-2"), monkeypatch)
    second = page_of(path, monkeypatch, letter=ONE)
    assert other.texts["value"] == '{"n": '
    other.type(second, value=EDITED)

    at(browser, monkeypatch)
    page.run()

    assert browser.texts["value"] == EDITED and browser.data["client"] == "tab-2"
    browser.type(page, value='{"n": 3}')
    assert Drafts(store, actions.user()).find(ONE).value == '{"n": 3}'


@pytest.mark.slow
def test_a_report_that_a_reconnected_browser_repeats_does_not_overwrite_a_later_draft(
    path, store, monkeypatch, browser
):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value='{"n": 1, "old": 1}')
    other = at(Browser("tab-2"), monkeypatch)
    other.type(page_of(path, monkeypatch, letter=ONE), value=EDITED)

    at(browser, monkeypatch)  # the server was restarted, and the browser repeats its last report
    page_of(path, monkeypatch, letter=ONE)
    assert Drafts(store, actions.user()).find(ONE).value == EDITED


@pytest.mark.slow
def test_a_report_that_a_session_did_not_get_is_saved_by_the_next_session(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value='{"n": ')
    browser.number += 1
    browser.typed = browser.typed | {"number": browser.number, "texts": browser.texts | {"value": EDITED}}

    page_of(path, monkeypatch, letter=ONE)

    assert Drafts(store, actions.user()).find(ONE).value == EDITED


@pytest.mark.slow
def test_a_report_that_could_not_be_saved_is_saved_when_the_browser_repeats_it(
    path, store, monkeypatch, browser
):
    page = open_form(path, store, monkeypatch)
    with monkeypatch.context() as limited:
        limited.setattr(drafts, "MAX_TEXT", 1)
        browser.type(page, value=EDITED)
        assert "so it was not saved" in html_of(page)
        assert Drafts(store, actions.user()).find(ONE).value != EDITED

    page.run()
    assert "so it was not saved" not in html_of(page)
    assert Drafts(store, actions.user()).find(ONE).value == EDITED


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["x", {}, {"form": ONE}, {"form": ONE, "client": 1, "number": 1, "stamp": 0, "texts": {}},
    {"form": ONE, "client": "c", "number": True, "stamp": 0, "texts": {}}, {"form": ONE, "client": "c", "number": 1, "stamp": 0, "texts": {"value": 7}},
    {"form": "other", "client": "c", "number": 1, "stamp": 0, "texts": {"value": "x"}}])  # fmt: skip
def test_a_report_that_is_not_valid_is_ignored(path, store, monkeypatch, browser, typed):
    page = open_form(path, store, monkeypatch)
    before = browser.texts
    browser.typed = typed
    page.run()
    assert not page.exception and browser.texts == before


@pytest.mark.slow
def test_a_text_that_was_typed_after_the_differences_were_shown_is_not_saved_with_them(
    path, store, monkeypatch, browser
):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value=EDITED, reason="x")
    own = Drafts(store, actions.user())
    own.save(ONE, replace(own.find(ONE), value='{"n": 3}', report=9))
    save_button(page).click().run()

    assert "The text has changed since." in html_of(page)
    assert own.find(ONE).value == '{"n": 3}' and Editor(store).lineage(ONE).revisions == ()


@pytest.mark.slow
def test_an_edit_that_was_saved_elsewhere_is_a_conflict_and_the_draft_stays(
    path, store, monkeypatch, browser
):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value=EDITED)
    edit(store, fields({"other": True}), ONE)

    browser.type(page, reason="wrong number")
    assert "Someone saved another edit" in html_of(page) and save_button(page).disabled
    page.button(key=f"edit_rebase_{ONE}").click().run()
    shown = html_of(page)
    assert "<th scope='row'>other</th><td>true</td><td><i>none</i></td>" in shown
    browser.type(page, value='{"n": 2, "password": "***", "other": true}')
    save_button(page).click().run()

    assert json.loads(Editor(store).decoded(ONE).value) == {"n": 2, "password": "hunter2", "other": True}


@pytest.mark.slow
def test_a_masked_field_cannot_be_edited(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value='{"n": 1, "password": "new"}')
    browser.type(page, reason="x")

    assert "password is masked and cannot be edited." in html_of(page) and save_button(page).disabled


@pytest.mark.slow
def test_a_saved_edit_is_undone(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    save(page, browser)
    page.button(key=f"edit_undo_{ONE}").click().run()

    shown = html_of(page)
    assert "Undid 1 edit." in shown and "A replay sends revision" not in shown and "Undone" in shown


@pytest.mark.slow
def test_the_edit_of_a_doubtful_record_opens_as_a_new_message(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch, verdict="possibly_persisted")
    browser.type(page, value=EDITED)
    assert "The edit becomes a new message" in html_of(page)
    browser.type(page, reason="x")
    save_button(page).click().run()

    assert "An edit replaces this record." in html_of(page)
    (new,) = DeadLetters(store).ids(DeadLetterFilter())
    page.button(key="dead_letter_replacement").click().run()
    assert page.query_params["letter"] in (new, [new]) and "A replay sends revision 1" in html_of(page)


@pytest.mark.slow
def test_a_discarded_draft_is_gone(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    browser.type(page, value=EDITED)
    page.button(key=f"edit_discard_{ONE}").click().run()

    assert Drafts(store, actions.user()).find(ONE) is None
    page.button(key=f"dead_letter_edit_{ONE}").click().run()
    assert browser.texts["value"] != EDITED


@pytest.mark.slow
def test_hostile_texts_of_an_edit_are_escaped(path, store, monkeypatch, browser):
    page = open_form(path, store, monkeypatch)
    hostile = "<script>window.pwned=1</script>"
    save(page, browser, value=json.dumps({"n": hostile, "password": "***", hostile: 1}), reason=hostile)

    shown = html_of(page)
    assert "<script>window" not in shown and "&lt;script&gt;window.pwned=1" in shown


@pytest.mark.slow
def test_a_record_that_is_not_pending_has_no_edit_button(path, store, monkeypatch, browser):
    DeadLetters(store).add([dead_letter(1, message_id=ONE)])
    actions.clear(store, DeadLetterFilter())
    page = page_of(path, monkeypatch, letter=ONE, state="any")

    assert not [one for one in page.button if (one.key or "").startswith("dead_letter_edit_")]


def test_the_form_of_malformed_input_names_its_place_and_shows_no_error_before_it_is_edited(
    path, store, monkeypatch, browser
):
    (line,) = add(store, malformed(7))
    page = page_of(path, monkeypatch, letter=line)
    assert "Not sent: this input is not a valid message. Edit it, then replay it." in html_of(page)
    page.button(key=f"dead_letter_edit_{line}").click().run()

    shown = html_of(page)
    assert "The value is not JSON. Correct it below." in shown and "No changes yet." in shown
    assert "This is line 7 of orders.jsonl." in shown
    assert "no fields that can be edited" not in shown

    browser.type(page, value='{"order": 1, "amount": 2}')
    assert "<th scope='row'>the value</th><td>{&quot;order&quot;: 1,, &quot;amount&quot;: 2}</td>" in html_of(
        page
    )
    browser.type(page, value='{"order": 1,')
    assert "The value cannot be saved: it is not JSON" in html_of(page)
