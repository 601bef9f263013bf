"""Test the reply of the widget to each click."""

from __future__ import annotations

import time

import pytest

from producer_core import Monitor
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.notebook.widget_actions import LATE, WidgetActions
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.classify import fingerprint
from producer_core.replay import cancel, live
from producer_core.replay.dry_run import dry_run
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures import notebook_widget as notebook_widget_fixtures
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.notebook import dead_letter
from tests.fixtures.notebook_widget import click, send
from tests.fixtures.replay_actions import only_replay
from tests.fixtures.replays import add_dead_letters, preflight_done

new_store = replay_pages_fixtures.store
widget = notebook_widget_fixtures.widget
now, store = notebook_fixtures.now, notebook_fixtures.store


POLICY = fingerprint("POLICY_VIOLATION", "Policy violation")


def confirmed_widget(store, **found):
    """Return the actions of a widget whose user has confirmed the replay, after the preflight."""
    widget = WidgetActions(store)
    click = {"type": "replay", "at": time.time(), "target": "", "until": time.time(), "shown": 2}
    assert "Checking topics" in widget.answer(click).message
    preflight_done(store, only_replay(store).operation_id, **found)
    return widget


def audit(store):
    with store.borrow() as connection:
        return connection.execute("SELECT action, who, origin, count FROM audit ORDER BY acted_at").fetchall()


def operation(store):
    (found,) = live(store)
    return found


@pytest.mark.slow
def test_a_notebook_click_reports_the_preflight_question_and_sends_nothing(new_store):
    add_dead_letters(new_store, 2)
    widget = confirmed_widget(new_store, newer_keys=1)

    answer = widget.answer({"type": "refresh"})

    assert answer.message.startswith("Nothing sent yet. 1 record of orders has a newer record with the same")
    assert (answer.progress, only_replay(new_store).state) == (0.0, "ready")
    widget.answer({"type": "cancel", "target": answer.operation, "at": time.time()})
    assert only_replay(new_store).state == "cancelled"


def test_a_notebook_click_continues_after_an_announced_unknown_outcome(new_store):
    add_dead_letters(new_store, 2, verdict="possibly_persisted")
    widget = confirmed_widget(new_store)
    assert only_replay(new_store).state == "ready"

    widget.answer({"type": "refresh"})

    assert only_replay(new_store).state == "planned"


@pytest.mark.slow
def test_the_first_click_confirms_and_writes_nothing(widget, store):
    until = send(widget, type="refresh")["state"]["until"]
    replay = send(widget, type="prepare", act="replay", target="", until=until)["confirmation"]
    clear = send(widget, type="prepare", act="clear", target=POLICY, until=until)["confirmation"]

    assert (replay["title"], replay["yes"], replay["shown"]) == ("Replay 10 dead letters?", "Replay 10", 10)
    assert any("cannot cause duplicates" in line for line in replay["lines"])
    assert clear["title"] == "Clear 10 dead letters?" and "Undo" in clear["lines"][0]
    assert audit(store) == [] and store.rows("operations") == []


@pytest.mark.slow
def test_confirmations_and_buttons_have_the_code_of_their_actions(widget, store):
    state = send(widget, type="refresh")["state"]
    asked = send(widget, type="prepare", act="clear", target=POLICY, until=state["until"])["confirmation"]
    where = DeadLetterFilter(group=POLICY, until=state["until"])
    assert dict(asked["code"]) == dict(action_code.clear(store.path, where).texts)
    asked = send(widget, type="prepare", act="replay", target="", until=state["until"])["confirmation"]
    where = DeadLetterFilter(until=state["until"])
    assert dict(asked["code"]) == dict(action_code.replay(store.path, where, at_once=True).texts)

    cleared = click(widget, "clear", target=POLICY)
    ((name, texts),) = cleared["code"]
    assert name == "Undo" and list(dict(texts)) == ["Copy as command"]
    click(widget, "undo")
    code = {name: dict(texts) for name, texts in click(widget, "replay")["code"]}
    assert code == {"Cancel": dict(action_code.cancel(store.path, operation(store).operation_id).texts)}

    preflight_done(store, operation(store).operation_id, newer_keys=2)
    asked = send(widget, type="refresh")["confirmation"]
    assert dict(asked["code"]) == dict(action_code.go(store.path, asked["target"]).texts)


@pytest.mark.slow
def test_a_confirmation_without_dead_letters_has_no_button(widget, store):
    until = send(widget, type="refresh")["state"]["until"]
    DeadLetters(store).archive(DeadLetterFilter(), who="ada", origin="cli")
    question = send(widget, type="prepare", act="replay", target="", until=until)["confirmation"]
    assert "already handled" in question["title"].lower() and question["yes"] == "" and question["code"] == []


@pytest.mark.slow
def test_clear_skips_dead_letters_newer_than_the_state_shown(widget, store, now):
    state = send(widget, type="refresh")["state"]
    DeadLetters(store).add([dead_letter(10, failed_at=now + 1)])

    answer = send(widget, type="clear", until=state["until"], at=time.time())

    assert "10" in answer["message"] and answer["undo"]
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
    assert DeadLetters(store).count(DeadLetterFilter(state="archived")) == 10


@pytest.mark.slow
def test_an_action_on_one_cause_skips_the_others(widget, store, now):
    DeadLetters(store).add([dead_letter(20, failed_at=now, text="Another reason")])
    click(widget, "clear", target=POLICY, until=now + 1)
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-20"]


@pytest.mark.slow
def test_undo_restores_exactly_the_cleared_dead_letters(widget, store):
    click(widget, "clear")
    answer = click(widget, "undo")
    assert DeadLetters(store).count(DeadLetterFilter()) == 10 and not answer["undo"]
    assert "Nothing to undo" in click(widget, "undo")["message"]


@pytest.mark.slow
def test_a_replay_is_planned_once_and_its_progress_shown(widget, store):
    until = send(widget, type="refresh")["state"]["until"]
    first, second = click(widget, "replay", until=until), click(widget, "replay", until=until)
    assert "Replaying: 0 of 10" in first["message"] and first["progress"] == 0
    assert "was already requested" in second["message"]
    with store.borrow() as connection:
        assert connection.execute("SELECT total, origin FROM operations").fetchall() == [(10, "notebook")]


@pytest.mark.slow
def test_a_replay_can_be_cancelled(widget):
    click(widget, "replay")
    answer = click(widget, "cancel")
    assert "ancel" in answer["message"] and answer["actions"] == []
    assert send(widget, type="refresh")["progress"] is None
    assert "nothing was done" in click(widget, "cancel")["message"]


@pytest.mark.slow
def test_preflight_findings_are_confirmed_once_in_the_widget(widget, store):
    assert click(widget, "replay")["actions"] == ["cancel"]
    preflight_done(store, operation(store).operation_id, newer_keys=2)

    asked = send(widget, type="refresh")
    assert asked["confirmation"]["act"] == "go" and asked["confirmation"]["yes"] == "Replay 10"
    assert "a newer record with the same key" in asked["confirmation"]["lines"][0]
    later = send(widget, type="refresh")
    assert later["confirmation"] is None and later["actions"] == ["decide", "cancel"]
    assert "Nothing sent yet" in later["message"] and operation(store).state == "ready"
    mine = operation(store).operation_id
    assert asked["confirmation"]["target"] == later["operation"] == mine
    again = send(widget, type="prepare", act="go", target=mine)["confirmation"]
    assert again["title"] == asked["confirmation"]["title"]

    assert click(widget, "go")["actions"] == ["pause", "cancel"]
    assert operation(store).state == "planned"
    assert click(widget, "pause")["actions"] == ["resume", "cancel"]
    assert click(widget, "resume")["actions"] == ["pause", "cancel"]
    assert (
        "no longer needs a decision"
        in send(widget, type="prepare", act="go", target=mine)["confirmation"]["title"]
    )


@pytest.mark.slow
def test_a_replay_started_elsewhere_can_be_decided_but_is_not_confirmed_automatically(
    widget, store, monkeypatch
):
    Monitor(store).replay(timeout=0.0)
    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    preflight_done(store, operation(store).operation_id, newer_keys=2)

    answer = send(widget, type="refresh")

    assert answer["confirmation"] is None and answer["actions"] == ["decide", "cancel"]
    assert answer["message"].endswith(f"Started by {operation(store).who}.") and operation(store).who != "bob"
    click(widget, "cancel")
    assert live(store) == []


@pytest.mark.slow
def test_a_click_on_an_ended_replay_never_affects_another_users_replay(widget, store, monkeypatch):
    click(widget, "replay", target=POLICY)
    mine = operation(store).operation_id
    preflight_done(store, mine)
    assert operation(store).state == "planned"  # it starts automatically
    cancel(store, mine, who="me", origin="test")

    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    Monitor(store).replay(timeout=0.0)
    theirs = operation(store).operation_id
    preflight_done(store, theirs)
    needs_no_decision = dry_run(store, DeadLetterFilter(), operation=operation(store)).safe_but_doubtful
    assert needs_no_decision  # a replay started in this widget would start now
    send(widget, type="refresh")  # shows the end of its own replay
    assert send(widget, type="refresh")["operation"] == theirs != mine
    assert operation(store).state == "ready"

    now = time.time()
    for kind in ("go", "pause", "cancel"):
        assert "nothing was done" in send(widget, type=kind, target=mine, at=now)["message"]
    assert operation(store).state == "ready"


@pytest.mark.parametrize("kind", ["replay", "clear", "undo", "go", "pause", "cancel"])
def test_a_click_delayed_by_a_busy_kernel_is_dropped(widget, store, kind):
    answer = send(widget, type=kind, until=None, at=time.time() - LATE - 1)
    assert "nothing was done" in answer["message"]
    assert audit(store) == [] and DeadLetters(store).count(DeadLetterFilter()) == 10


def test_a_click_without_a_time_is_dropped(widget, store):
    assert "nothing was done" in send(widget, type="clear", until=None)["message"]
    assert DeadLetters(store).count(DeadLetterFilter()) == 10


@pytest.mark.slow
def test_actions_are_audited_with_the_users_name(widget, store, monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    click(widget, "clear")
    click(widget, "undo")
    click(widget, "replay")
    assert {(who, origin) for _, who, origin, _ in audit(store)} == {("ada", "notebook")}
    assert [action for action, *_ in audit(store)] == ["archive", "restore", "replay"]


def test_an_unknown_message_only_refreshes(store):
    actions = WidgetActions(store)
    assert actions.answer({"type": "drop", "at": time.time()}).message == ""
    assert actions.answer({}).message == ""
