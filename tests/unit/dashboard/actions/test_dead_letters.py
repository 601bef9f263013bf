"""Test the actions on dead letters: the buttons, the dry run, the results, and the same actions in a notebook."""

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
from tests.fixtures.pages import text_of
from tests.fixtures.replays import CLUSTER, alive, buried, dead_letter
from tests.fixtures.replays import looked as preflight_done

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
def no_cached_reads():
    reads.clear()


def bar(path, *ids, state="dead"):
    """Draw only the buttons of the Dead letters page for a selection."""
    from streamlit.testing.v1 import AppTest

    page = (
        "from pathlib import Path\nfrom producer_core.dashboard.views import dead_letter_actions\nfrom producer_core.dlq import DeadLetterFilter\n"
        f"dead_letter_actions.bar(Path({str(path)!r}), DeadLetterFilter(state={state!r}), {ids!r})\n"
    )
    return AppTest.from_string(page, default_timeout=60).run()


def redrawn(page):
    """Redraw the page with current data."""
    reads.clear()
    return page.run()


def only_replay(store):
    (operation,) = queries.operations(store)
    return operation


def audit(store):
    return [(row["action"], row["outcome"]) for row in store.rows("audit_latest")]


# Replay


def test_one_click_replays_a_few_safe_dead_letters_without_a_canary(path, store):
    buried(store, 3)
    page = bar(path)
    assert page.button(key="replay").label == "Replay 3"

    page.button(key="replay").click().run()

    assert not page.exception
    assert (only_replay(store).state, only_replay(store).total, only_replay(store).canary) == (
        "checking",
        3,
        0,
    )
    assert "a running producer picks it up within seconds" in text_of(page)
    assert "replay_confirm" not in [button.key for button in page.button], "no confirmation is needed"
    preflight_done(store, only_replay(store).operation_id)
    assert only_replay(store).state == "planned"


@pytest.mark.parametrize("found", [{"newer_keys": 2}, {"too_large": 1}, {"partitions": None}])
def test_one_click_stops_for_a_decision_if_the_preflight_finds_a_question(path, store, found):
    buried(store, 3)
    page = bar(path)
    page.button(key="replay").click().run()

    preflight_done(store, only_replay(store).operation_id, **found)
    page = redrawn(page)

    assert not page.exception
    assert only_replay(store).state == "ready"
    assert "Dry run: 3 records" in text_of(page)
    assert not page.button(key="replay_confirm").disabled


def test_the_page_warns_that_the_cause_may_still_be_active(path, store):
    buried(store, 3, failed_at=time.time() - 20)
    assert "Their cause may still be there: 3 dead letters died of it within 2 min" in text_of(bar(path))


def test_the_page_does_not_warn_of_an_old_cause(path, store):
    buried(store, 3)
    assert "Their cause" not in text_of(bar(path))


def test_a_replay_larger_than_a_canary_sends_ten_records_first(path, store):
    buried(store, 11)
    bar(path).button(key="replay").click().run()

    assert only_replay(store).canary == 10


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verdict": "possibly_persisted"}, "may already be on the broker"),
        ({"verdict": "inconclusive"}, "may already be on the broker"),
        ({"replayable": False}, "would be skipped"),
    ],
)
def test_an_unsafe_selection_opens_the_dry_run(path, store, changes, reason):
    buried(store, 2)
    DeadLetters(store).add([dead_letter(7, **changes)])
    page = bar(path)
    assert page.button(key="replay").label == "Replay 3 …"
    assert reason in text_of(page)

    page.button(key="replay").click().run()

    assert only_replay(store).state == "checking"
    assert page.button(key="replay_confirm").disabled


def test_a_large_selection_opens_the_dry_run(path, store, monkeypatch):
    monkeypatch.setattr(sys.modules["producer_core.dashboard.queries.replays"], "AT_ONCE", 2)
    buried(store, 3)

    assert bar(path).button(key="replay").label == "Replay 3 …"


def test_actions_apply_to_the_selected_dead_letters(path, store):
    ids = buried(store, 4)
    page = bar(path, *ids[:2])
    assert page.button(key="replay").label == "Replay 2"
    assert page.button(key="clear").label == "Clear 2"

    page.button(key="replay").click().run()

    assert only_replay(store).total == 2


def test_a_double_click_acts_once(path, store, monkeypatch):
    monkeypatch.setattr(dead_letter_actions.st, "session_state", {})
    buried(store, 3)
    offer = queries.offer(store, ALL, time.time())

    for _ in range(2):
        dead_letter_actions._replay(path, offer, dead_letter_actions.PressedButton(0))
    dead_letter_actions._clear(path, ALL, dead_letter_actions.PressedButton(0))

    assert only_replay(store).total == 3
    assert DeadLetters(store).count(ALL) == 3


def test_two_users_who_replay_the_same_selection_share_one_replay(store):
    buried(store, 3)
    first = actions.start_replay(store, DeadLetterFilter(until=2000.0), shown=3, who="ann")
    second = actions.start_replay(store, DeadLetterFilter(until=3000.0), shown=3, who="bea")

    assert second.operation_id == first.operation_id == only_replay(store).operation_id
    assert "by ann. No second replay was created." in second.note


def test_a_replay_without_pending_records_reports_their_states(store):
    ids = tuple(buried(store, 3))
    DeadLetters(store).archive(ALL, who="ann", origin="cli")

    done = actions.start_replay(store, DeadLetterFilter(ids=ids), shown=3)

    assert (done.ok, done.text) == (False, "None of the selected dead letters is pending: 3 are archived.")
    assert queries.operations(store) == []


def test_a_replay_of_fewer_records_than_shown_reports_that(path, store):
    ids = buried(store, 3)
    page = bar(path)
    DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[:1])), who="ann", origin="cli")

    page.button(key="replay").click().run()

    assert only_replay(store).total == 2
    assert "1 of 3 was already handled by someone else." in text_of(page)


# refused actions


def test_without_a_runner_replay_is_disabled_and_the_command_is_shown(path):
    store = Store.open(path)
    buried(store, 2)

    page = bar(path)

    assert page.button(key="replay").disabled
    assert not page.button(key="clear").disabled
    assert "These dead letters cannot be replayed now." in text_of(page)
    assert f"producer-core dlq replay --store={path} --bootstrap-servers HOST:PORT" in page.code[0].value


def test_dead_letters_of_another_cluster_are_not_replayed(path, store):
    buried(store, 2, cluster_id="elsewhere")

    page = bar(path)

    assert page.button(key="replay").disabled
    assert f"come from the cluster elsewhere, and {CLUSTER} is what can be reached" in text_of(page)


def test_a_refused_click_is_audited(path):
    store = Store.open(path)
    buried(store, 2)

    done = actions.start_replay(store, ALL)

    assert not done.ok
    ((action, outcome),) = audit(store)
    assert action == "replay" and outcome.startswith("Refused: No process with a client configuration")


def test_read_only_users_see_disabled_buttons_and_their_actions_are_refused(path, store, monkeypatch):
    buried(store, 2)
    for module in (access, actions):
        monkeypatch.setattr(module, "may_act", lambda: (False, "You have read-only access."))

    page = bar(path)
    done = actions.clear(store, ALL)

    assert page.button(key="replay").disabled and page.button(key="clear").disabled
    assert (done.ok, done.text) == (False, "You have read-only access.")
    assert audit(store) == [("archive", "Refused: You have read-only access.")]
    assert DeadLetters(store).count(ALL) == 2


def test_a_click_on_a_locked_store_changes_nothing_and_shows_the_error(path, store, monkeypatch):
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
    assert only_replay(store).total == 2


# the dry run


def test_the_dry_run_waits_for_the_preflight_and_starts_with_the_choices(path, store):
    buried(store, 12, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    assert "12 records may be on their topic already: the replay looks for them there first" in text_of(page)
    preflight_done(store, one, newer_keys=3)
    redrawn(page)
    assert page.button(key="replay_confirm").label == "Replay 9 now"

    page.number_input(key=f"go_rate_{one}").set_value(50.0)
    page.number_input(key=f"canary_{one}").set_value(4)
    page.number_input(key=f"stop_{one}").set_value(20.0)
    page.button(key="replay_confirm").click().run()

    assert not page.exception
    begun = only_replay(store)
    assert (begun.state, begun.rate, begun.canary, begun.stop_percent, begun.newer) == (
        "planned", 50.0, 4, 20.0, "skip",
    )  # fmt: skip


def test_old_values_replace_newer_ones_only_on_request(path, store):
    buried(store, 3, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    preflight_done(store, one, newer_keys=2, cleanup_policy="compact")
    redrawn(page)
    assert page.button(key="replay_confirm").label == "Replay 1 now"

    page.segmented_control(key=f"newer_{one}").set_value("Send anyway").run()
    assert page.button(key="replay_confirm").label == "Replay 3 now"
    assert "will replace a newer record of the same key for good" in text_of(page)
    page.button(key="replay_confirm").click().run()

    assert only_replay(store).newer == "send"


def test_quarantined_dead_letters_are_replayed_only_on_request(path, store):
    buried(store, 2)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET quarantined = true, replay_count = 3")
    DeadLetters(store).add([dead_letter(9)])
    page = bar(path)
    page.button(key="replay").click().run()
    one = only_replay(store).operation_id
    preflight_done(store, one)
    redrawn(page)
    assert page.button(key="replay_confirm").label == "Replay 1 now"

    page.toggle(key=f"quarantined_{one}").set_value(True).run()

    planned_again = queries.operations(store)[0]
    assert (planned_again.state, planned_again.left) == ("checking", 3)
    assert replay.get(store, one).state == "cancelled"
    preflight_done(store, planned_again.operation_id)
    assert redrawn(page).button(key="replay_confirm").label == "Replay 3 now"


def test_a_discarded_replay_leaves_the_dead_letters_unchanged(path, store):
    buried(store, 2, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()

    page.button(key="replay_discard").click().run()

    assert only_replay(store).state == "cancelled"
    assert DeadLetters(store).count(ALL) == 2
    assert "replay_confirm" not in [button.key for button in page.button]


def test_the_dry_run_reports_records_archived_since_it_was_planned(path, store):
    ids = buried(store, 3, verdict="possibly_persisted")
    page = bar(path)
    page.button(key="replay").click().run()
    DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[:2])), who="ann", origin="cli")
    preflight_done(store, only_replay(store).operation_id)
    redrawn(page)

    assert page.button(key="replay_confirm").label == "Replay 1 now"
    assert "2 records are left out: somebody archived or replayed them since this was planned." in text_of(
        page
    )


def test_texts_of_dead_letters_and_users_are_escaped(path, store):
    buried(store, 2, verdict="possibly_persisted", topic=HOSTILE)
    actions.plan_replay(store, ALL, who=HOSTILE)

    page = bar(path)

    assert not page.exception
    html = " ".join(element.body for element in page.get("html"))
    assert "<img" not in html
    assert "&lt;img" in html


# Clear and Undo


def test_undo_restores_exactly_the_cleared_dead_letters(path, store):
    buried(store, 3)
    page = bar(path)
    page.button(key="clear").click().run()
    assert "Archived 3 dead letters." in text_of(page)

    page.button(key="undo").click().run()

    assert "Restored 3 dead letters." in text_of(page)
    assert DeadLetters(store).count(ALL) == 3


def test_restore_returns_archived_dead_letters(path, store):
    buried(store, 2)
    DeadLetters(store).archive(ALL, who="ann", origin="cli")
    page = bar(path, state="archived")

    page.button(key="restore").click().run()

    assert DeadLetters(store).count(ALL) == 2


def test_clear_reports_records_that_a_replay_holds(path, store):
    buried(store, 2)
    actions.start_replay(store, ALL, who="ann")
    page = bar(path)
    assert page.button(key="replay").label == "Replay 2 …"
    assert "2 records are already in a replay" in text_of(page)

    page.button(key="clear").click().run()

    assert "by ann skips 2 of them" in text_of(page)


# the same actions in a notebook


def confirmed_widget(store, **found):
    """Return the actions of a widget whose user has confirmed the replay, after the preflight."""
    widget = WidgetActions(store)
    click = {"type": "replay", "at": time.time(), "target": "", "until": time.time(), "shown": 2}
    assert "Checking topics" in widget.answer(click).message
    preflight_done(store, only_replay(store).operation_id, **found)
    return widget


def test_a_notebook_click_reports_the_preflight_question_and_sends_nothing(store):
    buried(store, 2)
    widget = confirmed_widget(store, newer_keys=1)

    answer = widget.answer({"type": "refresh"})

    assert answer.message.startswith(
        "Nothing sent yet. 1 record of orders has a key for which a newer record"
    )
    assert (answer.progress, only_replay(store).state) == (0.0, "ready")
    widget.answer({"type": "cancel", "target": answer.operation, "at": time.time()})
    assert only_replay(store).state == "cancelled"


def test_a_notebook_click_continues_after_an_announced_unknown_outcome(store):
    buried(store, 2, verdict="possibly_persisted")
    widget = confirmed_widget(store)
    assert only_replay(store).state == "ready"

    widget.answer({"type": "refresh"})

    assert only_replay(store).state == "planned"
