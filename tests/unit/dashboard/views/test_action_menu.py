"""Test which actions the menus of the pages copy, and that they have the choices that the page shows."""

from __future__ import annotations

import json
import re
import time

import pytest

from producer_core.dashboard import actions
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.auth import access
from producer_core.dashboard.views import reads
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.alert_pages import fire, lost, run
from tests.fixtures.dead_letter_pages import dead_letter as masked_dead_letter
from tests.fixtures.dead_letter_pages import page_of
from tests.fixtures.pages import opened as opened_page
from tests.fixtures.replay_actions import bar, only_replay, redrawn
from tests.fixtures.replay_pages import ALL, opened
from tests.fixtures.replays import add_dead_letters, preflight_done
from tests.unit.dashboard.views.test_dead_letter_edit import EDITED, ONE, Browser, at

store = replay_pages_fixtures.store


def codes_of(page):
    """Return what the menus of the page copy, by action and label."""
    assert not page.exception
    found = {}
    for element in page.get("bidi_component"):
        data = json.loads(element.proto.json or element.proto.mixed.json or "{}")
        for group in data.get("groups", ()) if isinstance(data, dict) else ():
            found[group["name"]] = dict(group["texts"])
    return found


def code(one):
    return dict(one.texts)


@pytest.mark.slow
def test_the_selection_has_the_code_of_its_buttons(path, store):
    ids = add_dead_letters(store, 3)
    page = bar(path, *ids[:2])
    selected = DeadLetterFilter(ids=tuple(ids[:2]))
    assert codes_of(page) == {
        "Replay": code(action_code.replay(path, selected, at_once=True)),
        "Clear": code(action_code.clear(path, selected)),
    }
    assert "--yes" in codes_of(page)["Replay"]["Copy as command"]

    page.button(key="clear").click().run()
    (undo,) = [one for name, one in codes_of(page).items() if name == "Undo"]
    assert (
        list(undo) == ["Copy as command"]
        and "dlq restore" in undo["Copy as command"]
        and "--moment=" in undo["Copy as command"]
    )


@pytest.mark.slow
def test_archived_and_doubtful_dead_letters_have_the_code_of_what_a_click_does(path, store):
    add_dead_letters(store, 2, verdict="possibly_persisted")
    command = codes_of(bar(path))["Replay"]["Copy as command"]
    assert "--yes" not in command  # as the button, it asks first
    assert re.search(r"--until=@\d+\.\d+ ", command)  # without those that fail before it runs

    DeadLetters(store).archive(ALL, who="ann", origin="cli")
    assert list(codes_of(bar(path, state="archived"))) == ["Restore"]


@pytest.mark.slow
def test_a_user_who_may_not_act_gets_no_code(path, store, monkeypatch):
    add_dead_letters(store, 3)
    assert codes_of(bar(path))
    monkeypatch.setattr(access, "_guards", [access.AccessGuard(read_only="This is a bundle.")])
    assert not codes_of(bar(path))


@pytest.mark.slow
def test_a_dry_run_has_the_code_of_its_choices(path, store):
    add_dead_letters(store, 12, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    assert list(codes_of(page))[-1] == "Discard replay" and "Replay 12 now" not in codes_of(page)
    preflight_done(store, one, newer_keys=3)
    redrawn(page)
    as_planned = codes_of(page)["Replay 9 now"]
    assert as_planned == code(action_code.go(path, one, newer="skip", inconclusive="keep"))

    page.number_input(key=f"go_rate_{one}").set_value(50.0)
    page.number_input(key=f"canary_{one}").set_value(4)
    page.segmented_control(key=f"newer_{one}").set_value("Send anyway").run()
    chosen = codes_of(page)["Replay 12 now"]
    assert chosen == code(action_code.go(path, one, newer="send", inconclusive="keep", rate=50.0, canary=4))
    assert list(chosen) == ["Copy as command"]


@pytest.mark.slow
def test_a_running_replay_has_the_code_of_its_buttons(path, store):
    add_dead_letters(store, 3)
    one = actions.start_replay(store, ALL, who="ann").operation_id
    preflight_done(store, one)
    assert list(codes_of(opened(path, operation=one))) == ["Pause", "Cancel"]
    actions.pause_replay(store, one, who="ann")
    reads.clear()
    page = opened(path, operation=one)
    page.number_input(key=f"rate_{one}").set_value(5.0).run()
    assert codes_of(page)["Resume"] == code(action_code.resume(path, one, rate=5.0))


@pytest.mark.slow
def test_an_edit_has_code_once_it_can_be_saved(path, store, monkeypatch):
    browser = at(Browser(), monkeypatch)
    DeadLetters(store).add([masked_dead_letter(1, message_id=ONE)])
    page = page_of(path, monkeypatch, letter=ONE)
    page.button(key=f"dead_letter_edit_{ONE}").click().run()
    browser.type(page, value=EDITED)
    assert "Save edit" not in codes_of(page)

    browser.type(page, reason="wrong number")
    texts = codes_of(page)["Save edit"]
    assert "--set=n=2" in texts["Copy as command"] and "edit({'n': 2}, " in texts["Copy as Python"]
    assert "hunter2" not in f"{texts}" and "***" not in f"{texts}"

    page.button(key=f"edit_save_{ONE}").click().run()
    assert codes_of(page)["Undo edit"] == code(action_code.undo_edit(path, ONE))


@pytest.mark.slow
def test_an_alert_has_the_code_of_its_buttons_and_of_the_chosen_silence(path, store):
    item = lost(time.time() - 60)
    fire(store, item)
    page = run(path, alert=item.alert_id)
    assert codes_of(page) == {"Acknowledge": code(action_code.acknowledge(path, [item.alert_id]))}
    page.button(key=f"silence-{item.alert_id}").click().run()
    page.selectbox(key=f"length-of-{item.alert_id}").select("4 hours")
    page.text_input(key=f"why-of-{item.alert_id}").input("it's known").run()
    assert codes_of(page)["Silence"] == code(
        action_code.silence(path, "connection_lost", "p-1", 4 * 3600, "it's known")
    )

    page.button(key=f"silence-now-of-{item.alert_id}").click().run()
    assert codes_of(page)["End the silence"] == code(action_code.unsilence(path, "connection_lost", "p-1"))


@pytest.mark.slow
def test_an_objective_has_the_code_of_what_is_entered(path, store, monkeypatch):
    page = opened_page("settings", path, monkeypatch)
    page.button(key="objectives-edit").click().run()
    assert "Set objective" not in codes_of(page)
    page.text_input(key="objectives-topic").set_value("payments")
    page.number_input(key="objectives-number").set_value(90.0)
    page.selectbox(key="objectives-unit").set_value("minutes").run()
    assert codes_of(page)["Set objective"] == code(action_code.set_objective(path, "payments", 95.0, 5400.0))
    assert codes_of(page)["Remove objective"] == code(action_code.remove_objective(path, "payments"))


@pytest.mark.slow
def test_a_cause_has_the_code_of_its_resolution(path, store):
    from streamlit.testing.v1 import AppTest

    add_dead_letters(store, 1, fingerprint="abc")
    text = f"from pathlib import Path\nfrom producer_core.dashboard.views import cause_resolution\n\ncause_resolution.show(Path({str(path)!r}), 'abc')\n"
    page = AppTest.from_string(text, default_timeout=60).run()
    page.text_input(key="resolution-note").set_value("it's fixed").run()
    assert codes_of(page)["Mark as resolved"] == code(action_code.resolve(path, "abc", note="it's fixed"))
    page.button(key="resolution-resolve").click().run()
    assert codes_of(page)["Reopen"] == code(action_code.reopen(path, "abc"))
