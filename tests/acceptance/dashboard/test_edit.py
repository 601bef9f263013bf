"""Test the edit form in Chromium: what a user typed outlives a cut connection, a reload and a killed server."""

from __future__ import annotations

import json

import pytest

from producer_core._internal.actor import current_actor
from producer_core.dashboard.theme import asset
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.revisions.drafts import Drafts
from producer_core.dlq.revisions.editor import Editor
from producer_core.store import Store
from tests.acceptance.browsing import button, go, message, served, window
from tests.support import eventually

pytestmark = pytest.mark.browser

_SOCKETS = """
window.pcSockets = []
const Socket = window.WebSocket
window.WebSocket = class extends Socket { constructor(...all) { super(...all); window.pcSockets.push(this) } }
"""
_CUT = "() => { const open = window.pcSockets.filter(one => one.readyState === 1); open.forEach(one => one.close()); return open.length }"


def open_form(load, page, address, topic):
    """Fail one message, open its record and the form. Return the message id."""
    load.fail(topic, 1)
    (one,) = load.dead_letters.ids(_of(topic))
    go(page, f"{address}dead-letters?topic={topic}&letter={one}")
    button(page, "Edit").click()
    value_field(page).wait_for()
    return one


def _of(topic):
    return DeadLetterFilter(topic=topic)


def value_field(page):
    return page.get_by_label("Value (JSON)")


def draft(load, message_id):
    found = Drafts(Store.open(load.store), current_actor()).find(message_id)
    return None if found is None else found.value


def test_an_edit_outlives_a_cut_connection_a_reload_and_another_tab(load, browser, address):
    with window(browser) as page:
        page.add_init_script(_SOCKETS)
        one = open_form(load, page, address, "edited")
        field = value_field(page)

        field.fill('{"amount": 1')  # typed, without leaving the field
        eventually(lambda: draft(load, one) == '{"amount": 1')
        for text in ("2", ", "):  # twice: the first cut may hit the report of the text before
            field.press("End")
            assert page.evaluate(_CUT) > 0
            field.press_sequentially(text)  # while the page is disconnected
            page.wait_for_function("() => window.pcSockets.some(one => one.readyState === 1)")
        assert field.input_value() == '{"amount": 12, '
        eventually(lambda: draft(load, one) == '{"amount": 12, ')
        assert field.input_value() == '{"amount": 12, '

        page.reload()
        assert_value(page, '{"amount": 12, ')
        other = page.context.new_page()
        go(other, page.url)
        assert_value(other, '{"amount": 12, ')
        message(other, "The value cannot be saved: it is not JSON")
        other.close()

        value_field(page).fill('{"amount": 12}')
        page.locator(".pc-differences").filter(has_text="12").wait_for()
        page.get_by_label("Reason").fill("wrong amount")
        save = button(page, "Save edit")
        eventually(save.is_enabled)
        save.click()
        message(page, "Edited 1 dead letter.")
        assert draft(load, one) is None
        assert json.loads(Editor(Store.open(load.store)).decoded(one).value) == {"amount": 12}

        load.broker.accept("edited")
        button(page, "Undo edit").wait_for()
        assert page.errors == []


def test_a_draft_outlives_a_killed_server(load, browser, tmp_path):
    with served(load.store, tmp_path) as server, window(browser) as page:
        one = open_form(load, page, server.url, "killed")
        value_field(page).fill('{"amount": 99')
        eventually(lambda: draft(load, one) == '{"amount": 99')
        server.kill()
        server.start()
        page.reload()
        assert_value(page, '{"amount": 99')


_DRAW = """
async ([code, data, anew]) => {
  window.component ??= await import(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })))
  if (anew) document.body.innerHTML = "<div class='pc-draft-form'></div>"
  window.reports ??= []
  window.component.default({ data, parentElement: document.body, setStateValue: (name, value) => window.reports.push(value) })
}
"""
"""Draw the component as Streamlit does: the module is loaded once, and the elements can be replaced."""


class DrawnForm:
    """The component in an empty page, drawn with the texts that the test gives as the server's."""

    def __init__(self, page):
        self.page, self.field = page, value_field(page)
        self.draw("saved", anew=True)

    def draw(self, text, *, stamp=1.0, client="", number=0, anew=False):
        fields = [
            {"name": "value", "label": "Value (JSON)", "text": text, "rows": 3, "placeholder": ""},
            {"name": "reason", "label": "Reason", "text": "", "rows": 1, "placeholder": ""},
        ]
        data = {
            "form": "one", "fields": fields, "stamp": stamp, "client": client, "number": number, "delay": 50,
        }  # fmt: skip
        self.page.evaluate(_DRAW, [asset("components/draft_form.js"), data, anew])

    def reported(self, text):
        """Wait until the page reports this text, and return the report."""
        self.page.wait_for_function("text => window.reports.at(-1)?.texts.value === text", arg=text)
        return self.page.evaluate("() => window.reports.at(-1)")


def test_a_user_types_on_when_the_form_is_drawn_anew_before_the_text_is_reported(browser):
    with window(browser) as page:
        form = DrawnForm(page)
        form.field.fill("typed")

        form.draw("saved", anew=True)
        page.keyboard.type(" on")

        assert form.field.input_value() == "typed on"
        form.reported("typed on")


def test_a_report_that_the_server_did_not_get_is_repeated_and_its_text_stays(browser):
    with window(browser) as page:
        form = DrawnForm(page)
        form.field.fill("first")
        first = form.reported("first")
        form.draw("first", stamp=2.0, client=first["client"], number=first["number"])
        form.field.fill("second")
        second = form.reported("second")

        page.evaluate("() => { window.reports.length = 0 }")  # the connection was cut
        form.draw("first", stamp=2.0, client=first["client"], number=first["number"], anew=True)

        assert form.field.input_value() == "second"
        assert form.reported("second") == second


def test_a_text_that_was_saved_gives_way_to_a_later_one_of_another_page(browser):
    with window(browser) as page:
        form = DrawnForm(page)
        form.field.fill("first")
        report = form.reported("first")
        form.draw("first", stamp=2.0, client=report["client"], number=report["number"])

        form.draw("other", stamp=3.0, client="other", number=1)
        assert form.field.input_value() == "other"
        form.draw("another", stamp=4.0, client="other", number=2, anew=True)
        assert form.field.input_value() == "another"


def assert_value(page, text):
    value_field(page).wait_for()
    eventually(lambda: value_field(page).input_value() == text)
