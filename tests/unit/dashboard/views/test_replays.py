"""Test the replays page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dashboard import actions
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.outcome import FailedReplay, RecordOutcome
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.pages import links, text_of
from tests.fixtures.replay_pages import opened, started
from tests.fixtures.replays import add_dead_letters, dead_letter

store = replay_pages_fixtures.store


HOSTILE = "<script>alert(1)</script> **bold**"


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


def test_an_empty_store_explains_how_to_start_a_replay(path, store):
    page = opened(path)

    assert not page.exception
    assert "No replays yet." in text_of(page)
    assert 'href="dead-letters"' in text_of(page)


@pytest.mark.slow
def test_a_running_replay_shows_its_user_selection_and_progress(path, store):
    add_dead_letters(store, 3)
    one, claims = started(store)
    claims.settle_and_claim([], want=1, busy=False)

    page = opened(path)

    assert not page.exception
    text = text_of(page)
    assert "1 replay in progress, 3 records left." in text
    assert "3 records: all dead letters" in text and "Requested by ann (dashboard)" in text
    assert "Running on client on host, process 1." in text
    assert f"operation={one}" in text


@pytest.mark.slow
def test_an_ended_replay_shows_its_outcome_and_links_to_its_dead_letters(path, store):
    ids = add_dead_letters(store, 4)
    one = ended(store, failed=(1,), doubtful=(2,))

    page = opened(path)
    text = text_of(page)
    assert any(f"operation={one}" in link for link in links(page))
    assert "Replayed 2 of 4; 1 failed again: Broker: Policy violation; 1 skipped" in text

    page = opened(path, operation=one)
    text = text_of(page)
    assert not page.exception
    assert "1 failed again. It remains a dead letter with the new error." in text
    assert "1 record may already be on the topic." in text
    assert f"ids={ids[1]}" in text and f"ids={ids[2]}" in text
    assert any(f"letter={ids[2]}" in link for link in links(page))
    assert "requested" in text and "ended" in text


@pytest.mark.slow
def test_texts_of_selections_users_and_outcomes_are_escaped(path, store):
    DeadLetters(store).add([dead_letter(1, topic=HOSTILE)])
    done = actions.start_replay(store, DeadLetterFilter(topic=HOSTILE, text="Broker"), who=HOSTILE)
    replay.cancel(store, done.operation_id, who=HOSTILE, origin="cli")

    for page in (opened(path), opened(path, operation=done.operation_id)):
        assert not page.exception
        assert not any("<script" in element.body for element in page.get("html"))
