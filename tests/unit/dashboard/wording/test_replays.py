"""Test the texts about replays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dlq import DeadLetterFilter
from producer_core.replay import Operation
from producer_core.replay.outcome import RecordOutcome
from producer_core.replay.phrases import NEWER_KEY
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.replay_pages import ALL, NOW, started
from tests.fixtures.replays import add_dead_letters

store = replay_pages_fixtures.store


def operation(**changes):
    known = Operation(
        operation_id="o-1", cluster_id="c", selection="{}", state="running", who="ann", origin="cli", created_at=NOW,
        started_at=NOW, finished_at=None, total=100, acknowledged=20, landed=0, failed_again=0, skipped=0, rate=None,
        owner="p-1/abc", lease_until=NOW + 15, message=None, canary=10, stop_percent=50.0, stop_last=50,
    )  # fmt: skip
    return replace(known, **changes)


def standing(one, now=NOW, runners=1):
    return replay_wording.replay_status(one, owner="shop on host", runners=runners, now=now)


@pytest.mark.parametrize(
    ("changes", "runners", "tone", "text"),
    [
        ({}, 1, "good", "Running on shop on host."),
        ({"state": "planned", "owner": None}, 1, "quiet", "Queued: a running producer picks it up"),
        ({"state": "planned", "owner": None}, 0, "bad", "No running producer has credentials"),
        ({"state": "checking"}, 1, "quiet", "Checking for size limits"),
        ({"state": "ready", "owner": None, "checked_at": NOW - 60}, 1, "warning", "Topics checked 60 s ago; nothing sent."),
        ({"state": "paused", "owner": None}, 1, "quiet", "Paused: 80 of 100 left."),
        ({"state": "paused"}, 1, "quiet", "Pausing: waiting for records in flight."),
        ({"state": "cancelled"}, 1, "quiet", "Cancelling: waiting for records in flight."),
        ({"lease_until": NOW - 20}, 1, "warning", "expired 20 s ago; the process has crashed or is hanging. Another producer"),
        ({"lease_until": NOW - 20}, 0, "bad", "the process has crashed or is hanging. No running producer has credentials"),
        ({"state": "done", "acknowledged": 100, "message": "Replayed 100 of 100"}, 0, "good", "Replayed 100 of 100."),
        ({"state": "done", "failed_again": 80, "message": "Replayed 20 of 100"}, 0, "warning", "Replayed 20 of 100."),
        ({"state": "stopped", "message": "Stopped itself"}, 0, "bad", "Stopped itself."),
    ],
)  # fmt: skip
def test_each_replay_state_has_its_sentence(changes, runners, tone, text):
    found = standing(operation(**changes), runners=runners)

    assert found[0] == tone
    assert text in found[1]


def test_progress_shows_rate_and_remaining_time():
    one = operation(acknowledged=15, landed=3, failed_again=2)

    assert (
        replay_wording.progress(one, 8.0)
        == "20 of 100, 8/s, about 10 s left; 2 failed again; 3 already on the topic"
    )
    assert replay_wording.progress(one, None).startswith("20 of 100; ")


def test_the_canary_is_mentioned_only_while_it_runs():
    assert replay_wording.canary(operation(acknowledged=3)) == (
        "Canary: the first 10 are sent on their own; the rest follow once those 10 are acknowledged."
    )
    assert replay_wording.canary(operation(canary=1, acknowledged=0, failed_again=0)) == (
        "Canary: the first one is sent on its own; the rest follow once it is acknowledged."
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


@pytest.mark.slow
def test_skipped_records_are_explained_without_command_line_options(store):
    add_dead_letters(store, 3)
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


def test_the_replays_that_are_not_listed_are_counted():
    assert replay_wording.more_in_progress(1) == "1 more is in progress; see Replays."
    assert replay_wording.more_in_progress(2) == "2 more are in progress; see Replays."


def test_the_result_of_a_replay_names_the_choice_of_the_page_not_an_option_of_the_command():
    stored = "4 skipped: inconclusive, so not sent; to send anyway, use --inconclusive send if a duplicate does no harm"

    shown = replay_wording.without_options(stored)

    assert "--" not in shown
    assert "to send anyway, replay with “Send anyway” if a duplicate does no harm" in shown


def test_the_result_of_a_replay_speaks_of_all_records_that_were_not_found():
    one = "use --inconclusive send if a duplicate does no harm. The record is not on a.b: the topic was read to its end (9 records)"
    stored = f"Replayed 8 of 14; 1 was already on the topic; 5 skipped: inconclusive, so not sent; to send anyway, {one}"

    tone, shown = replay_wording.outcome(
        operation(state="done", message=stored, acknowledged=8, landed=1, total=14)
    )

    assert tone == "warning"
    assert (
        shown
        == "Replayed 8 of 14; 1 was already on the topic; 5 skipped: not found on a.b, so kept as dead letters."
    )


@pytest.mark.parametrize(
    ("doubtful", "words"), [(1, "1 record may"), (50, "50 records may"), (51, "More than 50 records may")]
)
def test_a_cut_number_of_doubtful_records_is_not_shown_as_their_number(doubtful, words):
    (note,) = replay_wording.follow_up(operation(state="done"), doubtful, listed=50)

    assert note.startswith(words)
