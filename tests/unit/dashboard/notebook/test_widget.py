"""The widget without a browser: its displayed and saved output, and its reply to each click."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest

from producer_core import Monitor
from producer_core.dashboard.notebook import widget_state
from producer_core.dashboard.notebook.widget_actions import LATE, WidgetActions
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreUnavailable
from producer_core.kafka.classify import fingerprint
from producer_core.replay import cancel, live
from producer_core.replay.dry_run import dry_run
from tests.fixtures import notebook as parts
from tests.fixtures.notebook import dead_letter
from tests.fixtures.replays import looked
from tests.support import ROOT

displayed, now, store = parts.displayed, parts.now, parts.store

POLICY = fingerprint("POLICY_VIOLATION", "Policy violation")


@pytest.fixture
def widget(store):
    """Record the messages that the widget sends to the browser."""
    widget = Monitor(store).widget()
    widget.sent = []
    widget.send = widget.sent.append
    return widget


def send(widget, **message):
    """Pass a message to the widget as JSON and return its reply."""
    widget._handle_custom_msg(json.loads(json.dumps(message)), [])
    return json.loads(json.dumps(widget.sent[-1]))


def click(widget, kind, **message):
    """Click right after a reply; actions on a replay carry its id."""
    answer = send(widget, type="refresh")
    known = {"until": answer["state"]["until"], "at": answer["state"]["now"]}
    if kind in ("go", "pause", "resume", "cancel"):
        known["target"] = answer["operation"]
    return send(widget, **{"type": kind, **known, **message})


def audit(store):
    with store.borrow() as connection:
        return connection.execute("SELECT action, who, origin, count FROM audit ORDER BY acted_at").fetchall()


# displayed and saved output


def test_a_cell_displays_the_static_view_and_the_live_widget(store, displayed):
    Monitor(store)._ipython_display_()
    (static, options), (live, _) = displayed

    assert "10 of 100" in static["text/html"] and "data:image/svg+xml" in static["text/html"]
    assert "<script" not in static["text/html"]
    assert "10 of 100" in static["text/plain"]
    assert options["display_id"].startswith("pc-")
    assert "application/vnd.jupyter.widget-view+json" in live and live["text/plain"] == ""


def test_the_saved_output_stays_far_below_100_kB(store, displayed, now):
    DeadLetters(store).add(
        [dead_letter(100 + number, topic=f"topic-{number}", failed_at=now) for number in range(400)]
    )
    monitor = Monitor(store)
    monitor._ipython_display_()
    saved = [bundle for bundle, _ in displayed]

    assert len(json.dumps(saved)) + len(json.dumps(monitor.widget().get_state(), default=str)) < 60_000
    assert "and 393 more topics" in saved[0]["text/html"]


def test_the_static_view_is_updated_after_actions_and_every_half_minute(widget, displayed, monkeypatch):
    widget._ipython_display_()
    send(widget, type="refresh")
    assert [options.get("update") for _, options in displayed] == [False, None]

    click(widget, "clear")
    assert displayed[-1][1]["update"] is True

    widget._static_at -= 31
    send(widget, type="refresh")
    assert len(displayed) == 4


def test_widgets_of_one_store_are_independent(store):
    one, other = Monitor(store).widget(), Monitor(store).widget()
    assert one.uid != other.uid
    one.close()
    assert other.comm is not None


def test_a_closed_widget_is_replaced(store):
    monitor = Monitor(store)
    first = monitor.widget()
    first.close()
    assert monitor.widget() is not first
    monitor.close()


def test_a_notebook_loads_no_web_server():
    """A notebook needs neither Streamlit nor the modules on which the dashboard's server builds."""
    code = (
        "import sys\n"
        "for name in ('starlette', 'streamlit', 'uvicorn'):\n"
        "    sys.modules[name] = None\n"  # makes the import fail
        "from producer_core.dashboard import actions, notebook\n"
        "from producer_core.dashboard.notebook import magics, static_export, widget\n"
        "print(notebook.MonitorWidget.__name__, actions.may_act())\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "MonitorWidget (True, '')\n"


def test_an_idle_widget_starts_no_thread(store):
    import threading

    before = set(threading.enumerate())
    Monitor(store).widget()
    assert set(threading.enumerate()) == before


# replies


def test_each_refresh_has_current_numbers(widget, store, now):
    assert send(widget, type="refresh")["state"]["dead_total"] == 10
    DeadLetters(store).add([dead_letter(10, failed_at=now)])
    assert send(widget, type="refresh")["state"]["dead_total"] == 11


def test_the_browser_can_only_choose_a_listed_time_range(widget):
    assert send(widget, type="refresh", window="6 hours")["state"]["window"] == "6 hours"
    assert send(widget, type="refresh", window="'; DROP")["state"]["window"] == widget_state.DEFAULT


def test_a_store_error_is_a_reply_not_an_exception(widget, monkeypatch):
    def closed(*_):
        raise StoreUnavailable("The store is gone.", fix="Bring it back.")

    monkeypatch.setattr(widget_state, "moment", closed)
    answer = send(widget, type="refresh")
    assert answer["type"] == "error" and "The store is gone." in answer["message"]


# actions


def test_the_first_click_confirms_and_writes_nothing(widget, store):
    until = send(widget, type="refresh")["state"]["until"]
    replay = send(widget, type="prepare", act="replay", target="", until=until)["confirmation"]
    clear = send(widget, type="prepare", act="clear", target=POLICY, until=until)["confirmation"]

    assert (replay["title"], replay["yes"], replay["shown"]) == ("Replay 10 dead letters?", "Replay 10", 10)
    assert any("nothing can arrive twice" in line for line in replay["lines"])
    assert clear["title"] == "Clear 10 dead letters?" and "Undo" in clear["lines"][0]
    assert audit(store) == [] and store.rows("operations") == []


def test_a_confirmation_without_dead_letters_has_no_button(widget, store):
    until = send(widget, type="refresh")["state"]["until"]
    DeadLetters(store).archive(DeadLetterFilter(), who="ada", origin="cli")
    question = send(widget, type="prepare", act="replay", target="", until=until)["confirmation"]
    assert "already handled" in question["title"].lower() and question["yes"] == ""


def test_clear_skips_dead_letters_newer_than_the_state_shown(widget, store, now):
    state = send(widget, type="refresh")["state"]
    DeadLetters(store).add([dead_letter(10, failed_at=now + 1)])

    answer = send(widget, type="clear", until=state["until"], at=time.time())

    assert "10" in answer["message"] and answer["undo"]
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
    assert DeadLetters(store).count(DeadLetterFilter(state="archived")) == 10


def test_an_action_on_one_cause_skips_the_others(widget, store, now):
    DeadLetters(store).add([dead_letter(20, failed_at=now, text="Another reason")])
    click(widget, "clear", target=POLICY, until=now + 1)
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-20"]


def test_undo_restores_exactly_the_cleared_dead_letters(widget, store):
    click(widget, "clear")
    answer = click(widget, "undo")
    assert DeadLetters(store).count(DeadLetterFilter()) == 10 and not answer["undo"]
    assert "Nothing to undo" in click(widget, "undo")["message"]


def test_a_replay_is_planned_once_and_its_progress_shown(widget, store):
    until = send(widget, type="refresh")["state"]["until"]
    first, second = click(widget, "replay", until=until), click(widget, "replay", until=until)
    assert "Replaying: 0 of 10" in first["message"] and first["progress"] == 0
    assert "was already requested" in second["message"]
    with store.borrow() as connection:
        assert connection.execute("SELECT total, origin FROM operations").fetchall() == [(10, "notebook")]


def operation(store):
    (found,) = live(store)
    return found


def test_a_replay_can_be_cancelled(widget):
    click(widget, "replay")
    answer = click(widget, "cancel")
    assert "ancel" in answer["message"] and answer["actions"] == []
    assert send(widget, type="refresh")["progress"] is None
    assert "nothing was done" in click(widget, "cancel")["message"]


def test_preflight_findings_are_confirmed_once_in_the_widget(widget, store):
    assert click(widget, "replay")["actions"] == ["cancel"]
    looked(store, operation(store).operation_id, newer_keys=2)

    asked = send(widget, type="refresh")
    assert asked["confirmation"]["act"] == "go" and asked["confirmation"]["yes"] == "Replay 10"
    assert "a newer record was written since" in asked["confirmation"]["lines"][0]
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


def test_a_replay_started_elsewhere_can_be_decided_but_is_not_confirmed_automatically(
    widget, store, monkeypatch
):
    Monitor(store).replay(timeout=0.0)
    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    looked(store, operation(store).operation_id, newer_keys=2)

    answer = send(widget, type="refresh")

    assert answer["confirmation"] is None and answer["actions"] == ["decide", "cancel"]
    assert answer["message"].endswith(f"Started by {operation(store).who}.") and operation(store).who != "bob"
    click(widget, "cancel")
    assert live(store) == []


def test_a_click_on_an_ended_replay_never_affects_another_users_replay(widget, store, monkeypatch):
    click(widget, "replay", target=POLICY)
    mine = operation(store).operation_id
    looked(store, mine)
    assert operation(store).state == "planned"  # it starts automatically
    cancel(store, mine, who="me", origin="test")

    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    Monitor(store).replay(timeout=0.0)
    theirs = operation(store).operation_id
    looked(store, theirs)
    needs_no_decision = dry_run(store, DeadLetterFilter(), operation=operation(store)).safe_but_doubtful
    assert needs_no_decision  # a replay started in this widget would start now
    send(widget, type="refresh")  # shows the end of the own replay
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


# the script


def test_the_script_and_the_style_load_nothing():
    script = (ROOT / "dashboard/notebook/widget.js").read_text()
    addresses = set(re.findall(r"https?://[^'\"`]+", script)) - {"http://www.w3.org/2000/svg"}
    assert not addresses and not re.findall(
        r"\bimport\b|\brequire\b|fetch\(|XMLHttpRequest|WebSocket|Jupyter\.|window\.", script
    )
    assert (
        "@import" not in (style := (ROOT / "dashboard/notebook/widget.css").read_text())
        and "url(" not in style
    )
