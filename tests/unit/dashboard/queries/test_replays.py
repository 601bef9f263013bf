"""Test the replays page: its data, its actions and its texts."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dashboard import actions, queries
from producer_core.dashboard.views import reads
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay import Operation
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.outcome import FailedReplay, RecordOutcome
from producer_core.replay.phrases import NEWER_KEY
from producer_core.store import Store
from tests.fixtures.pages import links, text_of
from tests.fixtures.replays import alive, buried, dead_letter
from tests.fixtures.replays import looked as preflight_done

ALL = DeadLetterFilter()
HOSTILE = "<script>alert(1)</script> **bold**"
NOW = 1000.0


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


def opened(path, **query):
    from streamlit.testing.v1 import AppTest

    page = f"from pathlib import Path\nfrom producer_core.dashboard.views import replays\n\nreplays.show(Path({str(path)!r}))\n"
    found = AppTest.from_string(page, default_timeout=60)
    for name, value in query.items():
        found.query_params[name] = value
    return found.run()


def started(store, **choices):
    """Start a replay of all dead letters, and let a runner take it."""
    done = actions.start_replay(store, ALL, **{"who": "ann", **choices})
    preflight_done(store, done.operation_id)
    claims = ReplayClaims(store, done.operation_id, "p-1/abc", lease=15.0, clock=time.time)
    assert claims.take()
    return done.operation_id, claims


def ended(store, *, failed=(), doubtful=()):
    """Return the id of a replay that a runner has finished."""
    one, claims = started(store)
    claimed = claims.settle_and_claim([], want=100, busy=False).dead_letters
    outcomes = []
    for place, dead in enumerate(claimed):
        if place in doubtful:
            text = "nobody could look"
            outcomes.append(RecordOutcome(dead.message_id, "skipped", text, verdict="inconclusive"))
        elif place in failed:
            before = DeadLetters(store).get(dead.message_id)
            death = FailedReplay.again(replace(before, error_text="Broker: Policy violation"))
            outcomes.append(RecordOutcome(dead.message_id, "failed", "Broker: Policy violation", death=death))
        else:
            outcomes.append(RecordOutcome(dead.message_id, "acknowledged"))
    assert claims.settle_and_claim(outcomes, want=0, busy=False).over
    return one


def operation(**changes):
    known = Operation(
        operation_id="o-1", cluster_id="c", selection="{}", state="running", who="ann", origin="cli", created_at=NOW,
        started_at=NOW, finished_at=None, total=100, acknowledged=20, landed=0, failed_again=0, skipped=0, rate=None,
        owner="p-1/abc", lease_until=NOW + 15, message=None, canary=10, stop_percent=50.0, stop_last=50,
    )  # fmt: skip
    return replace(known, **changes)


def standing(one, now=NOW, runners=1):
    return replay_wording.replay_status(one, owner="shop on host", runners=runners, now=now)


# the page


def test_an_empty_store_explains_how_to_start_a_replay(path, store):
    page = opened(path)

    assert not page.exception
    assert "No replays yet." in text_of(page)
    assert 'href="dead-letters"' in text_of(page)


def test_a_running_replay_shows_its_user_selection_and_progress(path, store):
    buried(store, 3)
    one, claims = started(store)
    claims.settle_and_claim([], want=1, busy=False)

    page = opened(path)

    assert not page.exception
    text = text_of(page)
    assert "1 replay in progress, 3 records left." in text
    assert "3 records: all dead letters" in text and "Requested by ann (dashboard)" in text
    assert "Running on client on host, process 1." in text
    assert f"operation={one}" in text


def test_an_ended_replay_shows_its_outcome_and_links_to_its_dead_letters(path, store):
    ids = buried(store, 4)
    one = ended(store, failed=(1,), doubtful=(2,))

    page = opened(path)
    text = text_of(page)
    assert any(f"operation={one}" in link for link in links(page))
    assert "Replayed 2 of 4; 1 failed again: Broker: Policy violation; 1 skipped" in text

    page = opened(path, operation=one)
    text = text_of(page)
    assert not page.exception
    assert "1 failed again. It stays a dead letter with the new error." in text
    assert "1 record may already be on the topic." in text
    assert f"ids={ids[1]}" in text and f"ids={ids[2]}" in text
    assert any(f"letter={ids[2]}" in link for link in links(page))
    assert "requested" in text and "ended" in text


def test_an_unknown_replay_shows_a_message(path, store):
    page = opened(path, operation="nothing")

    assert not page.exception
    assert "This store has no replay nothing." in text_of(page)


def test_a_replay_is_paused_resumed_at_another_rate_and_cancelled(path, store):
    buried(store, 3)
    one = actions.start_replay(store, ALL).operation_id
    preflight_done(store, one)
    page = opened(path, operation=one)
    page.button(key=f"pause_{one}").click().run()
    assert replay.get(store, one).state == "paused"

    page.number_input(key=f"rate_{one}").set_value(5.0)
    page.button(key=f"resume_{one}").click().run()
    assert (replay.get(store, one).state, replay.get(store, one).rate) == ("planned", 5.0)

    page.button(key=f"cancel_{one}").click().run()
    assert replay.get(store, one).state == "cancelled"
    assert not page.exception
    assert "Cancelled: replayed 0 of 3; 3 skipped: cancelled before it was sent." in text_of(page)
    assert [row["action"] for row in store.rows("replay_audit", operation=one)] == [
        "replay_end", "replay_cancel", "replay_resume", "replay_pause", "replay",
    ]  # fmt: skip


def test_an_outdated_action_shows_why_it_failed(path, store):
    buried(store, 3)
    one = actions.start_replay(store, ALL).operation_id
    preflight_done(store, one)
    page = opened(path, operation=one)
    replay.pause(store, one, who="bea", origin="cli")

    page.button(key=f"pause_{one}").click().run()

    assert not page.exception
    assert f"Cannot pause replay {one}: it is paused." in text_of(page)


def test_an_open_decision_is_confirmed_on_the_replay_page(path, store):
    buried(store, 2, verdict="possibly_persisted")
    one = actions.plan_replay(store, ALL).operation_id
    store.execute(
        "replay_checked", operation=one, checked='{"topics": [], "at": 0}', now=time.time(), message=""
    )

    listed = text_of(opened(path))
    assert "1 replay awaiting decision." in listed
    assert "Review and decide" in listed
    page = opened(path, operation=one)
    page.button(key="replay_confirm").click().run()

    assert not page.exception
    assert replay.get(store, one).state == "planned"


def test_without_a_runner_the_page_shows_the_replay_command(path, store):
    buried(store, 2)
    one = actions.start_replay(store, ALL).operation_id
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE producers SET seen_at = 0")

    page = opened(path, operation=one)

    assert "No running producer has credentials for this cluster." in text_of(page)
    assert page.code[0].value == f"producer-core dlq replay --store={path} --bootstrap-servers HOST:PORT"


def test_texts_of_selections_users_and_outcomes_are_escaped(path, store):
    DeadLetters(store).add([dead_letter(1, topic=HOSTILE)])
    done = actions.start_replay(store, DeadLetterFilter(topic=HOSTILE, text="Broker"), who=HOSTILE)
    replay.cancel(store, done.operation_id, who=HOSTILE, origin="cli")

    for page in (opened(path), opened(path, operation=done.operation_id)):
        assert not page.exception
        assert not any("<script" in element.body for element in page.get("html"))


# data


def test_the_replay_list_reports_whether_there_are_more(store):
    for number in range(3):
        DeadLetters(store).add([dead_letter(number, topic=f"t{number}")])
        done = actions.start_replay(store, DeadLetterFilter(topic=f"t{number}"))
        replay.cancel(store, done.operation_id, who="ann", origin="cli")

    page = queries.replays(store, time.time(), limit=2)

    assert (len(page.ended), page.more) == (2, True)
    assert not queries.replays(store, time.time(), limit=3).more


def test_only_live_runners_are_counted(store):
    buried(store, 2)
    one, _ = started(store)
    later = time.time() + 30
    assert queries.one_replay(store, one, time.time()).runners == 1
    assert queries.one_replay(store, one, later).runners == 0

    alive(store, later, producer_id="p-2")

    assert queries.one_replay(store, one, later).runners == 1


@pytest.mark.parametrize(("until", "later"), [(None, 2), (NOW + 100, 0)])
def test_later_dead_letters_outside_a_fixed_range_are_not_counted(store, until, later):
    """The page must not report that 2 more have died since, because they are outside the filter's range."""
    DeadLetters(store).add([dead_letter(number, failed_at=NOW + number) for number in range(3)])
    page = queries.dead_letters(store, DeadLetterFilter(until=until))
    done = actions.plan_replay(store, page.seen)
    DeadLetters(store).add([dead_letter(number, failed_at=NOW + 200 + number) for number in (3, 4)])

    assert queries.one_replay(store, done.operation_id, time.time()).later == later


def test_the_pace_covers_recently_settled_records(store):
    buried(store, 4)
    one, claims = started(store)
    claimed = claims.settle_and_claim([], want=4, busy=False).dead_letters
    claims.settle_and_claim(
        [RecordOutcome(dead.message_id, "acknowledged") for dead in claimed[:3]], want=0, busy=True
    )

    assert queries.one_replay(store, one, time.time()).pace == pytest.approx(3.0, rel=0.5)
    assert queries.one_replay(store, one, time.time() + 60).pace is None


# texts


@pytest.mark.parametrize(
    ("changes", "runners", "tone", "text"),
    [
        ({}, 1, "good", "Running on shop on host."),
        ({"state": "planned", "owner": None}, 1, "quiet", "Queued: a running producer picks it up"),
        ({"state": "planned", "owner": None}, 0, "bad", "No running producer has credentials"),
        ({"state": "checking"}, 1, "quiet", "Checking topics"),
        ({"state": "ready", "owner": None, "checked_at": NOW - 60}, 1, "warning", "Topics checked 60 s ago; nothing sent."),
        ({"state": "paused", "owner": None}, 1, "quiet", "Paused: 80 of 100 left."),
        ({"state": "paused"}, 1, "quiet", "Pausing: waiting for records in flight."),
        ({"state": "cancelled"}, 1, "quiet", "Cancelling: waiting for records in flight."),
        ({"lease_until": NOW - 20}, 1, "warning", "expired 20 s ago; the process crashed or hangs. Another producer"),
        ({"lease_until": NOW - 20}, 0, "bad", "the process crashed or hangs. No running producer has credentials"),
        ({"state": "done", "acknowledged": 100, "message": "Replayed 100 of 100"}, 0, "good", "Replayed 100 of 100."),
        ({"state": "done", "failed_again": 80, "message": "Replayed 20 of 100"}, 0, "warning", "Replayed 20 of 100."),
        ({"state": "stopped", "message": "Stopped itself"}, 0, "bad", "Stopped itself."),
    ],
)  # fmt: skip
def test_each_replay_state_has_its_sentence(changes, runners, tone, text):
    found = standing(operation(**changes), runners=runners)

    assert found[0] == tone
    assert text in found[1]


def test_a_queued_replay_names_the_replay_ahead_of_it(store):
    buried(store, 3)
    started(store)
    DeadLetters(store).add([dead_letter(9, topic="late")])
    second = actions.start_replay(store, DeadLetterFilter(topic="late")).operation_id
    assert queries.one_replay(store, second, time.time()).blocked_by is None, (
        "the preflight does not wait for replays"
    )
    preflight_done(store, second, topic="late")

    seen = queries.one_replay(store, second, time.time())

    assert seen.blocked_by is not None
    assert replay_wording.replay_status(seen.operation, owner="", runners=1, now=time.time(), blocked_by=seen.blocked_by) == (
        "quiet", "Queued behind a replay started by ann, 3 records left.",
    )  # fmt: skip
    alive(store, time.time() + 60, producer_id="p-2")
    assert queries.one_replay(store, second, time.time()).blocked_by is None


def test_progress_shows_rate_and_remaining_time():
    one = operation(acknowledged=15, landed=3, failed_again=2)

    assert (
        replay_wording.progress(one, 8.0)
        == "20 of 100, 8 /s, about 10 s left; 2 failed again; 3 already on the topic"
    )
    assert replay_wording.progress(one, None).startswith("20 of 100; ")


def test_the_canary_is_mentioned_only_while_it_runs():
    assert replay_wording.canary(operation(acknowledged=3)) == (
        "Canary: the first 10 are sent alone; the rest follows once they are acknowledged."
    )
    for done in ({"acknowledged": 10}, {"total": 8, "acknowledged": 3}, {"canary": 0, "acknowledged": 3}):
        assert replay_wording.canary(operation(**done)) == ""


def test_a_selection_is_described_and_masked():
    where = DeadLetterFilter(topic="payments", code="POLICY_VIOLATION", text="ann@example.com", until=5.0)

    assert replay_wording.selection(where).startswith(
        "topic payments, error POLICY_VIOLATION, error text contains “"
    )
    assert "ann@example.com" not in replay_wording.selection(where)
    assert replay_wording.selection(DeadLetterFilter(ids=("a", "b"))) == "2 records selected by id"
    assert replay_wording.selection(ALL) == "all dead letters"


@pytest.mark.parametrize(
    ("action", "outcome", "expected"),
    [
        ("replay", "planned as 0123456789ab", ("requested", "", "0123456789ab")),
        ("replay_pause", "paused (0123456789ab)", ("paused", "", "0123456789ab")),
        ("replay_end", "Replayed 2 of 2 (0123456789ab)", ("ended", "Replayed 2 of 2", "0123456789ab")),
        ("replay", "Refused: Nobody can.", ("requested: refused", "Nobody can.", "")),
        ("replay", "Nothing to replay", ("requested", "Nothing to replay", "")),
    ],
)
def test_an_audit_row_is_described_in_words(action, outcome, expected):
    assert tuple(replay_wording.audit_entry(action, outcome)) == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.83, "0.8 s"),
        (12, "12 s"),
        (200, "3 min 20 s"),
        (1200, "20 min"),
        (3900, "1 h 5 min"),
        (7200, "2 h"),
    ],
)
def test_durations_use_suitable_units(seconds, text):
    assert replay_wording.duration(seconds) == text


def test_the_summary_counts_running_replays():
    running, ready, paused = operation(), operation(state="ready"), operation(state="paused")

    assert replay_wording.replays_summary([]) == ("quiet", "No replays in progress.")
    assert replay_wording.replays_summary([running]) == ("good", "1 replay in progress, 80 records left.")
    assert replay_wording.replays_summary([ready])[1] == "1 replay awaiting decision."
    assert replay_wording.replays_summary([running, running, ready, paused])[1] == (
        "2 replays in progress, 160 records left; 1 awaiting decision; 1 paused."
    )


def test_the_page_shows_the_delivery_guarantee_with_its_reason(path, store):
    buried(store, 2, cluster_id="embedded-1")
    one = replay.plan(
        store, ALL, who="ann", origin="test", can_run="embedded-1", check_first=True
    ).operation_id
    because = "at least once, because the embedded broker has no fencing and no read_committed"

    assert f"Sent {because}" in text_of(opened(path, operation=one))
    facts = dict(replay_wording.facts(replay.get(store, one)))
    assert facts["Delivery"] == because.capitalize()


def test_skipped_records_are_explained_without_command_line_options(store):
    buried(store, 3)
    one, claims = started(store)
    ids = [row["message_id"] for row in store.rows("operation_records", operation=one)]
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operation_records SET flag = 'newer_key' WHERE message_id = ?", [ids[0]])
    claims.skip_flagged("newer_key", NEWER_KEY)
    taken = claims.settle_and_claim([], want=10, busy=False).dead_letters
    assert claims.settle_and_claim(
        [RecordOutcome(dead.message_id, "acknowledged") for dead in taken], want=0, busy=False
    ).over

    text = replay_wording.outcome(replay.get(store, one))[1]
    assert "the topic has a newer record with its key" in text
    assert "--" not in text


def test_a_discarded_dry_run_has_no_duration():
    assert replay_wording.took(operation(state="cancelled", started_at=None, finished_at=NOW + 3600)) == ""


def test_the_settings_describe_the_replay_worker():
    assert "set PRODUCER_CORE_CONFIG to" in replay_wording.runner_setup("PRODUCER_CORE_CONFIG")
    assert "Run by this server with shop.properties (b:9092)" in replay_wording.runner_setup(
        "V", "shop.properties", "b:9092"
    )
    assert replay_wording.runner_setup("V", "f", "b", "no such host").endswith("with f: no such host")
