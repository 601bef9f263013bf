"""The widget without a browser: what is displayed and saved, and what it answers to each click."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from producer_core import Monitor
from producer_core.dashboard.notebook import widget_state
from producer_core.dashboard.notebook.widget_actions import LATE, WidgetActions
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreUnavailable
from producer_core.kafka.classify import fingerprint
from producer_core.replay import cancel, live
from producer_core.replay.dry_run import dry_run
from tests.unit import notebook_parts as parts
from tests.unit.notebook_parts import dead_letter
from tests.unit.replaying import looked

displayed, now, store = parts.displayed, parts.now, parts.store

ROOT = Path(__file__).parents[2]
POLICY = fingerprint("POLICY_VIOLATION", "Policy violation")


@pytest.fixture
def widget(store):
    """The widget, and what it sends to the browser."""
    widget = Monitor(store).widget()
    widget.sent = []
    widget.send = widget.sent.append
    return widget


def browser_says(widget, **message):
    """As it goes over the wire."""
    widget._handle_custom_msg(json.loads(json.dumps(message)), [])
    return json.loads(json.dumps(widget.sent[-1]))


def acts(widget, kind, **message):
    """A click, right after an answer of the kernel; what is done to a replay says to which."""
    answer = browser_says(widget, type="ask")
    known = {"until": answer["seen"]["until"], "at": answer["seen"]["now"]}
    if kind in ("go", "pause", "resume", "cancel"):
        known["mark"] = answer["following"]
    return browser_says(widget, **{"type": kind, **known, **message})


def audit(store):
    with store.borrow() as connection:
        return connection.execute("SELECT action, who, origin, count FROM audit ORDER BY acted_at").fetchall()


# what is displayed and saved


def test_a_cell_gets_a_still_picture_and_the_live_widget(store, displayed):
    Monitor(store)._ipython_display_()
    (still, options), (live, _) = displayed

    assert "10 of 100" in still["text/html"] and "data:image/svg+xml" in still["text/html"]
    assert "<script" not in still["text/html"]
    assert "10 of 100" in still["text/plain"]
    assert options["display_id"].startswith("pc-")
    assert "application/vnd.jupyter.widget-view+json" in live and live["text/plain"] == ""


def test_what_is_saved_stays_far_below_100_kB(store, displayed, now):
    DeadLetters(store).add(
        [dead_letter(100 + number, topic=f"topic-{number}", died=now) for number in range(400)]
    )
    monitor = Monitor(store)
    monitor._ipython_display_()
    saved = [bundle for bundle, _ in displayed]

    assert len(json.dumps(saved)) + len(json.dumps(monitor.widget().get_state(), default=str)) < 60_000
    assert "and 393 more topics" in saved[0]["text/html"]


def test_the_still_picture_follows_acts_and_every_half_minute(widget, displayed, monkeypatch):
    widget._ipython_display_()
    browser_says(widget, type="ask")
    assert [options.get("update") for _, options in displayed] == [False, None]

    acts(widget, "clear")
    assert displayed[-1][1]["update"] is True

    widget._drawn -= 31
    browser_says(widget, type="ask")
    assert len(displayed) == 4


def test_two_widgets_of_one_store_are_two(store):
    one, other = Monitor(store).widget(), Monitor(store).widget()
    assert one.uid != other.uid
    one.close()
    assert other.comm is not None


def test_a_closed_widget_is_made_anew(store):
    monitor = Monitor(store)
    first = monitor.widget()
    first.close()
    assert monitor.widget() is not first
    monitor.close()


def test_nothing_runs_where_nobody_asks(store):
    import threading

    before = set(threading.enumerate())
    Monitor(store).widget()
    assert set(threading.enumerate()) == before


# answers


def test_each_question_is_answered_with_fresh_numbers(widget, store, now):
    assert browser_says(widget, type="ask")["seen"]["dead_total"] == 10
    DeadLetters(store).add([dead_letter(10, died=now)])
    assert browser_says(widget, type="ask")["seen"]["dead_total"] == 11


def test_the_browser_chooses_the_time_range_and_nothing_else(widget):
    assert browser_says(widget, type="ask", window="6 hours")["seen"]["window"] == "6 hours"
    assert browser_says(widget, type="ask", window="'; DROP")["seen"]["window"] == widget_state.DEFAULT


def test_trouble_with_the_store_is_an_answer_not_an_exception(widget, monkeypatch):
    def closed(*_):
        raise StoreUnavailable("The store is gone.", fix="Bring it back.")

    monkeypatch.setattr(widget_state, "moment", closed)
    answer = browser_says(widget, type="ask")
    assert answer["type"] == "trouble" and "The store is gone." in answer["said"]


# acts


def test_the_first_click_asks_and_writes_nothing(widget, store):
    until = browser_says(widget, type="ask")["seen"]["until"]
    replay = browser_says(widget, type="prepare", act="replay", mark="", until=until)["question"]
    clear = browser_says(widget, type="prepare", act="clear", mark=POLICY, until=until)["question"]

    assert (replay["title"], replay["yes"], replay["shown"]) == ("Replay 10 dead letters?", "Replay 10", 10)
    assert any("nothing can arrive twice" in line for line in replay["lines"])
    assert clear["title"] == "Clear 10 dead letters?" and "Undo" in clear["lines"][0]
    assert audit(store) == [] and store.rows("operations") == []


def test_a_question_about_what_is_gone_says_so(widget, store):
    until = browser_says(widget, type="ask")["seen"]["until"]
    DeadLetters(store).archive(DeadLetterFilter(), who="ada", origin="cli")
    question = browser_says(widget, type="prepare", act="replay", mark="", until=until)["question"]
    assert "somebody was faster" in question["title"] and question["yes"] == ""


def test_clear_leaves_what_died_after_the_person_looked(widget, store, now):
    seen = browser_says(widget, type="ask")["seen"]
    DeadLetters(store).add([dead_letter(10, died=now + 1)])

    answer = browser_says(widget, type="clear", until=seen["until"], at=time.time())

    assert "10" in answer["said"] and answer["undo"]
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
    assert DeadLetters(store).count(DeadLetterFilter(state="archived")) == 10


def test_an_act_on_one_cause_leaves_the_others(widget, store, now):
    DeadLetters(store).add([dead_letter(20, died=now, text="Another reason")])
    acts(widget, "clear", mark=POLICY, until=now + 1)
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-20"]


def test_undo_brings_back_exactly_what_was_cleared(widget, store):
    acts(widget, "clear")
    answer = acts(widget, "undo")
    assert DeadLetters(store).count(DeadLetterFilter()) == 10 and not answer["undo"]
    assert "nothing to take back" in acts(widget, "undo")["said"]


def test_a_replay_is_planned_once_and_its_progress_told(widget, store):
    until = browser_says(widget, type="ask")["seen"]["until"]
    first, second = acts(widget, "replay", until=until), acts(widget, "replay", until=until)
    assert "Replaying: 0 of 10" in first["said"] and first["progress"] == 0
    assert "was there already" in second["said"]
    with store.borrow() as connection:
        assert connection.execute("SELECT total, origin FROM operations").fetchall() == [(10, "notebook")]


def operation(store):
    (found,) = live(store)
    return found


def test_a_replay_can_be_cancelled(widget):
    acts(widget, "replay")
    answer = acts(widget, "cancel")
    assert "ancel" in answer["said"] and answer["ways"] == []
    assert browser_says(widget, type="ask")["progress"] is None
    assert "nothing was done to another" in acts(widget, "cancel")["said"]


def test_what_a_look_ahead_found_is_asked_once_and_decided_here(widget, store):
    assert acts(widget, "replay")["ways"] == ["cancel"]
    looked(store, operation(store).operation_id, newer_keys=2)

    asked = browser_says(widget, type="ask")
    assert asked["question"]["act"] == "go" and asked["question"]["yes"] == "Replay 10"
    assert "a newer record was written since" in asked["question"]["lines"][0]
    later = browser_says(widget, type="ask")
    assert later["question"] is None and later["ways"] == ["decide", "cancel"]
    assert "Nothing was sent yet" in later["said"] and operation(store).state == "ready"
    mine = operation(store).operation_id
    assert asked["question"]["mark"] == later["following"] == mine
    again = browser_says(widget, type="prepare", act="go", mark=mine)["question"]
    assert again["title"] == asked["question"]["title"]

    assert acts(widget, "go")["ways"] == ["pause", "cancel"]
    assert operation(store).state == "planned"
    assert acts(widget, "pause")["ways"] == ["resume", "cancel"]
    assert acts(widget, "resume")["ways"] == ["pause", "cancel"]
    assert (
        "waits for nobody" in browser_says(widget, type="prepare", act="go", mark=mine)["question"]["title"]
    )


def test_a_replay_of_a_cell_or_of_a_kernel_that_is_gone_is_decided_here_and_never_asks_by_itself(
    widget, store, monkeypatch
):
    Monitor(store).replay(timeout=0.0)
    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    looked(store, operation(store).operation_id, newer_keys=2)

    answer = browser_says(widget, type="ask")

    assert answer["question"] is None and answer["ways"] == ["decide", "cancel"]
    assert answer["said"].endswith(f"Begun by {operation(store).who}.") and operation(store).who != "bob"
    acts(widget, "cancel")
    assert live(store) == []


def test_a_plan_of_somebody_else_is_never_sent_or_ended_by_what_was_clicked_for_ours(
    widget, store, monkeypatch
):
    acts(widget, "replay", mark=POLICY)
    mine = operation(store).operation_id
    looked(store, mine)
    assert operation(store).state == "planned"  # it went by itself
    cancel(store, mine, who="me", origin="test")

    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    Monitor(store).replay(timeout=0.0)
    theirs = operation(store).operation_id
    looked(store, theirs)
    asks_nothing = dry_run(store, DeadLetterFilter(), operation=operation(store)).safe_but_doubtful
    assert asks_nothing  # one of ours would go now
    browser_says(widget, type="ask")  # tells our end
    assert browser_says(widget, type="ask")["following"] == theirs != mine
    assert operation(store).state == "ready"

    now = time.time()
    for kind in ("go", "pause", "cancel"):
        assert "nothing was done" in browser_says(widget, type=kind, mark=mine, at=now)["said"]
    assert operation(store).state == "ready"


@pytest.mark.parametrize("kind", ["replay", "clear", "undo", "go", "pause", "cancel"])
def test_a_click_that_waited_for_a_busy_kernel_is_not_done(widget, store, kind):
    answer = browser_says(widget, type=kind, until=None, at=time.time() - LATE - 1)
    assert "nothing was done" in answer["said"]
    assert audit(store) == [] and DeadLetters(store).count(DeadLetterFilter()) == 10


def test_a_click_without_a_time_is_not_done(widget, store):
    assert "nothing was done" in browser_says(widget, type="clear", until=None)["said"]
    assert DeadLetters(store).count(DeadLetterFilter()) == 10


def test_acts_carry_the_persons_name(widget, store, monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    acts(widget, "clear")
    acts(widget, "undo")
    acts(widget, "replay")
    assert {(who, origin) for _, who, origin, _ in audit(store)} == {("ada", "notebook")}
    assert [action for action, *_ in audit(store)] == ["archive", "restore", "replay"]


def test_an_unknown_message_is_only_a_look(store):
    desk = WidgetActions(store)
    assert desk.answer({"type": "drop", "at": time.time()}).said == ""
    assert desk.answer({}).said == ""


# its script


def test_the_script_refers_to_nothing_but_itself():
    script = (ROOT / "dashboard/notebook/widget.js").read_text()
    addresses = set(re.findall(r"https?://[^'\"`]+", script)) - {"http://www.w3.org/2000/svg"}
    assert not addresses and not re.findall(
        r"\bimport\b|\brequire\b|fetch\(|XMLHttpRequest|WebSocket|Jupyter\.|window\.", script
    )
    assert (
        "@import" not in (style := (ROOT / "dashboard/notebook/widget.css").read_text())
        and "url(" not in style
    )
