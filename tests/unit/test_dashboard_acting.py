"""Acts on dead letters from the page: the click, the dry run before it, and what is said afterwards."""

from __future__ import annotations

import sys
import time

import pytest

from producer_core import replay
from producer_core.dashboard import actions, queries
from producer_core.dashboard.auth import access
from producer_core.dashboard.notebook.widget_actions import WidgetActions
from producer_core.dashboard.views import dead_letter_actions, reads
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreLocked
from producer_core.store import Store
from tests.unit.dashboard_pages import text_of
from tests.unit.replaying import CLUSTER, alive, buried, dead_letter, looked

ALL = DeadLetterFilter()
HOSTILE = "<img src=x onerror=alert(1)> **bold**"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    made = Store.open(path)
    alive(made, time.time() + 60)
    return made


@pytest.fixture(autouse=True)
def nothing_remembered():
    reads.again()


def bar(path, *ids, state="dead"):
    """The buttons alone, as the Dead letters page draws them under a selection."""
    from streamlit.testing.v1 import AppTest

    page = (
        "from pathlib import Path\nfrom producer_core.dashboard.views import dead_letter_actions\nfrom producer_core.dlq import DeadLetterFilter\n"
        f"dead_letter_actions.bar(Path({str(path)!r}), DeadLetterFilter(state={state!r}), {ids!r})\n"
    )
    return AppTest.from_string(page, default_timeout=60).run()


def again(page):
    """Drawn anew, with what the store says now."""
    reads.again()
    return page.run()


def only(store):
    """The only replay there is."""
    (operation,) = queries.operations(store)
    return operation


def audit(store):
    return [(row["action"], row["outcome"]) for row in store.rows("audit_latest")]


# the click


def test_one_click_replays_a_few_letters_that_no_broker_has_and_no_canary_holds_them_up(path, store):
    buried(store, 3)
    page = bar(path)
    assert page.button(key="replay").label == "Replay 3"

    page.button(key="replay").click().run()

    assert not page.exception
    assert (only(store).state, only(store).total, only(store).canary) == ("checking", 3, 0)
    assert "a running producer picks it up within seconds" in text_of(page)
    assert "replay_sure" not in [button.key for button in page.button], "nothing is to be confirmed"
    looked(store, only(store).operation_id)
    assert only(store).state == "planned"


@pytest.mark.parametrize("found", [{"newer_keys": 2}, {"too_large": 1}, {"partitions": None}])
def test_one_click_stops_with_the_question_where_the_look_ahead_found_one(path, store, found):
    buried(store, 3)
    page = bar(path)
    page.button(key="replay").click().run()

    looked(store, only(store).operation_id, **found)
    page = again(page)

    assert not page.exception
    assert only(store).state == "ready"
    assert "Dry run: 3 records" in text_of(page)
    assert not page.button(key="replay_sure").disabled


def test_before_the_click_it_is_said_that_the_cause_is_still_there(path, store):
    buried(store, 3, failed_at=time.time() - 20)
    assert "Their cause may still be there: 3 dead letters died of it within 2 min" in text_of(bar(path))


def test_an_old_cause_is_not_said(path, store):
    buried(store, 3)
    assert "Their cause" not in text_of(bar(path))


def test_from_more_letters_than_a_canary_the_first_ten_go_alone(path, store):
    buried(store, 11)
    bar(path).button(key="replay").click().run()

    assert only(store).canary == 10


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verdict": "possibly_persisted"}, "may already be on the broker"),
        ({"verdict": "inconclusive"}, "may already be on the broker"),
        ({"replayable": False}, "would be skipped"),
    ],
)
def test_where_not_every_letter_may_simply_go_the_click_shows_first_what_it_would_do(
    path, store, changes, reason
):
    buried(store, 2)
    DeadLetters(store).add([dead_letter(7, **changes)])
    page = bar(path)
    assert page.button(key="replay").label == "Replay 3 …"
    assert reason in text_of(page)

    page.button(key="replay").click().run()

    assert only(store).state == "checking"
    assert page.button(key="replay_sure").disabled


def test_many_letters_are_shown_first(path, store, monkeypatch):
    monkeypatch.setattr(sys.modules["producer_core.dashboard.queries.replays"], "AT_ONCE", 2)
    buried(store, 3)

    assert bar(path).button(key="replay").label == "Replay 3 …"


def test_the_letters_chosen_by_hand_are_what_is_meant(path, store):
    ids = buried(store, 4)
    page = bar(path, *ids[:2])
    assert page.button(key="replay").label == "Replay 2"
    assert page.button(key="clear").label == "Clear 2"

    page.button(key="replay").click().run()

    assert only(store).total == 2


def test_a_double_click_is_one_act(path, store, monkeypatch):
    monkeypatch.setattr(dead_letter_actions.st, "session_state", {})
    buried(store, 3)
    offer = queries.offer(store, ALL, time.time())

    for _ in range(2):
        dead_letter_actions._replay(path, offer, dead_letter_actions.PressedButton(0))
    dead_letter_actions._clear(path, ALL, dead_letter_actions.PressedButton(0))

    assert only(store).total == 3
    assert DeadLetters(store).count(ALL) == 3


def test_two_people_who_click_on_the_same_letters_mean_one_replay(store):
    buried(store, 3)
    first = actions.start_replay(store, DeadLetterFilter(until=2000.0), shown=3, who="ann")
    second = actions.start_replay(store, DeadLetterFilter(until=3000.0), shown=3, who="bea")

    assert second.operation_id == first.operation_id == only(store).operation_id
    assert "by ann. No second replay was created." in second.note


def test_who_finds_nothing_left_hears_what_became_of_them(store):
    ids = tuple(buried(store, 3))
    DeadLetters(store).archive(ALL, who="ann", origin="cli")

    done = actions.start_replay(store, DeadLetterFilter(ids=ids), shown=3)

    assert (done.ok, done.text) == (False, "None of the selected dead letters is pending: 3 are archived.")
    assert queries.operations(store) == []


def test_who_finds_fewer_than_were_shown_hears_it(path, store):
    ids = buried(store, 3)
    page = bar(path)
    DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[:1])), who="ann", origin="cli")

    page.button(key="replay").click().run()

    assert only(store).total == 2
    assert "1 of 3 was already handled by someone else." in text_of(page)


# nobody, nothing, not allowed


def test_with_nobody_to_carry_it_out_the_button_says_so_and_what_to_do(path):
    store = Store.open(path)
    buried(store, 2)

    page = bar(path)

    assert page.button(key="replay").disabled
    assert not page.button(key="clear").disabled
    assert "Nobody can replay these now." in text_of(page)
    assert f"producer-core dlq replay --store={path} --bootstrap-servers HOST:PORT" in page.code[0].value


def test_letters_of_another_cluster_are_not_sent_to_this_one(path, store):
    buried(store, 2, cluster_id="elsewhere")

    page = bar(path)

    assert page.button(key="replay").disabled
    assert f"come from the cluster elsewhere, and {CLUSTER} is what can be reached" in text_of(page)


def test_a_refused_click_is_in_the_audit(path):
    store = Store.open(path)
    buried(store, 2)

    done = actions.start_replay(store, ALL)

    assert not done.ok
    ((action, outcome),) = audit(store)
    assert action == "replay" and outcome.startswith("Refused: No process with a client configuration")


def test_who_may_only_look_finds_the_buttons_disabled_and_is_refused_all_the_same(path, store, monkeypatch):
    buried(store, 2)
    for module in (access, actions):
        monkeypatch.setattr(module, "may_act", lambda: (False, "You may look, not act."))

    page = bar(path)
    done = actions.clear(store, ALL)

    assert page.button(key="replay").disabled and page.button(key="clear").disabled
    assert (done.ok, done.text) == (False, "You may look, not act.")
    assert audit(store) == [("archive", "Refused: You may look, not act.")]
    assert DeadLetters(store).count(ALL) == 2


def test_a_store_that_is_busy_while_one_clicks_changes_nothing_and_says_so(path, store, monkeypatch):
    def locked(*_, **__):
        raise StoreLocked

    buried(store, 2)
    page = bar(path)
    monkeypatch.setattr(replay, "plan", locked)

    page.button(key="replay").click().run()

    assert not page.exception
    assert "Nothing was done. Another process holds the store" in text_of(page)
    assert queries.operations(store) == []
    monkeypatch.undo()
    page.button(key="replay").click().run()
    assert only(store).total == 2


# the dry run


def test_the_dry_run_waits_for_the_look_ahead_and_goes_with_what_was_chosen(path, store):
    buried(store, 12, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only(store).operation_id
    assert "12 records may be on their topic already: the replay looks for them there first" in text_of(page)
    looked(store, one, newer_keys=3)
    again(page)
    assert page.button(key="replay_sure").label == "Replay 9 now"

    page.number_input(key=f"go_rate_{one}").set_value(50.0)
    page.number_input(key=f"canary_{one}").set_value(4)
    page.number_input(key=f"stop_{one}").set_value(20.0)
    page.button(key="replay_sure").click().run()

    assert not page.exception
    begun = only(store)
    assert (begun.state, begun.rate, begun.canary, begun.stop_percent, begun.newer) == (
        "planned", 50.0, 4, 20.0, "skip",
    )  # fmt: skip


def test_old_values_can_be_sent_over_newer_ones_when_somebody_says_so(path, store):
    buried(store, 3, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only(store).operation_id
    looked(store, one, newer_keys=2, cleanup_policy="compact")
    again(page)
    assert page.button(key="replay_sure").label == "Replay 1 now"

    page.segmented_control(key=f"newer_{one}").set_value("Send anyway").run()
    assert page.button(key="replay_sure").label == "Replay 3 now"
    assert "will replace a newer record of the same key for good" in text_of(page)
    page.button(key="replay_sure").click().run()

    assert only(store).newer == "send"


def test_quarantined_letters_go_only_when_somebody_says_so(path, store):
    buried(store, 2)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET quarantined = true, replay_count = 3")
    DeadLetters(store).add([dead_letter(9)])
    page = bar(path)
    page.button(key="replay").click().run()
    one = only(store).operation_id
    looked(store, one)
    again(page)
    assert page.button(key="replay_sure").label == "Replay 1 now"

    page.toggle(key=f"quarantined_{one}").set_value(True).run()

    anew = queries.operations(store)[0]
    assert (anew.state, anew.left) == ("checking", 3)
    assert replay.get(store, one).state == "cancelled"
    looked(store, anew.operation_id)
    assert again(page).button(key="replay_sure").label == "Replay 3 now"


def test_left_alone_the_letters_stay_dead_and_the_question_is_gone(path, store):
    buried(store, 2, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()

    page.button(key="replay_not").click().run()

    assert only(store).state == "cancelled"
    assert DeadLetters(store).count(ALL) == 2
    assert "replay_sure" not in [button.key for button in page.button]


def test_the_question_says_what_somebody_archived_meanwhile(path, store):
    ids = buried(store, 3, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[:2])), who="ann", origin="cli")
    looked(store, only(store).operation_id)
    again(page)

    assert page.button(key="replay_sure").label == "Replay 1 now"
    assert "2 records are left out: somebody archived or replayed them since this was planned." in text_of(
        page
    )


def test_nothing_of_a_letter_or_a_person_is_drawn_as_markup(path, store):
    buried(store, 2, verdict="possibly_persisted", topic=HOSTILE)
    actions.look_ahead(store, ALL, who=HOSTILE)

    page = bar(path)

    assert not page.exception
    html = " ".join(element.body for element in page.get("html"))
    assert "<img" not in html
    assert "&lt;img" in html


# clear and undo


def test_clear_is_undone_by_one_click_and_restores_exactly_those(path, store):
    buried(store, 3)
    page = bar(path)
    page.button(key="clear").click().run()
    assert "Archived 3 dead letters." in text_of(page)

    page.button(key="undo").click().run()

    assert "Restored 3 dead letters." in text_of(page)
    assert DeadLetters(store).count(ALL) == 3


def test_archived_letters_are_restored(path, store):
    buried(store, 2)
    DeadLetters(store).archive(ALL, who="ann", origin="cli")
    page = bar(path, state="archived")

    page.button(key="restore").click().run()

    assert DeadLetters(store).count(ALL) == 2


def test_clear_says_what_a_replay_holds(path, store):
    buried(store, 2)
    actions.start_replay(store, ALL, who="ann")
    page = bar(path)
    assert page.button(key="replay").label == "Replay 2 …"
    assert "2 records are already in a replay" in text_of(page)

    page.button(key="clear").click().run()

    assert "The replay" in text_of(page) and "of ann meant to send 2 of them" in text_of(page)


# the same click in a notebook


def desk_of(store, **found):
    """A desk whose person has said yes, after the look ahead."""
    desk = WidgetActions(store)
    click = {"type": "replay", "at": time.time(), "target": "", "until": time.time(), "shown": 2}
    assert "Checking topics" in desk.answer(click).message
    looked(store, only(store).operation_id, **found)
    return desk


def test_a_click_in_a_notebook_says_what_stopped_it_and_sends_nothing(store):
    buried(store, 2)
    desk = desk_of(store, newer_keys=1)

    answer = desk.answer({"type": "refresh"})

    assert answer.message.startswith(
        "Nothing sent yet. 1 record of orders has a key for which a newer record"
    )
    assert (answer.progress, only(store).state) == (0.0, "ready")
    desk.answer({"type": "cancel", "target": answer.operation, "at": time.time()})
    assert only(store).state == "cancelled"


def test_in_a_notebook_letters_in_doubt_were_said_before_the_click_so_it_goes_on(store):
    buried(store, 2, verdict="possibly_persisted")
    desk = desk_of(store)
    assert only(store).state == "ready"

    desk.answer({"type": "refresh"})

    assert only(store).state == "planned"
